"""The meta step's gradients are the derivatives of what the paper defines, in every form (ALGORITHM §4, §5).

H̄ is held where the step starts, because what the gates are made from is detached by definition; so is g in order 1.
"""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from model.meta.meta_step import MixedTask, StepForm, adapted_prompts, meta_gradients, query_rows, support_rows
from model.meta.objectives import MetaObjective
from model.prompt.passes import Passes
from model.prompt.regularizer import GradientRegularizer
from model.prompt.rows import Centroids
from model.t5.backbone import backbone_of
from support.meta_examples import bart, t5, task

pytestmark = pytest.mark.usefixtures("one_thread")

B = 0.3
RATES = {"sgd": 5.0, "rms": 0.5}  # large, so that the inner step and its derivative weigh
CENTROIDS = Centroids(
    torch.from_numpy(np.random.default_rng(9).normal(size=(2, 16))), {("ss", number): number for number in range(2)}
)


def form_of(order=2, inner="sgd", **others):
    return StepForm(order=order, inner_rate=RATES[inner], inner_form=inner, **others)


def regularizer_of(gate="vector", width=16):
    """A regularizer away from its start, so that every part of it counts."""
    torch.manual_seed(1)
    regularizer = GradientRegularizer(width, 3, gate).double()
    with torch.no_grad():
        for parameter in regularizer.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return regularizer


@pytest.fixture(scope="module")
def backbone():
    return backbone_of(t5(gated=True))


@pytest.fixture(scope="module")
def prompt():
    return torch.from_numpy(np.random.default_rng(3).normal(size=(3, 16)))


def mixed_tasks(*, mix=True, sizes=(2, 3), slots=False):
    chance = np.random.default_rng(5)
    labels = [((5, 6), (5, 7)), ((8,), (9, 10, 11))]
    tasks = [task(chance, size=size, labels=labels[n % 2], slots=slots) for n, size in enumerate(sizes)]
    return [MixedTask(one, tasks[number - 1] if mix else None, 0.4 if mix else 1.0) for number, one in enumerate(tasks)]


def stepped(passes, theta, regularizer, tasks, form, held=None):
    """θ' [K, P, d], z and ψ(g), written out; `held` is the support pass that H̄ (and, in order 1, g) is taken from."""
    prompts = theta.repeat(len(tasks), 1, 1)
    support = passes.run(prompts, support_rows([one.task for one in tasks]))
    held = held or support
    regulated, gates = (held if form.order == 1 else support).gradients, None
    if regularizer is not None:
        with torch.no_grad():
            gates = regularizer.gates(held.hidden_mean)
            regulated = regularizer(regulated, gates)
    scale = regulated.square().mean((1, 2), keepdim=True).sqrt() if form.inner_form == "rms" else 1
    return prompts - form.inner_rate * regulated / scale, gates, regulated


def objective(passes, theta, regularizer, tasks, form, held):
    """Σ L_query(θ') + weight · mean L_reg, which meta_gradients should give the derivatives of."""
    adapted, gates, _ = stepped(passes, theta, regularizer, tasks, form, held)
    penalty = 0.0 if gates is None else form.gate_weight * (gates - B).square().mean()
    return (passes.losses_of(adapted, query_rows(tasks)).sum() + penalty).item()


