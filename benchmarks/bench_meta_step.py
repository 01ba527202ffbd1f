"""One meta step against the structure of the code that the authors released: `python benchmarks/bench_meta_step.py`.

The reference is written here in own words: every row padded to 412 tokens behind a prompt of 100, loops over tasks and
over micro-batches of 16 support and 8 query examples, transformers' T5 with eager attention, first order, query sets
mixed with a partner's at the encoder's hidden states, the query gradient of the similarity taken at θ'. Where the
released code departs from its paper (it keeps the last task's gradient only, averages H over padding), the reference
follows the paper: so its numbers must be ours with `StepForm(order=1, similarity_at="theta_prime")`, and their relative
differences are printed.

A step has 4 tasks of 32 support and 32 query examples with random tokens and lengths like those of real tasks; at the
shape of t5-small, whose reference takes minutes, a quarter of that unless told otherwise. Steps to compare are
interleaved in one process, medians over `--passes` are printed. Memory is the peak of a process of its own for each
step: of the second step over what the process held before it, and of both over the model alone, which counts what a
first step leaves for all that follow (oneDNN's layouts and kernels, what libraries load). On a machine that others use
too, `--threads 1` and the ratios of processor time say more than the clock. Steps a second with 1 and 2 processes are
those of ranks that share out the tasks and sum their gradients, one thread each, as `supmer run --ranks 2` does it.
"""

import argparse
import ctypes
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.nn.functional import cosine_similarity, cross_entropy  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402
from transformers import T5Config, T5ForConditionalGeneration  # noqa: E402

from model.device import single_threaded  # noqa: E402
from model.meta.meta_step import MixedTask, StepForm, meta_gradients  # noqa: E402
from model.meta.ranks import ranks_of_torchrun  # noqa: E402
from model.prompt.passes import Passes  # noqa: E402
from model.prompt.regularizer import GradientRegularizer, gate_loss  # noqa: E402
from model.t5.backbone import backbone_of  # noqa: E402
from model.text.tokenized_tasks import Example, Task  # noqa: E402

SHAPES = {
    "d256": {"d_model": 256, "d_kv": 64, "num_heads": 4, "d_ff": 1024, "num_layers": 4},
    "t5-small": {"d_model": 512, "d_kv": 64, "num_heads": 8, "d_ff": 2048, "num_layers": 6},
}
LENGTHS = {"sp": (45, 70), "mc": (130, 170)}  # input tokens of an example
AIMS = {"d256": 7.0, "t5-small": 4.0}  # first order, times faster than the reference
SECOND_ORDER_AIM, MEMORY_AIM = 1.6, 0.1
SIZES = {"d256": (4, 32), "t5-small": (2, 16)}  # tasks of a step, and examples of a set
VOCABULARY, PROMPT, RANK = 32_128, 100, 64
PADDED, SUPPORT_BATCH, QUERY_BATCH = 412, 16, 8  # the released code's
SHARE, B = 0.7, 0.3  # w of every mixture, and what the gates aim at
STEPS = {
    "first order": StepForm(order=1, similarity_at="theta_prime"),
    "second order, kept graph": StepForm(order=2, similarity_at="theta_prime"),
    "second order, recomputed": StepForm(order=2, similarity_at="theta_prime", keep_graph=False),
    "second order, similarity at θ": StepForm(order=2, similarity_at="theta"),
}
REFERENCE, OURS, KEPT, AGAIN = "reference", *list(STEPS)[:3]


@dataclass(frozen=True)
class Problem:
    """What a step is given; `model` is transformers', `passes` are ours through the same weights."""

    model: Any
    passes: Passes
    prompt: Tensor
    regularizer: GradientRegularizer
    tasks: list[MixedTask]


@dataclass(frozen=True)
class Gradients:
    """What both kinds of step find."""

    query_loss: Tensor
    similarity: Tensor
    prompt: Tensor
    regularizer: dict[str, Tensor]


