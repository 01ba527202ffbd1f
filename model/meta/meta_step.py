"""One meta step of SUPMER (paper, Algorithm 1; ALGORITHM §5): from a few tasks to the gradients of θ and φ.

    g_i  = ∇θ L_support,i(θ)        θ'_i = θ − α1·ψφ(g_i)        L = Σ_i L_query,i(θ'_i)

The query sets are mixed with those of partner tasks. The derivative of L passes through g_i (order 2) or stops there
(order 1). Only v_i = ∂L/∂θ'_i needs the query sets, so it is computed first, chunk by chunk; then

    ∇θ L = Σ_i v_i − (∂step_i/∂g_i · v_i)·∇²θ L_support,i(θ)        ∇φ L = −Σ_i ∂step_i/∂φ · v_i

The product with the Hessian is computed in one of two ways, with the same result: from the kept graph of g_i, which is
faster, or by passing the support sets through the backbone again, chunk by chunk, which needs the memory of one chunk.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from model.prompt.passes import Pass, Passes
from model.prompt.regularizer import GradientRegularizer, gate_loss
from model.prompt.rows import Row
from model.text.tokenized_tasks import Example, Task

InnerForm = Literal["sgd", "rms", "adam"]
OuterForm = Literal["gradient", "displacement"]
_TINY = 1e-30
_BETAS, _EPSILON = (0.9, 0.999), 1e-8  # AdamW's, as in tuning


@dataclass(frozen=True)
class StepForm:
    """The settings of a meta step.

    Attributes:
        order: 2 passes the derivative through the inner gradient, 1 stops it there.
        inner_rate: α1.
        inner_form: `sgd` is α1·ψ(g), as in the paper; `rms` is α1·ψ(g)/rms(ψ(g)); `adam` are Adam's steps from zero
            moments, as tuning takes them.
        similarity_at: where the query gradient for s is taken: `theta` (Algorithm 1) or `theta_prime` (released code).
        gate_weight: the weight of L_reg.
        keep_graph: with order 2, keep the graph of the inner gradients; if False, read the support sets again.
        inner_steps: the number of steps on the support set, 1 in the paper. The derivative with respect to θ passes
            only through the gradient of the last step and treats the earlier ones as constants; φ learns from all.
        inner_batch: the number of support examples of an inner step, in turn; 0 means all in every step.
        outer: `gradient` is the paper's ∇θ L; `displacement` is Σ θ − θ' (Reptile), which needs no query set. φ
            learns from the query sets in both.
        support_weight: the weight of Σ L_support(θ) in the outer loss, 0 in the paper. Above 0, θ keeps what it
            answers before any inner step; g_i is its gradient, so it costs nothing more.
    """

    order: Literal[1, 2] = 2
    inner_rate: float = 0.1
    inner_form: InnerForm = "sgd"
    similarity_at: Literal["theta", "theta_prime"] = "theta"
    gate_weight: float = 1.0
    keep_graph: bool = True
    inner_steps: int = 1
    inner_batch: int = 0
    outer: OuterForm = "gradient"
    support_weight: float = 0.0


@dataclass(frozen=True)
class MixedTask:
    """A task, its partner, whose query set is mixed in, and w, the task's own share of the mixture."""

    task: Task
    partner: Task | None = None
    share: float = 1.0


@dataclass(frozen=True)
class TaskMeasures:
    """Measurements of a step for each task, [tasks] each.

    Attributes:
        support_loss: the loss of the support set at θ.
        query_loss: the loss of the mixed query set at θ'.
        gate_loss: L_reg.
        similarity: the cosine of the query gradient and ψ(g), the normalized inner product that the paper plots.
        gate: the mean of z.
        inner_size: ‖θ' − θ‖/‖θ‖.
        inner_norm: ‖g‖.
        query_norm: the norm of the query gradient at θ'.
    """

    support_loss: Tensor
    query_loss: Tensor
    gate_loss: Tensor
    similarity: Tensor
    gate: Tensor
    inner_size: Tensor
    inner_norm: Tensor
    query_norm: Tensor


@dataclass(frozen=True)
class MetaGradients:
    """Gradients of Σ (L_query + support_weight·L_support) + gate_weight·mean L_reg, and the measurements of the step.

    `prompt` is that of θ, [P, d]; `regularizer` has those of φ by name.
    """

    prompt: Tensor
    regularizer: dict[str, Tensor]
    measures: TaskMeasures