def check(passes, theta, regularizer, tasks, form):
    """Directional derivatives along a random direction of θ and of each parameter of φ."""
    found = meta_gradients(passes, theta, regularizer, tasks, form, B)
    prompts = theta.repeat(len(tasks), 1, 1)
    held = passes.run(prompts, support_rows([one.task for one in tasks]))
    chance, size = torch.Generator().manual_seed(7), 1e-5

    def differences(value):
        direction = torch.randn(value.shape, generator=chance, dtype=torch.float64)
        ends = []
        for sign in (1, -2):
            value.data.add_(sign * size * direction)
            ends.append(objective(passes, theta, regularizer, tasks, form, held))
        value.data.add_(size * direction)
        return direction, (ends[0] - ends[1]) / (2 * size)

    theta = theta.clone()
    direction, expected = differences(theta)
    assert (found.prompt * direction).sum().item() == pytest.approx(expected, rel=2e-6, abs=1e-8)
    named = dict(regularizer.named_parameters()) if regularizer else {}
    assert found.regularizer.keys() == named.keys()
    for name, parameter in named.items():
        direction, expected = differences(parameter)
        assert (found.regularizer[name] * direction).sum().item() == pytest.approx(expected, rel=2e-6, abs=1e-8), name
        assert abs(expected) > 1e-6, f"{name} is not put to the test"
    return found


class TestDerivatives:
    @pytest.mark.parametrize("inner", ["sgd", "rms"])
    @pytest.mark.parametrize(("order", "keep_graph"), [(1, True), (2, True), (2, False)])
    @pytest.mark.parametrize(("mix", "gate"), [(True, "vector"), (False, "vector"), (True, "scalar")])
    def test_they_are_finite_differences(self, backbone, prompt, inner, order, keep_graph, mix, gate):
        form = form_of(order, inner, keep_graph=keep_graph)
        check(Passes(backbone, chunk_tokens=60), prompt, regularizer_of(gate), mixed_tasks(mix=mix), form)

    @pytest.mark.parametrize("keep_graph", [True, False])
    def test_with_centroids_among_the_inputs(self, backbone, prompt, keep_graph):
        passes = Passes(backbone, CENTROIDS, chunk_tokens=60)
        check(passes, prompt, regularizer_of(), mixed_tasks(slots=True), form_of(keep_graph=keep_graph))

    @pytest.mark.parametrize("order", [1, 2])
    def test_without_a_regularizer(self, backbone, prompt, order):
        found = check(Passes(backbone), prompt, None, mixed_tasks(), form_of(order))
        assert found.regularizer == {}
        assert (found.measures.gate_loss == 0).all()

    @pytest.mark.parametrize("order", [1, 2])
    def test_through_the_generic_path(self, order):
        theta = torch.from_numpy(np.random.default_rng(3).normal(size=(3, 8)))
        check(Passes(backbone_of(bart())), theta, regularizer_of(width=8), mixed_tasks(), form_of(order))

    def test_for_sets_of_different_sizes(self, backbone, prompt):
        check(Passes(backbone, chunk_tokens=60), prompt, regularizer_of(), mixed_tasks(sizes=(1, 5, 2)), form_of())

    def test_for_another_weight_of_the_gate_loss(self, backbone, prompt):
        check(Passes(backbone), prompt, regularizer_of(), mixed_tasks(), form_of(gate_weight=20.0))

    @pytest.mark.parametrize("inner", ["sgd", "rms"])
    def test_order_2_is_not_order_1(self, backbone, prompt, inner):
        passes, regularizer = Passes(backbone), regularizer_of()
        first, second = (
            meta_gradients(passes, prompt, regularizer, mixed_tasks(), form_of(order, inner), B) for order in (1, 2)
        )
        assert (first.prompt - second.prompt).norm() > 0.01 * first.prompt.norm()
        for name, value in first.regularizer.items():  # φ is reached without passing through g
            torch.testing.assert_close(second.regularizer[name], value)

    @pytest.mark.parametrize("keep_graph", [True, False])
    def test_the_size_of_chunks_does_not_matter(self, backbone, prompt, keep_graph):
        form, regularizer, tasks = form_of(keep_graph=keep_graph), regularizer_of(), mixed_tasks()
        small, large = (
            meta_gradients(Passes(backbone, chunk_tokens=size), prompt, regularizer, tasks, form, B)
            for size in (1, 100_000)
        )
        torch.testing.assert_close(small.prompt, large.prompt)
        for name, value in large.regularizer.items():
            torch.testing.assert_close(small.regularizer[name], value)
        for field in fields(large.measures):
            torch.testing.assert_close(getattr(small.measures, field.name), getattr(large.measures, field.name))