def problem(shape: str, kind: str, tasks: int, examples: int) -> Problem:
    """A random frozen T5, a prompt of its vocabulary, ψφ away from the identity, and tasks mixed with the next one."""
    torch.manual_seed(0)
    config = T5Config(vocab_size=VOCABULARY, decoder_start_token_id=0, attn_implementation="eager", **SHAPES[shape])
    model = T5ForConditionalGeneration(config).eval().requires_grad_(requires_grad=False)
    prompt = model.get_input_embeddings().weight[torch.randint(VOCABULARY, (PROMPT,))].clone()
    regularizer = GradientRegularizer(config.d_model, RANK)
    with torch.no_grad():
        regularizer.up.normal_(std=config.d_model**-0.5)
    chance = np.random.default_rng(0)
    made = [_task(chance, LENGTHS[kind], examples) for _ in range(tasks)]
    mixed = [MixedTask(task, made[(number + 1) % tasks], SHARE) for number, task in enumerate(made)]
    return Problem(model, Passes(backbone_of(model)), prompt, regularizer, mixed)


def _task(chance: np.random.Generator, lengths: tuple[int, int], examples: int) -> Task:
    labels = tuple(np.array([VOCABULARY - 29, word], dtype=np.int32) for word in (4273, 150, 2087))

    def example(number: int) -> Example:
        ids = chance.integers(3, VOCABULARY - 100, chance.integers(*lengths, endpoint=True), dtype=np.int32)
        return Example("e", number % len(labels), ids, labels[number % len(labels)])

    support, query = (tuple(example(number) for number in range(examples)) for _ in range(2))
    return Task("t", "sp", "sp-next", labels, support, query)


def reference_step(given: Problem) -> Gradients:
    """The released structure: task by task, micro-batch by micro-batch, every row at full length, first order."""
    phi = dict(given.regularizer.named_parameters())
    total, of_phi = torch.zeros_like(given.prompt), [torch.zeros_like(one) for one in phi.values()]
    losses, similarities = [], []
    for mixed in given.tasks:
        theta = given.prompt.clone().requires_grad_()
        inner, hidden_mean = _support_gradient(given.model, theta, mixed.task.support)
        gates = given.regularizer.gates(hidden_mean[None])
        regulated = given.regularizer(inner[None], gates)[0]
        step = STEPS[OURS].inner_rate * regulated
        adapted = (theta - step).detach().requires_grad_()
        loss, outer = _query_gradient(given.model, adapted, mixed)
        penalty = gate_loss(gates, B).sum() / len(given.tasks)
        found = torch.autograd.grad([step, penalty], list(phi.values()), [-outer, torch.ones_like(penalty)])
        total += outer
        of_phi = [one + more for one, more in zip(of_phi, found, strict=True)]
        losses.append(loss)
        similarities.append(cosine_similarity(outer.flatten(), regulated.detach().flatten(), dim=0, eps=1e-30))
    return Gradients(torch.stack(losses), torch.stack(similarities), total, dict(zip(phi, of_phi, strict=True)))


def _support_gradient(model: Any, theta: Tensor, examples: Sequence[Example]) -> tuple[Tensor, Tensor]:
    """∇θ of the mean loss [P, d], and the mean of the encoder's hidden states over examples and positions [d]."""
    gradient, hidden_sum, positions = torch.zeros_like(theta), torch.zeros(theta.shape[1]), 0
    for at in range(0, len(examples), SUPPORT_BATCH):
        batch = examples[at : at + SUPPORT_BATCH]
        hidden, mask = _encoded(model, theta, batch)
        loss = _losses(model, hidden, mask, batch)[0].sum() / len(examples)
        gradient += torch.autograd.grad(loss, theta)[0]
        hidden_sum += (hidden.detach() * mask.unsqueeze(-1)).sum((0, 1))
        positions += int(mask.sum())
    return gradient, hidden_sum / positions


def _query_gradient(model: Any, theta: Tensor, mixed: MixedTask) -> tuple[Tensor, Tensor]:
    """The mean mixed loss, and its gradient [P, d]."""
    assert mixed.partner is not None
    gradient, total, share = torch.zeros_like(theta), torch.zeros(()), mixed.share
    size = len(mixed.task.query)
    for at in range(0, size, QUERY_BATCH):
        own, theirs = mixed.task.query[at : at + QUERY_BATCH], mixed.partner.query[at : at + QUERY_BATCH]
        hidden, mask = _encoded(model, theta, own)
        other, other_mask = _encoded(model, theta, theirs)
        blend = share * hidden * mask.unsqueeze(-1) + (1 - share) * other * other_mask.unsqueeze(-1)
        of_own, of_theirs = _losses(model, blend, mask | other_mask, own, theirs)
        loss = (share * of_own + (1 - share) * of_theirs).sum() / size
        gradient += torch.autograd.grad(loss, theta)[0]
        total += loss.detach()
    return total, gradient


