"""Compare prediction with a prompt of 100 tokens with the same prompt in PEFT: `python benchmarks/bench_predict.py`.

Both score every label of every example with teacher forcing, the same weights and the same token ids. PEFT's model is
loaded from an adapter that `storage.prompts.peft_adapter` wrote. It is used in two ways: the obvious one (batches of 32
in their order, padded to the longest, one forward pass for each label), and the best that its forward pass allows
(sorted by length, one pass for all labels of one token). Ours is also run in bfloat16, if the processor has units for
it. All are interleaved in one process. Medians over
`--passes` of the examples per second are printed, by the clock and by processor time, with the differences of the
log-probabilities. The weights are random, in the shape of the quickstart's backbone, unless `--backbone` names a
folder. On a shared machine, `--threads 1` and the ratios of processor time are more reliable than the clock.
"""

import argparse
import copy
import os
import statistics
import sys
import tempfile
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
from peft import PeftModel  # noqa: E402
from records import Record  # noqa: E402
from torch import Tensor  # noqa: E402
from transformers import AutoModelForSeq2SeqLM, T5Config, T5ForConditionalGeneration  # noqa: E402

from model.prompt.passes import Passes  # noqa: E402
from model.prompt.prediction import label_scores  # noqa: E402
from model.t5.backbone import backbone_of  # noqa: E402
from model.t5.precision import bfloat16_units  # noqa: E402
from model.text.tokenized_tasks import Ids  # noqa: E402
from storage.prompts.peft_adapter import Adapter, write_adapter  # noqa: E402

SHAPE = {"d_model": 512, "d_kv": 64, "num_heads": 6, "d_ff": 1024, "num_layers": 8, "feed_forward_proj": "gated-gelu"}
VOCABULARY, PROMPT, BATCH = 32_128, 100, 32
SENTINEL = VOCABULARY - 29
LABELS = {
    "2 labels of one token": ((4273,), (150,)),
    "6 labels of one token, sentinel": tuple((SENTINEL, word) for word in (4273, 150, 2087, 300, 400, 500)),
    "3 labels of 1 to 3 tokens": ((4273,), (150, 7), (2087, 8, 9)),
}
LENGTHS = {"short texts": (10, 45), "long texts": (30, 256)}

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """The same prompt in PEFT's model and in ours, with the inputs and labels; `low` is ours in bfloat16."""

    theirs: Any
    ours: Passes
    prompts: Tensor
    inputs: list[Ids]
    labels: list[Ids]
    low: Passes


def problem(folder: Path | None, examples: int, lengths: tuple[int, int], labels: Sequence[Sequence[int]]) -> Problem:
    torch.manual_seed(0)
    if folder is None:
        config = T5Config(vocab_size=VOCABULARY, decoder_start_token_id=0, tie_word_embeddings=False, **SHAPE)
        models = [T5ForConditionalGeneration(config).eval()]
        models.append(T5ForConditionalGeneration(config).eval())
        models[1].load_state_dict(models[0].state_dict())
    else:
        models = [AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval() for _ in range(2)]
    prompt = models[0].get_input_embeddings().weight[torch.randint(VOCABULARY - 200, (PROMPT,))].detach().clone()
    with tempfile.TemporaryDirectory() as place:
        write_adapter(Path(place), Adapter(prompt.numpy(), "random"), "")
        theirs = PeftModel.from_pretrained(models[0], place).eval()
    chance = np.random.default_rng(0)
    inputs = [
        chance.integers(3, VOCABULARY - 200, chance.integers(*lengths, endpoint=True), dtype=np.int32)
        for _ in range(examples)
    ]
    ids = [np.array(label, np.int32) for label in labels]
    low = Passes.for_tuning(backbone_of(copy.deepcopy(models[1]).to(torch.bfloat16)))
    return Problem(theirs, Passes.for_tuning(backbone_of(models[1])), prompt[None], inputs, ids, low)


def our_scores(case: Problem) -> Scores:
    owners = [0] * len(case.inputs)
    return label_scores(case.ours, case.prompts, owners, case.inputs, case.labels).log_probabilities


def plain_scores(case: Problem) -> Scores:
    """Return the scores of PEFT used in the obvious way: a forward pass for each label."""
    scores = np.empty((len(case.inputs), len(case.labels)))
    for start in range(0, len(case.inputs), BATCH):
        inputs = _padded(case.inputs[start : start + BATCH])
        for number, label in enumerate(case.labels):
            logits = _logits(case, inputs, label)
            scores[start : start + BATCH, number] = _score(logits, label)
    return scores


def sorted_scores(case: Problem) -> Scores:
    """Return the scores of PEFT used in the best way: sorted by length, one pass for equal decoder inputs."""
    scores = np.empty((len(case.inputs), len(case.labels)))
    order = sorted(range(len(case.inputs)), key=lambda number: -len(case.inputs[number]))
    for start in range(0, len(order), BATCH):
        places = order[start : start + BATCH]
        inputs = _padded([case.inputs[place] for place in places])
        read: dict[tuple[int, ...], Tensor] = {}
        for number, label in enumerate(case.labels):
            before = tuple(label[:-1].tolist())
            if before not in read:
                read[before] = _logits(case, inputs, label)
            scores[places, number] = _score(read[before], label)
    return scores