class TestSharingOut:
    @pytest.mark.parametrize("keep_graph", [True, False])
    def test_the_tasks_of_a_batch_in_two_calls_sum_to_one_call(self, backbone, prompt, keep_graph):
        passes, regularizer, tasks = Passes(backbone), regularizer_of(), mixed_tasks(sizes=(2, 3, 1))
        form = form_of(keep_graph=keep_graph, gate_weight=20.0)
        whole = meta_gradients(passes, prompt, regularizer, tasks, form, B)
        parts = [meta_gradients(passes, prompt, regularizer, some, form, B, 3) for some in (tasks[:1], tasks[1:])]
        torch.testing.assert_close(sum(part.prompt for part in parts), whole.prompt)
        for name, value in whole.regularizer.items():
            torch.testing.assert_close(sum(part.regularizer[name] for part in parts), value)
        for field in fields(whole.measures):
            together = torch.cat([getattr(part.measures, field.name) for part in parts])
            torch.testing.assert_close(together, getattr(whole.measures, field.name))

    def test_the_gate_loss_is_a_mean_over_the_batch_and_the_query_loss_a_sum(self, backbone, prompt):
        passes, regularizer, one = Passes(backbone), regularizer_of(), mixed_tasks()[:1]
        plain, gates = form_of(gate_weight=0.0), form_of(gate_weight=1.0)
        without = meta_gradients(passes, prompt, regularizer, one, plain, B).regularizer["gate.bias"]
        alone, of_four = (
            meta_gradients(passes, prompt, regularizer, one, gates, B, batch).regularizer["gate.bias"] - without
            for batch in (0, 4)
        )
        torch.testing.assert_close(of_four, alone / 4)
        assert alone.norm() > 0
        twice = meta_gradients(passes, prompt, regularizer, one * 2, gates, B)
        once = meta_gradients(passes, prompt, regularizer, one, gates, B)
        torch.testing.assert_close(twice.prompt, 2 * once.prompt)
        torch.testing.assert_close(twice.regularizer["gate.bias"], 2 * without + alone)


class TestSeveralInnerSteps:
    @pytest.mark.parametrize("order", [1, 2])
    @pytest.mark.parametrize("inner", ["sgd", "rms"])
    def test_the_derivative_passes_through_the_last_one(self, backbone, prompt, inner, order):
        passes, regularizer, tasks = Passes(backbone), regularizer_of(), mixed_tasks()
        form = form_of(order, inner)
        before, _, _ = stepped(passes, prompt, regularizer, tasks, form)
        several = meta_gradients(passes, prompt, regularizer, tasks, replace(form, inner_steps=2), B)
        each = []
        for number, mixed in enumerate(tasks):
            last = meta_gradients(passes, before[number].detach(), regularizer, [mixed], form, B, len(tasks))
            each.append(last.prompt)
            assert several.measures.query_loss[number].item() == pytest.approx(last.measures.query_loss.item())
        torch.testing.assert_close(several.prompt, sum(each))

    def test_the_regularizer_learns_from_all_of_them(self, backbone, prompt):
        """With both support gradients held, φ moves θ' through both steps: finite differences of exactly that."""
        passes, regularizer, tasks = Passes(backbone), regularizer_of(), mixed_tasks()
        form = replace(form_of(1, gate_weight=0.0), inner_steps=2)
        found = meta_gradients(passes, prompt, regularizer, tasks, form, B).regularizer["up"]
        first = passes.run(prompt.repeat(2, 1, 1), support_rows([one.task for one in tasks]))
        middle, _, _ = stepped(passes, prompt, regularizer, tasks, form)
        second = passes.run(middle, support_rows([one.task for one in tasks]))

        def loss():
            with torch.no_grad():
                moves = [regularizer(one.gradients, regularizer.gates(one.hidden_mean)) for one in (first, second)]
            return passes.losses_of(prompt - form.inner_rate * sum(moves), query_rows(tasks)).sum().item()

        direction, size = torch.randn(found.shape, generator=torch.Generator().manual_seed(7), dtype=found.dtype), 1e-5
        ends = []
        for sign in (1, -2):
            regularizer.up.data.add_(sign * size * direction)
            ends.append(loss())
        expected = (ends[0] - ends[1]) / (2 * size)
        assert abs(expected) > 1e-6
        assert (found * direction).sum().item() == pytest.approx(expected, rel=1e-5)


