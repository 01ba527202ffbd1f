"""Compare a meta step with the structure of the authors' released code: `python benchmarks/bench_meta_step.py`.

The reference is the reimplementation in released_step.py. Its numbers must be equal to ours with
`StepForm(order=1, similarity_at="theta_prime")`; the relative differences are printed.

A step has 4 tasks of 32 support and 32 query examples, with random tokens and lengths like those of real tasks. At the
shape of t5-small, whose reference takes minutes, the default is a quarter of that. The steps are interleaved in one
process, and medians over `--passes` are printed. Memory is measured in a separate process for each step, as two peaks:
that of the second step above the memory before it, and that of both steps above the model alone, which includes
everything that a first step leaves behind (oneDNN's layouts and kernels, loaded libraries). On a shared machine,
`--threads 1` and the ratios of processor time are more reliable than the clock. Steps per second with 1 and 2 processes
are those of ranks that divide the tasks and sum their gradients, with one thread each, as in `supmer run --ranks 2`.

Where the processor has no units for bfloat16, all steps in it are left out. bench_step_precision.py compares the
precisions on steps of the quickstart's shape.
"""

import argparse
import ctypes
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from random_steps import Gradients, Problem, bfloat16_passes, cosine, met, our_step, random_problem, timed  # noqa: E402
from records import Record  # noqa: E402
from released_step import SAME, SUPPORT_BATCH, released_passes, released_step  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from model.device import single_threaded  # noqa: E402
from model.meta.meta_step import StepForm, meta_gradients  # noqa: E402
from model.meta.ranks import ranks_of_torchrun  # noqa: E402
from model.t5.precision import bfloat16_units  # noqa: E402

SHAPES = {
    "d256": {"d_model": 256, "d_kv": 64, "num_heads": 4, "d_ff": 1024, "num_layers": 4},
    "t5-small": {"d_model": 512, "d_kv": 64, "num_heads": 8, "d_ff": 2048, "num_layers": 6},
}
LENGTHS = {"sp": (45, 70), "mc": (130, 170)}  # input tokens of an example
AIMS = {"d256": 7.0, "t5-small": 4.0}  # first order: times as fast as the reference
LOW_AIMS = {"sp": 10.0, "mc": 6.0}  # the same in bfloat16, at d256
SECOND_ORDER_AIM, MEMORY_AIM = 1.6, 0.1
SIZES = {"d256": (4, 32), "t5-small": (2, 16)}  # tasks per step, and examples per set
PROMPT = 100  # tokens
STEPS = {
    "first order": SAME,
    "second order, kept graph": StepForm(order=2, similarity_at="theta_prime"),
    "second order, recomputed": StepForm(order=2, similarity_at="theta_prime", keep_graph=False),
    "second order, similarity at θ": StepForm(order=2, similarity_at="theta"),
}
REFERENCE, OURS, KEPT, AGAIN = "reference", *list(STEPS)[:3]
LOW = {"first order, bfloat16": STEPS[OURS], "second order, bfloat16": STEPS[KEPT]}
if not bfloat16_units(torch.device("cpu")):
    LOW = {}


def problem(shape: str, kind: str, tasks: int, examples: int) -> Problem:
    """Return the random step of a shape and kind, in bfloat16 too where the processor has units for it."""
    eager = SHAPES[shape] | {"attn_implementation": "eager"}
    case = random_problem(eager, PROMPT, LENGTHS[kind], tasks, examples)
    return replace(case, low=bfloat16_passes(case)) if LOW else case


def step_of(name: str) -> Callable[[Problem], Gradients]:
    if name in LOW:
        return lambda case: our_step(replace(case, passes=case.low), LOW[name])
    return released_step if name == REFERENCE else lambda case: our_step(case, STEPS[name])


def difference(ours: Tensor, theirs: Tensor) -> float:
    """Return ‖a − b‖/‖b‖."""
    return float((ours - theirs).norm() / theirs.norm())