@dataclass(frozen=True)
class InnerStep:
    """One inner step of each of K tasks, with the autograd graph from `source` and φ to `step`.

    Attributes:
        prompts: θ before the step, [K, P, d].
        support: the pass over the support sets.
        source: g, [K, P, d].
        regulated: ψφ(g), [K, P, d].
        gates: z, [K, d] or [K, 1]; None without a regularizer.
        step: θ − θ', [K, P, d].
        rows: the support examples of the step.
        moments: Adam's means of ψφ(g) and of its square, without their graph, [K, P, d] each; None in other forms.
    """

    prompts: Tensor
    support: Pass
    source: Tensor
    regulated: Tensor
    gates: Tensor | None
    step: Tensor
    rows: Sequence[Row]
    moments: tuple[Tensor, Tensor] | None


def support_rows(tasks: Sequence[Task], step: int = 0, batch: int = 0) -> list[Row]:
    """Return the rows of the support sets, one prompt per task; the weights give the mean loss of each set.

    With `batch`, step 0, 1, … takes that many examples of each set, going around it.
    """
    rows: list[Row] = []
    for number, task in enumerate(tasks):
        examples = task.support
        if 0 < batch < len(examples):
            examples = tuple(examples[(step * batch + place) % len(examples)] for place in range(batch))
        rows += _rows(examples, number)
    return rows


def query_rows(tasks: Sequence[MixedTask]) -> list[Row]:
    """Return the rows of the query sets, mixed with their partners'; a smaller partner set is used repeatedly."""
    rows: list[Row] = []
    for number, mixed in enumerate(tasks):
        partners = mixed.partner.query if mixed.partner is not None and mixed.share < 1 else ()
        rows += _rows(mixed.task.query, number, partners, mixed.share)
    return rows


def _rows(examples: Sequence[Example], prompt: int, partners: Sequence[Example] = (), share: float = 1.0) -> list[Row]:
    weight = 1 / len(examples)
    if not partners:
        return [Row(example, prompt, weight) for example in examples]
    return [
        Row(example, prompt, weight, partners[number % len(partners)], share) for number, example in enumerate(examples)
    ]


def inner_step(
    passes: Passes,
    prompts: Tensor,
    regularizer: GradientRegularizer | None,
    rows: Sequence[Row],
    form: StepForm,
    earlier: Sequence[InnerStep] = (),
) -> InnerStep:
    """Take the step θ'_i = θ − α1·ψφ(g_i) for prompts [K, P, d], one per task, after the `earlier` steps."""
    support = passes.run(prompts, rows, graph=form.order == 2 and form.keep_graph)
    gradients = support.gradients.clone().requires_grad_()
    gates, regulated = None, gradients
    if regularizer is not None:
        gates = regularizer.gates(support.hidden_mean)
        regulated = regularizer(gradients, gates)
    moments = None
    match form.inner_form:
        case "sgd":
            direction = regulated
        case "rms":
            direction = regulated / _rms(regulated)
        case "adam":
            direction, moments = _adam(regulated, earlier)
    return InnerStep(prompts, support, gradients, regulated, gates, form.inner_rate * direction, rows, moments)


def inner_steps(
    passes: Passes, prompts: Tensor, regularizer: GradientRegularizer | None, tasks: Sequence[Task], form: StepForm
) -> list[InnerStep]:
    """Take `form.inner_steps` steps on the support sets; only the last step keeps the graph of its gradient."""
    steps: list[InnerStep] = []
    for number in range(form.inner_steps):
        rows = support_rows(tasks, number, form.inner_batch)
        step_form = form if number == form.inner_steps - 1 else replace(form, keep_graph=False)
        steps.append(inner_step(passes, prompts, regularizer, rows, step_form, steps))
        prompts = prompts - steps[-1].step.detach()
    return steps