class TestInnerStepsAsInTuning:
    def test_adam_takes_the_steps_of_torch(self, backbone, prompt):
        passes, tasks = Passes(backbone), mixed_tasks()
        form = StepForm(order=1, inner_rate=0.3, inner_form="adam", inner_steps=3)
        found = adapted_prompts(passes, prompt, None, [mixed.task for mixed in tasks], form)
        for number, mixed in enumerate(tasks):
            parameter = torch.nn.Parameter(prompt.clone())
            adam = torch.optim.Adam([parameter], lr=0.3)
            for _ in range(3):
                parameter.grad = passes.run(parameter.detach()[None], support_rows([mixed.task])).gradients[0]
                adam.step()
            torch.testing.assert_close(found[number], parameter.detach())

    def test_batches_go_around_the_support_set(self):
        task = mixed_tasks()[0].task
        size = len(task.support)
        taken = [row.example for step in range(size) for row in support_rows([task], step, 2)]
        assert [taken.count(example) for example in task.support] == [2] * size
        assert {row.weight for row in support_rows([task], 0, 2)} == {0.5}
        assert support_rows([task], 3, size) == support_rows([task])

    @pytest.mark.parametrize("inner", ["rms", "adam"])
    def test_a_displacement_is_how_far_the_inner_steps_went(self, backbone, prompt, inner):
        passes, regularizer, tasks = Passes(backbone), regularizer_of(), mixed_tasks()
        form = StepForm(order=1, inner_rate=0.2, inner_form=inner, inner_steps=3, inner_batch=2)
        adapted = adapted_prompts(passes, prompt, regularizer, [mixed.task for mixed in tasks], form)
        gradient = meta_gradients(passes, prompt, regularizer, tasks, form, B)
        displacement = meta_gradients(passes, prompt, regularizer, tasks, replace(form, outer="displacement"), B)
        torch.testing.assert_close(displacement.prompt, (prompt - adapted).sum(0))
        for name, value in gradient.regularizer.items():  # φ learns from the query sets in both
            torch.testing.assert_close(displacement.regularizer[name], value)

    @pytest.mark.parametrize("order", [1, 2])
    def test_the_support_loss_before_the_inner_step_adds_its_own_gradient(self, backbone, prompt, order):
        passes, regularizer, tasks = Passes(backbone), regularizer_of(), mixed_tasks()
        form = StepForm(order=order, inner_rate=0.2, inner_form="rms")
        alone = meta_gradients(passes, prompt, regularizer, tasks, form, B)
        both = meta_gradients(passes, prompt, regularizer, tasks, replace(form, support_weight=0.5), B)
        prompts = prompt.repeat(len(tasks), 1, 1)
        support = passes.run(prompts, support_rows([mixed.task for mixed in tasks])).gradients.sum(0)
        torch.testing.assert_close(both.prompt, alone.prompt + 0.5 * support)
        for name, value in alone.regularizer.items():
            torch.testing.assert_close(both.regularizer[name], value)