def _encoded(model: Any, theta: Tensor, examples: Sequence[Example]) -> tuple[Tensor, Tensor]:
    """Hidden states [rows, P + 412, d] and their mask."""
    ids, mask = torch.zeros(len(examples), PADDED, dtype=torch.long), torch.zeros(len(examples), PADDED)
    for row, example in enumerate(examples):
        ids[row, : len(example.input_ids)] = torch.from_numpy(example.input_ids)
        mask[row, : len(example.input_ids)] = 1
    inputs = torch.cat([theta.expand(len(examples), -1, -1), model.get_input_embeddings()(ids)], 1)
    mask = torch.cat([torch.ones(len(examples), len(theta)), mask], 1)
    return model.get_encoder()(inputs_embeds=inputs, attention_mask=mask).last_hidden_state, mask.bool()


def _losses(model: Any, hidden: Tensor, mask: Tensor, *sets: Sequence[Example]) -> list[Tensor]:
    """For each of the sets, whose targets begin alike, the cross-entropy of each row [rows]."""
    targets = [torch.from_numpy(np.stack([one.target_ids for one in examples])).long() for examples in sets]
    read = torch.cat([torch.zeros_like(targets[0][:, :1]), targets[0][:, :-1]], 1)
    output = model(encoder_outputs=(hidden,), attention_mask=mask.long(), decoder_input_ids=read, use_cache=False)
    logits = output.logits.transpose(1, 2)
    return [cross_entropy(logits, wanted, reduction="none").sum(1) for wanted in targets]


def our_step(given: Problem, form: StepForm) -> Gradients:
    """One of the steps of `model.meta.meta_step`."""
    found = meta_gradients(given.passes, given.prompt, given.regularizer, given.tasks, form, B)
    return Gradients(found.measures.query_loss, found.measures.similarity, found.prompt, found.regularizer)


def step_of(name: str) -> Callable[[Problem], Gradients]:
    return reference_step if name == REFERENCE else lambda given: our_step(given, STEPS[name])


def difference(ours: Tensor, theirs: Tensor) -> float:
    """‖a − b‖/‖b‖."""
    return float((ours - theirs).norm() / theirs.norm())


def equality(ours: Gradients, theirs: Gradients) -> str:
    """How far the numbers of two steps are apart."""
    phi = {name: difference(ours.regularizer[name], one) for name, one in theirs.regularizer.items()}
    return (
        f"query loss {difference(ours.query_loss, theirs.query_loss):.0e}, "
        f"similarity {difference(ours.similarity, theirs.similarity):.0e}, "
        f"∇θ {difference(ours.prompt, theirs.prompt):.0e}, "
        f"∇φ {', '.join(f'{name} {value:.0e}' for name, value in phi.items())}"
    )


