"""Compare few-shot tuning of one dataset with PEFT's prompt tuning: `python benchmarks/bench_tuning.py`.

15 runs (5 seeds × 3 learning rates) take the same steps in three ways, from the same prompts, on the same batches:

    PEFT        one run at a time: `peft` around transformers' T5, torch's AdamW, rows padded to the batch's longest
    ours, apart one run at a time through `model.tuning.tuner`
    ours        all runs together through the frozen backbone, each row with its own prompt
    … bfloat16  the same in bfloat16, if the processor has units for it

The losses of every step are compared. The largest relative differences are printed and must be small, because all
compute the same, in bfloat16 up to its rounding. The ways are interleaved, and medians over `--passes` are printed. The
model has random weights; the lengths are like those of film reviews. Evaluation is left out, because it is the same
work for all (see bench_predict.py). On a shared machine, `--threads 1` and the ratios of processor time are more
reliable than the clock.
"""

import argparse
import copy
import os
import statistics
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
from numpy.typing import NDArray  # noqa: E402
from peft import PromptTuningConfig, TaskType, get_peft_model  # noqa: E402
from records import Record  # noqa: E402
from transformers import T5Config, T5ForConditionalGeneration  # noqa: E402

from model.prompt.passes import Passes  # noqa: E402
from model.t5.backbone import backbone_of  # noqa: E402
from model.t5.precision import bfloat16_units  # noqa: E402
from model.text.tokenized_tasks import Example, pad  # noqa: E402
from model.tuning.runs import TuneForm, TuneRun  # noqa: E402
from model.tuning.tuner import Tuner  # noqa: E402

SHAPES = {
    "d256": {"d_model": 256, "d_kv": 64, "num_heads": 4, "d_ff": 1024, "num_layers": 4},
    "t5-small": {"d_model": 512, "d_kv": 64, "num_heads": 8, "d_ff": 2048, "num_layers": 6},
}
AIM, LOW_AIM, PRECISION_AIM = 1.8, 3.0, 1.6  # over PEFT in float32 and bfloat16, and bfloat16 over float32
VOCABULARY = 32_128
SEEDS, RATES = (10, 20, 30, 40, 50), (0.1, 0.2, 0.3)
LABELS = tuple(np.array([VOCABULARY - 29, word], np.int32) for word in (4273, 150))
LENGTHS = (12, 60)  # input tokens of an example
PEFT, APART, OURS, LOW = "PEFT", "ours, apart", "ours", "ours, bfloat16"

Losses = NDArray[np.float64]
"""[runs, steps]."""


@dataclass(frozen=True)
class Problem:
    """The frozen model, our passes with the same weights, the runs, the steps of each, and passes in bfloat16."""

    model: Any
    passes: Passes
    runs: list[TuneRun]
    form: TuneForm
    steps: int
    low: Passes


def problem(shape: str, tokens: int, shots: int, steps: int) -> Problem:
    torch.manual_seed(0)
    config = T5Config(vocab_size=VOCABULARY, decoder_start_token_id=0, pad_token_id=0, **SHAPES[shape])
    model = T5ForConditionalGeneration(config).eval().requires_grad_(requires_grad=False)
    runs = []
    for seed in SEEDS:
        chance = np.random.default_rng(seed)
        train = [_example(chance, number % len(LABELS)) for number in range(shots * len(LABELS))]
        rows = torch.from_numpy(chance.integers(0, VOCABULARY, tokens))
        prompt = model.get_input_embeddings().weight[rows].clone()
        runs += [TuneRun(prompt, rate, seed, train, train[:1]) for rate in RATES]
    form = TuneForm(epochs=steps, evaluate_every=10**9)
    low = Passes.for_tuning(backbone_of(copy.deepcopy(model).to(torch.bfloat16)))
    return Problem(model, Passes.for_tuning(backbone_of(model)), runs, form, steps, low)


def _example(chance: np.random.Generator, label: int) -> Example:
    ids = chance.integers(3, VOCABULARY - 100, chance.integers(*LENGTHS, endpoint=True), dtype=np.int32)
    return Example("e", label, ids, LABELS[label])


def with_peft(case: Problem) -> Losses:
    """Tune each run in a plain PyTorch loop; PEFT's loss is a mean over target tokens, ours a sum over an example's."""
    all_losses = []
    for run in case.runs:
        config = PromptTuningConfig(
            task_type=TaskType.SEQ_2_SEQ_LM, num_virtual_tokens=len(run.prompt), num_transformer_submodules=1
        )
        model = get_peft_model(case.model, config).eval()  # without dropout, like ours
        (theta,) = [parameter for parameter in model.parameters() if parameter.requires_grad]
        with torch.no_grad():
            theta.copy_(run.prompt)
        adam = torch.optim.AdamW([theta], lr=run.learning_rate, weight_decay=case.form.weight_decay)
        losses = []
        for step in range(case.steps):
            batch = pad(run.batch(step, case.form))
            target = torch.from_numpy(batch.target_ids)
            output = model(
                input_ids=torch.from_numpy(batch.input_ids),
                attention_mask=torch.from_numpy(batch.mask).long(),
                labels=target,
            )
            loss = output.loss * target.shape[1]
            adam.zero_grad()
            loss.backward()
            adam.step()
            losses.append(float(loss.detach()))
        all_losses.append(losses)
    return np.array(all_losses)