class TestTheBackbone:
    @pytest.mark.parametrize("fast", [True, False])
    @pytest.mark.parametrize("keep_graph", [True, False])
    def test_nothing_of_it_changes_or_collects_gradients(self, prompt, fast, keep_graph):
        model = t5(gated=True).train()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        passes, regularizer = Passes(backbone_of(model, fast=fast)), regularizer_of()
        meta_gradients(passes, prompt, regularizer, mixed_tasks(), form_of(keep_graph=keep_graph), B)
        MetaObjective(passes, regularizer, form_of()).held_out(prompt, [one.task for one in mixed_tasks()])
        assert not any(module.training for module in model.modules())
        for parameter in model.parameters():
            assert not parameter.requires_grad
            assert parameter.grad is None
        for name, value in model.state_dict().items():
            assert torch.equal(value, before[name]), name

    def test_neither_the_prompt_nor_the_regularizer_is_touched(self, backbone, prompt):
        theta, regularizer = prompt.clone(), regularizer_of()
        found = meta_gradients(Passes(backbone), theta, regularizer, mixed_tasks(), form_of(), B)
        assert torch.equal(theta, prompt)
        assert theta.grad is None
        assert all(parameter.grad is None for parameter in regularizer.parameters())
        assert not any(value.requires_grad for value in (found.prompt, *found.regularizer.values()))
        assert not any(getattr(found.measures, field.name).requires_grad for field in fields(found.measures))


class TestMeasures:
    @pytest.mark.parametrize("inner", ["sgd", "rms"])
    @pytest.mark.parametrize("where", ["theta", "theta_prime"])
    def test_the_similarity_is_of_the_query_gradient_there_and_the_regulated_support_gradient(
        self, backbone, prompt, where, inner
    ):
        passes, regularizer, tasks = Passes(backbone), regularizer_of(), mixed_tasks()
        form = form_of(inner=inner, similarity_at=where)
        found = meta_gradients(passes, prompt, regularizer, tasks, form, B).measures.similarity
        adapted, _, regulated = stepped(passes, prompt, regularizer, tasks, form)
        at = prompt.repeat(2, 1, 1) if where == "theta" else adapted
        query = passes.run(at, query_rows(tasks)).gradients
        for number in range(2):
            one, other = query[number].flatten(), regulated[number].flatten()
            assert found[number].item() == pytest.approx((one @ other / one.norm() / other.norm()).item(), rel=1e-9)

    def test_the_two_places_differ_and_do_not_change_the_gradients(self, backbone, prompt):
        passes, regularizer, tasks = Passes(backbone), regularizer_of(), mixed_tasks()
        at, after = (
            meta_gradients(passes, prompt, regularizer, tasks, form_of(similarity_at=where), B)
            for where in ("theta", "theta_prime")
        )
        assert (at.measures.similarity - after.measures.similarity).abs().max() > 1e-3
        assert torch.equal(at.prompt, after.prompt)

    def test_the_others_are_what_they_are_called(self, backbone, prompt):
        passes, regularizer, tasks, form = Passes(backbone), regularizer_of(), mixed_tasks(), form_of()
        found = meta_gradients(passes, prompt, regularizer, tasks, form, B).measures
        support = passes.run(prompt.repeat(2, 1, 1), support_rows([one.task for one in tasks]))
        adapted, gates, _ = stepped(passes, prompt, regularizer, tasks, form)
        query = passes.run(adapted, query_rows(tasks))
        torch.testing.assert_close(found.support_loss, support.losses)
        torch.testing.assert_close(found.query_loss, query.losses)
        torch.testing.assert_close(found.gate_loss, (gates - B).square().mean(1))
        torch.testing.assert_close(found.gate, gates.mean(1))
        torch.testing.assert_close(found.inner_size, (adapted - prompt).flatten(1).norm(dim=1) / prompt.norm())
        torch.testing.assert_close(found.inner_norm, support.gradients.flatten(1).norm(dim=1))
        torch.testing.assert_close(found.query_norm, query.gradients.flatten(1).norm(dim=1))

    def test_an_rms_step_has_the_size_of_its_rate(self, backbone, prompt):
        found = meta_gradients(Passes(backbone), prompt, regularizer_of(), mixed_tasks(), form_of(inner="rms"), B)
        moved = found.measures.inner_size * prompt.norm() / prompt.numel() ** 0.5
        torch.testing.assert_close(moved, torch.full((2,), RATES["rms"], dtype=torch.float64))


