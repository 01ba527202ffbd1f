"""Compare a step of fine-tuning with a plain PyTorch loop: `python benchmarks/bench_fine_tuning.py`.

Both train all weights of the same model on the same batches, with torch's AdamW:

    plain loop  transformers' T5 with its own loss, rows padded to the batch's longest
    ours        `model.tuning.fine_tuner`, as stage `tune` calls it
    … bfloat16  the same with products in bfloat16 (autocast) and float32 weights, if the processor has units for it

The ways take turns, step by step, so that whatever else runs on the machine meets all of them. Medians are printed,
without the first step, which makes oneDNN's kernels. Losses must agree; evaluation is left out. The model has random
weights in the shape of the quickstart's backbone; lengths are like those of film reviews.
"""

import argparse
import copy
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from records import Record  # noqa: E402
from transformers import T5Config, T5ForConditionalGeneration  # noqa: E402

from model.meta.ranks import Ranks  # noqa: E402
from model.t5.precision import bfloat16_units  # noqa: E402
from model.text.tokenized_tasks import Example, pad  # noqa: E402
from model.tuning.fine_tuner import FineTuner  # noqa: E402
from model.tuning.runs import TuneForm, TuneRun  # noqa: E402
from model.tuning.trainee import prepared  # noqa: E402

SHAPES = {
    "quickstart": {"d_model": 512, "d_kv": 64, "num_heads": 6, "d_ff": 1024, "num_layers": 8,
                   "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "d256": {"d_model": 256, "d_kv": 64, "num_heads": 4, "d_ff": 1024, "num_layers": 4},
}  # fmt: skip
VOCABULARY, LENGTHS, RATE = 32_128, (20, 68), 3e-5
LABELS = tuple(np.array([word, 1], np.int32) for word in (4273, 150))
PLAIN, OURS = "plain loop", "ours"
AIM = 1.0  # ours may take at most so many times the plain loop's time

Step = Callable[[], float]
"""Takes a step of training, and returns its loss."""


def run_of(batch: int, steps: int) -> tuple[TuneRun, TuneForm]:
    """Return the examples as a run of stage `tune`, and its settings."""
    chance = np.random.default_rng(0)
    rows = []
    for number in range(2 * batch):
        ids = chance.integers(3, VOCABULARY - 100, chance.integers(*LENGTHS, endpoint=True), dtype=np.int32)
        rows.append(Example("e", number % 2, ids, LABELS[number % 2]))
    form = TuneForm(batch_size=batch, epochs=steps + 1, evaluate_every=10**9)
    return TuneRun(torch.empty(0), RATE, 1, rows, rows[:1]), form


def plain_steps(model: Any, run: TuneRun, form: TuneForm, precision: str) -> Step:
    """Return a function that takes a step of the plain loop."""
    model = copy.deepcopy(model).eval()  # without dropout, like ours
    adam = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=form.weight_decay)
    numbers = iter(range(10**9))

    def step() -> float:
        batch = pad(run.batch(next(numbers), form), 0)
        ids, mask, labels = (torch.from_numpy(part).long() for part in (batch.input_ids, batch.mask, batch.target_ids))
        with torch.autocast("cpu", torch.bfloat16) if precision == "bfloat16" else nullcontext():
            loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        adam.zero_grad()
        loss.backward()
        adam.step()
        return float(loss.detach()) * labels.shape[1]  # the mean over tokens; ours is the sum over a row's

    return step


def our_steps(model: Any, run: TuneRun, form: TuneForm, precision: str) -> Step:
    """Return a function that takes a step as stage `tune` does."""
    cpu = torch.device("cpu")
    trainee = prepared(copy.deepcopy(model), cpu, precision, Ranks(), recompute=False, reshard=False)
    tuner = FineTuner(trainee, run, LABELS, form, form.batch_size, Ranks())

    def step() -> float:
        tuner.descend()
        return float(tuner.state()["losses"][-1])

    return step


def ways(shape: str, batch: int, steps: int) -> Iterator[tuple[str, str, Step]]:
    """Yield the name of each way, its precision, and its step."""
    torch.manual_seed(0)
    config = T5Config(vocab_size=VOCABULARY, decoder_start_token_id=0, pad_token_id=0, **SHAPES[shape])
    model = T5ForConditionalGeneration(config)
    run, form = run_of(batch, steps)
    for precision in ("float32", "bfloat16") if bfloat16_units(torch.device("cpu")) else ("float32",):
        yield PLAIN, precision, plain_steps(model, run, form, precision)
        yield OURS, precision, our_steps(model, run, form, precision)


def report(shape: str, batch: int, steps: int, record: Record) -> None:
    """Take the steps in turn, print the medians and keep every sample."""
    print(f"{shape}: steps of {batch} examples", flush=True)
    taken: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    every = list(ways(shape, batch, steps))
    for number in range(steps + 1):
        for name, precision, step in every:
            clock, processor = time.perf_counter(), time.process_time()
            loss = step()
            sample = (time.perf_counter() - clock, time.process_time() - processor, loss)
            taken.setdefault((name, precision), []).append(sample)
            print(f"  step {number}: {name}, {precision} {sample[0]:.2f} s, loss {loss:.4f}", flush=True)
    for (name, precision), samples in taken.items():
        clocks, processor, losses = map(list, zip(*samples, strict=True))
        plain = taken[PLAIN, precision]
        apart = max(abs(loss / other[2] - 1) for loss, other in zip(losses, plain, strict=True))
        size = {"shape": shape, "batch": batch, "threads": torch.get_num_threads(), "precision": precision}
        record.add(way=name, **size, seconds=clocks[1:], cpu_seconds=processor[1:], largest_difference=apart)
        faster = [statistics.median(one[which] for one in plain[1:]) / statistics.median(own[1:])
                  for which, own in enumerate((clocks, processor))]  # fmt: skip
        print(f"  {name:11}{precision:9} {statistics.median(clocks[1:]):6.2f} s a step, {faster[0]:.2f} × as fast as "
              f"the plain loop by the clock, {faster[1]:.2f} × by processor time (aim {AIM:g}); losses differ by "
              f"at most {apart:.0e}", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="quickstart")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=5, help="besides the first, which is not counted")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    record = Record(__file__, parser, options)
    report(options.shape, options.batch, options.steps, record)
    record.write()


if __name__ == "__main__":
    main()