def with_ours(case: Problem, groups: Sequence[Sequence[TuneRun]]) -> Losses:
    """Tune groups of runs with `model.tuning.tuner`."""
    losses: list[list[float]] = []
    for group in groups:
        tuner = Tuner(case.passes, group, LABELS, case.form)
        for _ in range(case.steps):
            tuner.descend()
        losses += tuner.losses()
    return np.array(losses)


WAYS: dict[str, Callable[[Problem], Losses]] = {
    PEFT: with_peft,
    APART: lambda case: with_ours(case, [[run] for run in case.runs]),
    OURS: lambda case: with_ours(case, [case.runs]),
    LOW: lambda case: with_ours(replace(case, passes=case.low), [case.runs]),
}
if not bfloat16_units(torch.device("cpu")):
    del WAYS[LOW]


def timed(work: Callable[[], Losses]) -> tuple[float, float, Losses]:
    """Return the seconds by the clock, the processor time of all threads, and the losses."""
    start, processor = time.perf_counter(), time.process_time()
    losses = work()
    return time.perf_counter() - start, time.process_time() - processor, losses


def report(shape: str, case: Problem, passes: int, record: Record) -> None:
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
    results: dict[str, Losses] = {}
    for number in range(passes):
        for name, way in WAYS.items():
            clock, processor, results[name] = timed(lambda way=way: way(case))
            taken[name].append((clock, processor))
            print(f"  pass {number + 1}/{passes}: {name} {clock:.1f} s", flush=True)
    for name in (name for name in WAYS if name != PEFT):
        apart = np.abs(results[name] / results[PEFT] - 1)
        print(f"  losses, {name} against PEFT: largest relative difference {apart[:, 0].max():.0e} at the first step, "
              f"{apart.max():.0e} over all {case.steps}; last losses {results[name][:3, -1].round(4)} "
              f"and {results[PEFT][:3, -1].round(4)}")  # fmt: skip
    size = {"shape": shape, "runs": len(case.runs), "steps": case.steps, "threads": torch.get_num_threads()}
    for name, runs in taken.items():
        clocks, cpu = map(list, zip(*runs, strict=True))
        apart = float(np.abs(results[name] / results[PEFT] - 1).max())
        record.add(way=name, **size, seconds=clocks, cpu_seconds=cpu, largest_difference=apart)
    medians = {name: [statistics.median(values) for values in zip(*runs, strict=True)] for name, runs in taken.items()}
    for name, (clock, processor) in medians.items():
        print(
            f"  {name:14} {clock:7.1f} s, {medians[PEFT][0] / clock:5.2f} × as fast as PEFT by the clock, "
            f"{medians[PEFT][1] / processor:5.2f} × by processor time"
        )
    faster = medians[PEFT][0] / medians[OURS][0]
    print(f"  {len(case.runs)} runs: {faster:.2f} × as fast, aim {AIM}: {_met(faster >= AIM)}")
    if LOW in WAYS:
        peft, wide, low = (medians[name][1] for name in (PEFT, OURS, LOW))
        print(
            f"  bfloat16, processor time: {peft / low:.2f} × PEFT, aim {LOW_AIM}: {_met(peft / low >= LOW_AIM)}; "
            f"{wide / low:.2f} × float32, aim {PRECISION_AIM}: {_met(wide / low >= PRECISION_AIM)}"
        )


def _met(condition: bool) -> str:
    return "met" if condition else "missed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, action="append", help="only this shape (may be repeated)")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="steps of each run")
    parser.add_argument("--shots", type=int, default=16)
    parser.add_argument("--prompt-tokens", type=int, default=100)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--quick", action="store_true", help="d256 only, one pass of two steps")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    record = Record(__file__, parser, options)
    if options.quick:
        options.shape, options.passes, options.steps = ["d256"], 1, 2
    print(f"{os.cpu_count()} cores, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}")
    for shape in options.shape or list(SHAPES):
        print(f"{shape}: {len(SEEDS)} seeds × {len(RATES)} rates, {options.steps} steps, P = {options.prompt_tokens}")
        report(shape, problem(shape, options.prompt_tokens, options.shots, options.steps), options.passes, record)
    record.write()


if __name__ == "__main__":
    main()