def equality(ours: Gradients, theirs: Gradients) -> str:
    """Return the relative differences between the numbers of two steps, as text."""
    phi = {name: difference(ours.regularizer[name], gradient) for name, gradient in theirs.regularizer.items()}
    return (
        f"query loss {difference(ours.query_loss, theirs.query_loss):.0e}, "
        f"similarity {difference(ours.similarity, theirs.similarity):.0e}, "
        f"∇θ {difference(ours.prompt, theirs.prompt):.0e}, "
        f"∇φ {', '.join(f'{name} {value:.0e}' for name, value in phi.items())}"
    )


def equality_in_doubles(shape: str, kind: str) -> str:
    """Return the same for one small step in float64, where differences are not due to rounding."""
    torch.set_default_dtype(torch.float64)
    try:
        case = problem(shape, kind, 1, SUPPORT_BATCH)
        return equality(our_step(case, STEPS[OURS]), released_step(case))
    finally:
        torch.set_default_dtype(torch.float32)


Samples = dict[str, tuple[list[float], list[float]]]
"""The seconds of every pass by the clock, and of processor time, for each kind of step."""


def times(case: Problem, passes: int) -> tuple[Samples, dict[str, Gradients]]:
    """Take the steps, interleaved; return their seconds and the results."""
    names = [REFERENCE, *STEPS, *LOW]
    results: dict[str, Gradients] = {}
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for number in range(passes):
        for name in names:
            taken[name].append(timed(lambda name=name: results.update({name: step_of(name)(case)})))
            print(f"  pass {number + 1}/{passes}: {name} {taken[name][-1][0]:.1f} s", flush=True)
    samples = {name: ([clock for clock, _ in runs], [cpu for _, cpu in runs]) for name, runs in taken.items()}
    return samples, results


def peak_memory(shape: str, kind: str, name: str, tasks: int, examples: int) -> tuple[float, float]:
    """Return the peaks of `own_peak_memory` in megabytes, measured in a separate process."""
    size = ["--tasks", str(tasks), "--examples", str(examples), "--threads", str(torch.get_num_threads())]
    command = [sys.executable, __file__, "--shape", shape, "--kind", kind, *size, "--peak", name]
    of_a_step, over_the_model = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(of_a_step), float(over_the_model)