def equality_in_doubles(shape: str, kind: str) -> str:
    """The same for one small step in float64: what is left there is a difference in what is computed, not rounding."""
    torch.set_default_dtype(torch.float64)
    try:
        given = problem(shape, kind, 1, SUPPORT_BATCH)
        return equality(our_step(given, STEPS[OURS]), reference_step(given))
    finally:
        torch.set_default_dtype(torch.float32)


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds by the clock, and of processor time of all threads."""
    start, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - processor


def times(given: Problem, passes: int) -> tuple[dict[str, float], dict[str, float], dict[str, Gradients]]:
    """Median seconds of each step by the clock and of processor time, interleaved, and what each found."""
    names = [REFERENCE, *STEPS]
    found: dict[str, Gradients] = {}
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for number in range(passes):
        for name in names:
            taken[name].append(timed(lambda name=name: found.update({name: step_of(name)(given)})))
            print(f"  pass {number + 1}/{passes}: {name} {taken[name][-1][0]:.1f} s", flush=True)
    clock, processor = (
        {name: statistics.median(one[which] for one in runs) for name, runs in taken.items()} for which in (0, 1)
    )
    return clock, processor, found


def peak_memory(shape: str, kind: str, name: str, tasks: int, examples: int) -> tuple[float, float]:
    """Megabytes at the peak of a step, and of the first over the model alone, in a process of its own."""
    size = ["--tasks", str(tasks), "--examples", str(examples), "--threads", str(torch.get_num_threads())]
    command = [sys.executable, __file__, "--shape", shape, "--kind", kind, *size, "--peak", name]
    of_a_step, over_the_model = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(of_a_step), float(over_the_model)


def own_peak_memory(shape: str, kind: str, name: str, tasks: int, examples: int) -> tuple[float, float]:
    """The same of this process."""
    if name == REFERENCE:  # its peak does not grow with its loops: two micro-batches of each kind show it
        tasks, examples = 1, min(examples, 2 * SUPPORT_BATCH)
    given = problem(shape, kind, tasks, examples)
    model = _status("VmRSS")
    peaks = []
    for _ in range(2):
        ctypes.CDLL(None).malloc_trim(0)  # else the step would fit unseen into what was freed before it
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        before = _status("VmRSS")
        step_of(name)(given)
        peaks.append((_status("VmHWM") - before, _status("VmHWM") - model))
    return peaks[1][0] / 1024, max(over for _, over in peaks) / 1024


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def steps_a_second(shape: str, kind: str, processes: int, tasks: int, examples: int) -> float:
    """Of the exact second-order step, its tasks shared out over processes of one thread each."""
    size = ["--tasks", str(max(tasks, 2)), "--examples", str(examples), "--threads", "1"]  # a task for each at least
    started = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [*started, __file__, "--shape", shape, "--kind", kind, *size, "--rank"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    return float(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)


def rank_of_steps(shape: str, kind: str, tasks: int, examples: int) -> float | None:
    """One of those processes; the first gives the steps a second, of the second step on."""
    given = problem(shape, kind, tasks, examples)
    with ranks_of_torchrun(torch.device("cpu")) as ranks:
        own = replace(given, tasks=given.tasks[ranks.rank :: ranks.count])
        taken = [timed(lambda: ranks.summed(our_step(own, STEPS[KEPT]).prompt))[0] for _ in range(3)][1:]
    return 1 / statistics.mean(taken) if ranks.first else None


def our_passes(given: Problem) -> None:
    """What our first-order step asks of the backbone."""
    meta_gradients(given.passes, given.prompt, None, given.tasks, STEPS[OURS])


def reference_passes(given: Problem) -> None:
    """What the reference's asks of it."""
    theta = given.prompt.clone().requires_grad_()
    for mixed in given.tasks:
        _support_gradient(given.model, theta, mixed.task.support)
        _query_gradient(given.model, theta, mixed)


def flops_of(passes: Callable[[Problem], None], given: Problem) -> int:
    """Operations of all matrix products in passes through the backbone; attention's counted in its plain form."""
    counted = {torch.ops.mkldnn._linear_pointwise: lambda rows, matrix, *_, **__: 2 * math.prod(rows) * matrix[0]}  # noqa: SLF001 - its only name
    counting = FlopCounterMode(display=False, custom_mapping=counted)
    with single_threaded(), counting as counter, sdpa_kernel(SDPBackend.MATH):  # it counts in its own thread only
        passes(given)
    return counter.get_total_flops()


def matmul_rate(given: Problem) -> float:
    """Operations a second of a plain float32 product as large as a chunk's widest: [tokens, d] · [d, 4·d]."""
    rows, width = given.passes.chunk_tokens, given.prompt.shape[1]
    left, right = torch.randn(rows, width), torch.randn(width, 4 * width)
    each = [timed(lambda: [left @ right for _ in range(10)])[0] / 10 for _ in range(30)]
    return 2 * rows * width * 4 * width / statistics.median(each)


