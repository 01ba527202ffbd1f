"""Compare meta steps in float32 and in bfloat16: `python benchmarks/bench_step_precision.py`.

The model has random weights in the shape of the quickstart's backbone; the tasks have the quickstart's sizes. Steps of
both orders take turns in one process, with one thread unless `--threads` says otherwise. Medians are printed without
the first step, which makes layouts and kernels, with the cosines of the gradients of θ and φ. On real tasks and
weights, bench_precision.py compares the gradients.
"""

import argparse
import statistics
import sys
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from random_steps import Gradients, Problem, bfloat16_passes, cosine, met, our_step, random_problem, timed  # noqa: E402
from records import Record  # noqa: E402

from model.meta.meta_step import StepForm  # noqa: E402

SHAPE = {"d_model": 512, "d_kv": 64, "num_heads": 6, "d_ff": 1024, "num_layers": 8, "feed_forward_proj": "gated-gelu"}
PROMPT, TASKS, EXAMPLES, LENGTHS = 16, 2, 4, (60, 96)
ORDERS = {1: ("first order", 1.6), 2: ("second order", 1.7)}  # the name, and the aim: float32's time over bfloat16's


def problems() -> dict[str, Problem]:
    """Return the same step in both precisions."""
    wide = random_problem(SHAPE | {"tie_word_embeddings": False}, PROMPT, LENGTHS, TASKS, EXAMPLES)
    return {"float32": wide, "bfloat16": replace(wide, passes=bfloat16_passes(wide))}


def compare(cases: dict[str, Problem], order: int, passes: int, record: Record) -> None:
    """Take steps of one order in turn, print the ratio and keep every sample."""
    form = StepForm(order=order, inner_form="rms", similarity_at="theta_prime")
    results: dict[str, Gradients] = {}
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    for _ in range(passes + 1):
        for name, case in cases.items():
            taken[name].append(timed(lambda name=name, case=case: results.update({name: our_step(case, form)})))
    wide, low = results["float32"], results["bfloat16"]
    of_phi = [cosine(low.regularizer[name], gradient) for name, gradient in wide.regularizer.items() if gradient.any()]
    of_theta, (told, aim) = cosine(low.prompt, wide.prompt), ORDERS[order]
    spent = {}
    for name, runs in taken.items():
        clock, processor = map(list, zip(*runs[1:], strict=True))
        spent[name] = statistics.median(processor)
        agrees = {"cosine": min(of_theta, *of_phi)} if name == "bfloat16" else {}
        record.add(step=told, precision=name, threads=torch.get_num_threads(), seconds=clock, cpu_seconds=processor,
                   **agrees)  # fmt: skip
    faster = spent["float32"] / spent["bfloat16"]
    print(
        f"{told}: float32 {spent['float32']:.2f} s, bfloat16 {spent['bfloat16']:.2f} s of processor time, "
        f"{faster:.2f} ×, aim {aim}: {met(faster >= aim)}; cosine of ∇θ {of_theta:.5f}, lowest of ∇φ {min(of_phi):.5f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="three passes")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    record = Record(__file__, parser, options)
    cases = problems()
    for order in ORDERS:
        compare(cases, order, 3 if options.quick else options.passes, record)
    record.write()


if __name__ == "__main__":
    main()