def meta_gradients(
    passes: Passes,
    prompt: Tensor,
    regularizer: GradientRegularizer | None,
    tasks: Sequence[MixedTask],
    form: StepForm,
    b: float = 0.0,
    batch: int = 0,
) -> MetaGradients:
    """Return the gradients of one meta step.

    Args:
        passes: passes through the backbone.
        prompt: θ [P, d].
        regularizer: ψφ; None means the identity.
        tasks: the tasks with their partners.
        form: the settings of the step.
        b: the target of the gates.
        batch: the number of tasks of the whole step, over which L_reg is the mean; 0 means `tasks` are all of them,
            otherwise they may be those of one rank.
    """
    prompts = prompt.detach().repeat(len(tasks), 1, 1)
    queries = query_rows(tasks)
    steps = inner_steps(passes, prompts, regularizer, [mixed.task for mixed in tasks], form)
    inner = steps[-1]
    adapted = inner.prompts - inner.step.detach()
    query = passes.run(adapted, queries)
    compared = passes.run(prompts, queries).gradients if form.similarity_at == "theta" else query.gradients
    penalty = query.losses.new_zeros(len(tasks)) if inner.gates is None else gate_loss(inner.gates, b)
    weighted = form.gate_weight / (batch or len(tasks)) * penalty.sum()
    through, of_phi = _backward(steps, query.gradients, weighted, regularizer)
    total = query.gradients.sum(0) if form.outer == "gradient" else (prompts - adapted).sum(0)
    if form.support_weight:
        total += form.support_weight * steps[0].support.gradients.sum(0)
    if form.order == 2 and form.outer == "gradient":
        total += passes.hessian_product(inner.prompts, inner.rows, through, inner.support.graphs).sum(0)
    return MetaGradients(total, of_phi, _measures(steps, query, compared, penalty))


def adapted_prompts(
    passes: Passes, prompt: Tensor, regularizer: GradientRegularizer | None, tasks: Sequence[Task], form: StepForm
) -> Tensor:
    """Return θ' of each task, the prompt after the inner steps on its support set, [tasks, P, d]."""
    prompts = prompt.detach().repeat(len(tasks), 1, 1)
    last = inner_steps(passes, prompts, regularizer, tasks, replace(form, order=1))[-1]
    return last.prompts - last.step.detach()


def _backward(
    steps: Sequence[InnerStep], query_gradients: Tensor, penalty: Tensor, regularizer: GradientRegularizer | None
) -> tuple[Tensor, dict[str, Tensor]]:
    """Propagate v = ∂L/∂θ' back through θ' = θ − Σ steps, and L_reg back through the gates of the last step.

    Returns:
        The gradient with respect to g of the last step, [K, P, d], and the gradient of each parameter of φ.
    """
    phi = dict(regularizer.named_parameters()) if regularizer is not None else {}
    outputs, cotangents = [steps[-1].step], [-query_gradients]
    if phi:
        outputs, cotangents = [*outputs, penalty], [*cotangents, torch.ones_like(penalty)]
        outputs += [step.step for step in steps[:-1]]
        cotangents += [-query_gradients] * (len(steps) - 1)
    through, *of_phi = torch.autograd.grad(outputs, [steps[-1].source, *phi.values()], cotangents)
    return through, dict(zip(phi, of_phi, strict=True))


def _measures(steps: Sequence[InnerStep], query: Pass, compared: Tensor, penalty: Tensor) -> TaskMeasures:
    inner, prompts = steps[0], steps[0].prompts
    with torch.no_grad():
        moved = prompts - steps[-1].prompts + steps[-1].step if len(steps) > 1 else inner.step
        regulated = inner.regulated.detach().flatten(1)
        last = steps[-1].gates
        gates = penalty.new_zeros(len(penalty), 1) if last is None else last
        return TaskMeasures(
            support_loss=inner.support.losses,
            query_loss=query.losses,
            gate_loss=penalty.detach(),
            similarity=cosine_similarity(compared.flatten(1), regulated, eps=_TINY),
            gate=gates.mean(1),
            inner_size=moved.flatten(1).norm(dim=1) / prompts[0].norm(),
            inner_norm=inner.support.gradients.flatten(1).norm(dim=1),
            query_norm=query.gradients.flatten(1).norm(dim=1),
        )


def _adam(gradients: Tensor, earlier: Sequence[InnerStep]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Return Adam's direction after the `earlier` steps, whose moments are constants, and the new moments."""
    before = earlier[-1].moments if earlier else None
    first, second = before or (torch.zeros_like(gradients), torch.zeros_like(gradients))
    first = _BETAS[0] * first + (1 - _BETAS[0]) * gradients
    second = _BETAS[1] * second + (1 - _BETAS[1]) * gradients.square()
    taken = len(earlier) + 1
    scale = (second / (1 - _BETAS[1] ** taken) + _TINY).sqrt() + _EPSILON
    return first / (1 - _BETAS[0] ** taken) / scale, (first.detach(), second.detach())


def _rms(gradients: Tensor) -> Tensor:
    """Return the root mean square of each prompt's gradient, [K, 1, 1]."""
    return (gradients.square().mean((1, 2), keepdim=True) + _TINY).sqrt()