def report(shape: str, kind: str, tasks: int, examples: int, passes: int) -> None:
    """Measure one shape and kind, and print."""
    low, high = LENGTHS[kind]
    print(f"{shape}, {kind}: {tasks} tasks of 2 × {examples} examples of {low} to {high} tokens", flush=True)
    given = problem(shape, kind, tasks, examples)
    step_of(OURS)(problem(shape, kind, 1, 1))
    clock, processor, found = times(given, passes)
    rate = matmul_rate(given)
    print(f"  ours and the reference, first order, relative differences: {equality(found[OURS], found[REFERENCE])}")
    print(f"  the same of one task in float64: {equality_in_doubles(shape, kind)}")
    print(f"  kept and recomputed graph: {equality(found[AGAIN], found[KEPT])}")
    peaks = {name: peak_memory(shape, kind, name, tasks, examples) for name in clock}
    for name, seconds in clock.items():
        print(
            f"  {name:30} {seconds:7.2f} s, {clock[REFERENCE] / seconds:5.2f} × as fast by the clock, "
            f"{processor[REFERENCE] / processor[name]:5.2f} × by processor time; "
            f"{peaks[name][0]:6.0f} MB, {peaks[name][0] / peaks[REFERENCE][0]:.3f} of the reference "
            f"({peaks[name][1]:.0f} MB over the model alone)"
        )
    faster, dearer = clock[REFERENCE] / clock[OURS], clock[KEPT] / clock[OURS]
    print(f"  first order: {faster:.1f} × as fast, aim {AIMS[shape]:.0f}: {_met(faster >= AIMS[shape])}")
    print(
        f"  second order: {dearer:.2f} × first order (recomputed {clock[AGAIN] / clock[OURS]:.2f}), "
        f"aim {SECOND_ORDER_AIM}: {_met(dearer <= SECOND_ORDER_AIM)}"
    )
    memory, with_first = (ours / theirs for ours, theirs in zip(peaks[OURS], peaks[REFERENCE], strict=True))
    print(
        f"  memory, first order: {memory:.3f} of the reference, aim {MEMORY_AIM}: {_met(memory <= MEMORY_AIM)}; "
        f"over the model alone {with_first:.3f}: {_met(with_first <= MEMORY_AIM)}"
    )
    alone, together = (steps_a_second(shape, kind, processes, tasks, examples) for processes in (1, 2))
    print(f"  second order: {alone:.3f} steps/s with 1 process, {together:.3f} with 2, {together / alone:.2f} ×")
    flops, theirs = (flops_of(passes, given) for passes in (our_passes, reference_passes))
    achieved = flops / clock[OURS]
    print(
        f"  first order: {flops / 1e9:,.0f} GFLOP in matrix products, {achieved / 1e9:.0f} GFLOP/s, "
        f"{achieved / rate:.2f} of a plain product's {rate / 1e9:.0f}; the reference {theirs / 1e9:,.0f} GFLOP, "
        f"{theirs / flops:.1f} × as many, {theirs / clock[REFERENCE] / 1e9:.0f} GFLOP/s",
        flush=True,
    )


def _met(condition: bool) -> str:
    return "met" if condition else "missed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, action="append", help="this one only (may be given again)")
    parser.add_argument("--kind", choices=LENGTHS, action="append", help="this one only (may be given again)")
    parser.add_argument("--passes", type=int, default=1)
    parser.add_argument("--tasks", type=int, help="of a step")
    parser.add_argument("--examples", type=int, help="of a support set and of a query set")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--quick", action="store_true", help="2 tasks of 2 × 16 examples, d256 and sp only")
    parser.add_argument("--rank", action="store_true", help="be one of torchrun's processes, print steps a second")
    parser.add_argument("--peak", choices=[REFERENCE, *STEPS], help="print the memory of this step alone")
    options = parser.parse_args()
    if options.quick:
        options.tasks, options.examples = options.tasks or 2, options.examples or 16
        options.shape, options.kind = options.shape or ["d256"], options.kind or ["sp"]
    shapes, kinds = options.shape or list(SHAPES), options.kind or list(LENGTHS)
    torch.set_num_threads(options.threads)
    if options.peak:
        print(*own_peak_memory(shapes[0], kinds[0], options.peak, options.tasks, options.examples))
        return
    if options.rank:
        rate = rank_of_steps(shapes[0], kinds[0], options.tasks, options.examples)
        print(rate if rate is not None else "", end="")
        return
    print(f"{os.cpu_count()} cores, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}")
    for shape in shapes:
        for kind in kinds:
            tasks, examples = SIZES[shape]
            report(shape, kind, options.tasks or tasks, options.examples or examples, options.passes)


if __name__ == "__main__":
    main()