def _padded(rows: Sequence[Ids]) -> dict[str, Tensor]:
    longest = max(map(len, rows))
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    mask = torch.zeros(len(rows), longest, dtype=torch.long)
    for number, row in enumerate(rows):
        ids[number, : len(row)], mask[number, : len(row)] = torch.from_numpy(row), 1
    return {"input_ids": ids, "attention_mask": mask}


def _logits(case: Problem, inputs: dict[str, Tensor], label: Ids) -> Tensor:
    read = torch.tensor([[0, *label[:-1].tolist()]] * len(inputs["input_ids"]))
    with torch.no_grad():
        logits: Tensor = case.theirs(**inputs, decoder_input_ids=read, use_cache=False).logits
    return logits


def _score(logits: Tensor, label: Ids) -> NDArray[np.float32]:
    scores: NDArray[np.float32] = logits.log_softmax(-1)[:, range(len(label)), label.tolist()].sum(1).numpy()
    return scores


WAYS: dict[str, Callable[[Problem], Scores]] = {
    "PEFT, a pass for each label": plain_scores,
    "PEFT, sorted, passes shared": sorted_scores,
    "ours": our_scores,
}
PLAIN, SORTED, OURS = WAYS
LOW, PRECISION_AIM = "ours, bfloat16", 1.6
if bfloat16_units(torch.device("cpu")):
    WAYS[LOW] = lambda case: our_scores(replace(case, ours=case.low))


def report(folder: Path | None, texts: str, words: str, examples: int, passes: int, record: Record) -> None:
    case = problem(folder, examples, LENGTHS[texts], LABELS[words])
    low, high = LENGTHS[texts]
    print(f"{texts} ({low} to {high} tokens), {words}: {examples} examples", flush=True)
    few = replace(case, inputs=case.inputs[:BATCH])
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
    results: dict[str, Scores] = {}
    for way in WAYS.values():
        way(few)  # a warm-up, which is not timed
    for _ in range(passes):
        for name, way in WAYS.items():
            start, processor = time.perf_counter(), time.process_time()
            results[name] = way(case)
            taken[name].append((time.perf_counter() - start, time.process_time() - processor))
    clock, processor_time = (
        {name: statistics.median(run[which] for run in runs) for name, runs in taken.items()} for which in (0, 1)
    )
    for name in WAYS:
        print(
            f"  {name:28} {examples / clock[name]:7.1f} examples/s; {clock[PLAIN] / clock[name]:5.2f} × as fast by the "
            f"clock, {processor_time[PLAIN] / processor_time[name]:5.2f} × by processor time"
        )
    print(f"  ours against PEFT sorted: {processor_time[SORTED] / processor_time[OURS]:.2f} × by processor time")
    for name, runs in taken.items():
        clocks, cpu = map(list, zip(*runs, strict=True))
        size = {"texts": texts, "labels": words, "examples": examples, "threads": torch.get_num_threads()}
        apart = float(np.abs(results[name] - results[OURS]).max())
        record.add(way=name, **size, seconds=clocks, cpu_seconds=cpu, largest_difference=apart)
    if LOW in WAYS:
        faster = processor_time[OURS] / processor_time[LOW]
        met = "met" if faster >= PRECISION_AIM else "missed"
        print(f"  bfloat16 against float32: {faster:.2f} × by processor time, aim {PRECISION_AIM}: {met}")
        _print_differences(results[LOW], results[OURS])
    for name in (PLAIN, SORTED):
        same = (results[name].argmax(1) == results[OURS].argmax(1)).mean()
        apart = np.abs(results[name] - results[OURS]).max()
        print(f"  equal predictions with {name}: {same:.1%}, log-probabilities at most {apart:.0e} apart", flush=True)


def _print_differences(low: Scores, wide: Scores) -> None:
    """Print how many predictions differ between the precisions, and how sure float32 was of those."""
    first, second = np.sort(wide, axis=1)[:, [-1, -2]].T
    differs = low.argmax(1) != wide.argmax(1)
    margin = f", where the margin is at most {(first - second)[differs].max():.3f}" if differs.any() else ""
    print(f"  bfloat16 and float32 predict differently in {differs.mean():.1%} of the rows{margin}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", type=Path, help="a transformers folder, instead of random weights")
    parser.add_argument("--texts", choices=LENGTHS, action="append", help="only these (may be repeated)")
    parser.add_argument("--labels", choices=LABELS, action="append", help="only these (may be repeated)")
    parser.add_argument("--examples", type=int, default=256)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--quick", action="store_true", help="32 examples, short texts and two labels only")
    options = parser.parse_args()
    record = Record(__file__, parser, options)
    if options.quick:
        options.examples, options.texts, options.labels = 32, ["short texts"], [next(iter(LABELS))]
    torch.set_num_threads(options.threads)
    print(f"{os.cpu_count()} cores, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}")
    for texts in options.texts or LENGTHS:
        for words in options.labels or LABELS:
            report(options.backbone, texts, words, options.examples, options.passes, record)
    record.write()


if __name__ == "__main__":
    main()