def own_peak_memory(shape: str, kind: str, name: str, tasks: int, examples: int) -> tuple[float, float]:
    """Return the peak of a second step above the memory before it, and of both steps above the model alone, in MB."""
    if name == REFERENCE:  # its peak does not grow with its loops, so two micro-batches of each kind are enough
        tasks, examples = 1, min(examples, 2 * SUPPORT_BATCH)
    case = problem(shape, kind, tasks, examples)
    model = _status("VmRSS")
    peaks = []
    for _ in range(2):
        ctypes.CDLL(None).malloc_trim(0)  # otherwise the step would reuse freed memory and not be seen
        Path("/proc/self/clear_refs").write_text("5")  # reset the peak
        before = _status("VmRSS")
        step_of(name)(case)
        peaks.append((_status("VmHWM") - before, _status("VmHWM") - model))
    return peaks[1][0] / 1024, max(over for _, over in peaks) / 1024


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def steps_a_second(shape: str, kind: str, processes: int, tasks: int, examples: int) -> float:
    """Return the second-order steps per second, with the tasks divided over processes of one thread each."""
    # At least two tasks, one per process.
    size = ["--tasks", str(max(tasks, 2)), "--examples", str(examples), "--threads", "1"]
    started = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [*started, __file__, "--shape", shape, "--kind", kind, *size, "--rank"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    return float(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)


def rank_of_steps(shape: str, kind: str, tasks: int, examples: int) -> float | None:
    """Run one of those processes; the first returns the steps per second, without the first step, others None."""
    case = problem(shape, kind, tasks, examples)
    with ranks_of_torchrun(torch.device("cpu")) as ranks:
        own = replace(case, tasks=case.tasks[ranks.rank :: ranks.count])
        taken = [timed(lambda: ranks.summed(our_step(own, STEPS[KEPT]).prompt))[0] for _ in range(3)][1:]
    return 1 / statistics.mean(taken) if ranks.first else None


def our_passes(case: Problem) -> None:
    """Make the passes through the backbone of our first-order step."""
    meta_gradients(case.passes, case.prompt, None, case.tasks, STEPS[OURS])


def flops_of(passes: Callable[[Problem], None], case: Problem) -> int:
    """Return the operations of all matrix products in passes through the backbone, with the plain form of attention."""
    counted = {torch.ops.mkldnn._linear_pointwise: lambda rows, matrix, *_, **__: 2 * math.prod(rows) * matrix[0]}  # noqa: SLF001 - its only name
    counting = FlopCounterMode(display=False, custom_mapping=counted)
    with single_threaded(), counting as counter, sdpa_kernel(SDPBackend.MATH):  # it counts only in its own thread
        passes(case)
    return counter.get_total_flops()


def matmul_rate(case: Problem) -> float:
    """Return the operations per second of a plain float32 product like a chunk's widest: [tokens, d] · [d, 4·d]."""
    rows, width = case.passes.chunk_tokens, case.prompt.shape[1]
    left, right = torch.randn(rows, width), torch.randn(width, 4 * width)
    each = [timed(lambda: [left @ right for _ in range(10)])[0] / 10 for _ in range(30)]
    return 2 * rows * width * 4 * width / statistics.median(each)


def report(
    shape: str, kind: str, tasks: int, examples: int, passes: int, record: Record, *, only_times: bool = False
) -> None:
    """Measure one shape and kind, and print the results."""
    low, high = LENGTHS[kind]
    print(f"{shape}, {kind}: {tasks} tasks of 2 × {examples} examples of {low} to {high} tokens", flush=True)
    case = problem(shape, kind, tasks, examples)
    step_of(OURS)(problem(shape, kind, 1, 1))
    samples, results = times(case, passes)
    clock, processor = ({name: statistics.median(both[which]) for name, both in samples.items()} for which in (0, 1))
    if only_times:
        print_times(kind, samples)
        for name, (seconds, cpu_seconds) in samples.items():
            record.add(step=name, **_size(shape, kind, tasks, examples), seconds=seconds, cpu_seconds=cpu_seconds)
        return
    rate = matmul_rate(case)
    print(f"  ours and the reference, first order, relative differences: {equality(results[OURS], results[REFERENCE])}")
    print(f"  the same for one task in float64: {equality_in_doubles(shape, kind)}")
    print(f"  kept and recomputed graph: {equality(results[AGAIN], results[KEPT])}")
    peaks = {name: peak_memory(shape, kind, name, tasks, examples) for name in clock}
    for name, seconds in clock.items():
        print(
            f"  {name:30} {seconds:7.2f} s, {clock[REFERENCE] / seconds:5.2f} × as fast by the clock, "
            f"{processor[REFERENCE] / processor[name]:5.2f} × by processor time; "
            f"{peaks[name][0]:6.0f} MB, {peaks[name][0] / peaks[REFERENCE][0]:.3f} of the reference "
            f"({peaks[name][1]:.0f} MB over the model alone)"
        )
    faster, dearer = clock[REFERENCE] / clock[OURS], clock[KEPT] / clock[OURS]
    print(f"  first order: {faster:.1f} × as fast, aim {AIMS[shape]:.0f}: {met(faster >= AIMS[shape])}")
    print(
        f"  second order: {dearer:.2f} × first order (recomputed {clock[AGAIN] / clock[OURS]:.2f}), "
        f"aim {SECOND_ORDER_AIM}: {met(dearer <= SECOND_ORDER_AIM)}"
    )
    memory, with_first = (ours / theirs for ours, theirs in zip(peaks[OURS], peaks[REFERENCE], strict=True))
    print(
        f"  memory, first order: {memory:.3f} of the reference, aim {MEMORY_AIM}: {met(memory <= MEMORY_AIM)}; "
        f"over the model alone {with_first:.3f}: {met(with_first <= MEMORY_AIM)}"
    )
    for name, of_float32 in zip(LOW, (OURS, KEPT), strict=False):
        faster = processor[of_float32] / processor[name]
        against = processor[REFERENCE] / processor[name]
        aim = (
            f", aim {LOW_AIMS[kind]:.0f}: {met(against >= LOW_AIMS[kind])}"
            if shape == "d256" and "first" in name
            else ""
        )
        print(
            f"  {name}: {faster:.2f} × float32 and {against:.1f} × the reference by processor time{aim}; "
            f"cosine of ∇θ {cosine(results[name].prompt, results[of_float32].prompt):.5f}"
        )
    alone, together = (steps_a_second(shape, kind, processes, tasks, examples) for processes in (1, 2))
    print(f"  second order: {alone:.3f} steps/s with 1 process, {together:.3f} with 2, {together / alone:.2f} ×")
    flops, theirs = (flops_of(passes, case) for passes in (our_passes, released_passes))
    achieved = flops / clock[OURS]
    print(
        f"  first order: {flops / 1e9:,.0f} GFLOP in matrix products, {achieved / 1e9:.0f} GFLOP/s, "
        f"{achieved / rate:.2f} of a plain product's {rate / 1e9:.0f}; the reference {theirs / 1e9:,.0f} GFLOP, "
        f"{theirs / flops:.1f} × as many, {theirs / clock[REFERENCE] / 1e9:.0f} GFLOP/s",
        flush=True,
    )
    for name, (seconds, cpu_seconds) in samples.items():
        figures = {"seconds": seconds, "cpu_seconds": cpu_seconds, "peak_mb": peaks[name][0]}
        record.add(step=name, **_size(shape, kind, tasks, examples), **figures, peak_over_model_mb=peaks[name][1])
    record.add(
        step="products", shape=shape, kind=kind, flops=flops, reference_flops=theirs, plain_flops_per_second=rate,
        steps_per_second={"1": alone, "2": together},
    )  # fmt: skip


def print_times(kind: str, samples: Samples) -> None:
    """Print how many times as fast as the reference each step is."""
    reference = [statistics.median(seconds) for seconds in samples[REFERENCE]]
    for name, both in samples.items():
        faster = [base / statistics.median(seconds) for base, seconds in zip(reference, both, strict=True)]
        aim = f", aim {LOW_AIMS[kind]:g}" if name == next(iter(LOW), None) else ""
        print(f"  {name:30} {faster[0]:5.2f} × as fast by the clock, {faster[1]:5.2f} × by processor time{aim}")


def _size(shape: str, kind: str, tasks: int, examples: int) -> dict[str, Any]:
    return {"shape": shape, "kind": kind, "tasks": tasks, "examples": examples, "threads": torch.get_num_threads()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, action="append", help="only this shape (may be repeated)")
    parser.add_argument("--kind", choices=LENGTHS, action="append", help="only this kind (may be repeated)")
    parser.add_argument("--passes", type=int, default=1)
    parser.add_argument("--tasks", type=int, help="tasks per step")
    parser.add_argument("--examples", type=int, help="examples per support set and per query set")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--quick", action="store_true", help="2 tasks of 2 × 16 examples, d256 and sp only")
    parser.add_argument("--only-times", action="store_true", help="no memory, ranks and operations: much shorter")
    parser.add_argument(
        "--rank", action="store_true", help="run as one of torchrun's processes and print steps per second"
    )
    parser.add_argument("--peak", choices=[REFERENCE, *STEPS, *LOW], help="only print the peak memory of this step")
    options = parser.parse_args()
    given = argparse.Namespace(**vars(options))
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
    record = Record(__file__, parser, given)
    print(f"{os.cpu_count()} cores, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}")
    for shape in shapes:
        for kind in kinds:
            tasks, examples = SIZES[shape]
            size = (options.tasks or tasks, options.examples or examples)
            report(shape, kind, *size, options.passes, record, only_times=options.only_times)
    record.write()


if __name__ == "__main__":
    main()