class TestRows:
    def test_each_set_counts_as_its_mean_and_partners_take_turns(self):
        first, second = mixed_tasks(sizes=(2, 3))
        rows = query_rows([first, second])
        assert [(row.prompt, row.weight) for row in rows] == [(0, 1 / 2)] * 2 + [(1, 1 / 3)] * 3
        assert [row.example for row in rows] == [*first.task.query, *second.task.query]
        assert [row.partner for row in rows[2:]] == [first.task.query[number] for number in (0, 1, 0)]
        assert {row.share for row in rows} == {0.4}
        support = support_rows([first.task, second.task])
        assert [row.example for row in support] == [*first.task.support, *second.task.support]
        assert all(row.partner is None for row in support)

    def test_a_share_of_one_reads_no_partner(self):
        first, second = (one.task for one in mixed_tasks())
        assert all(row.partner is None for row in query_rows([MixedTask(first, second, 1.0)]))


class TestHeldOut:
    @pytest.mark.parametrize("inner", ["sgd", "rms"])
    def test_the_loss_is_after_one_inner_step_without_mixing(self, backbone, prompt, inner):
        passes, regularizer, form = Passes(backbone), regularizer_of(), form_of(inner=inner)
        tasks = [one.task for one in mixed_tasks()]
        found = MetaObjective(passes, regularizer, form).held_out(prompt, tasks)
        unmixed = [MixedTask(one) for one in tasks]
        adapted, _, _ = stepped(passes, prompt, regularizer, unmixed, form)
        for number, one in enumerate(tasks):
            rows = [replace(row, prompt=0, weight=1.0) for row in query_rows([MixedTask(one)])]
            each = [passes.losses_of(adapted[number : number + 1], [row]).item() for row in rows]
            assert found.losses[number].item() == pytest.approx(np.mean(each), rel=1e-9)
        before = passes.losses_of(prompt.repeat(2, 1, 1), query_rows(unmixed))
        torch.testing.assert_close(found.before.loss, before)
        assert not torch.allclose(found.losses, before, rtol=1e-4)

    def test_the_order_of_the_outer_derivative_does_not_matter(self, backbone, prompt):
        tasks, regularizer = [one.task for one in mixed_tasks()], regularizer_of()
        first, second = (
            adapted_prompts(Passes(backbone), prompt, regularizer, tasks, form_of(order)) for order in (1, 2)
        )
        assert torch.equal(first, second)


@pytest.mark.parametrize("order", [1, 2])
def test_float32_gives_the_gradients_of_float64(order):
    """The layouts and kernels of float32, and lists that are filled up, with their derivatives."""
    found = {}
    for dtype in (torch.float32, torch.float64):
        chance = np.random.default_rng(0)
        tasks = [MixedTask(task(chance, size=5), task(chance, size=5), 0.7) for _ in range(2)]
        backbone = backbone_of(t5(gated=True, tied=False, dtype=dtype))
        torch.manual_seed(1)
        theta, regularizer = torch.randn(17, backbone.width).to(dtype), GradientRegularizer(backbone.width, 4).to(dtype)
        form = StepForm(order=order, inner_form="rms")
        found[dtype] = meta_gradients(Passes(backbone), theta, regularizer, tasks, form, 0.3)
    narrow, wide = found.values()
    torch.testing.assert_close(narrow.prompt.double(), wide.prompt, rtol=1e-3, atol=1e-5)
    for name, gradient in wide.regularizer.items():
        torch.testing.assert_close(narrow.regularizer[name].double(), gradient, rtol=1e-3, atol=1e-5)
