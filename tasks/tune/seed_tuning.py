"""Tuning of a prompt on one dataset by one method: all seeds and learning rates together, resumable at any step."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from model.prompt.passes import Passes
from model.tuning.runs import Tuned, TuneForm, TuneRun, best_rate
from model.tuning.tuner import Tuner, grouped
from storage.counts import speed
from storage.errors import InputError, first_line
from storage.prompts.checkpoints import Checkpoint, last_checkpoint, put_aside, write_checkpoint
from storage.prompts.prompt_artifact import theta_hash
from tasks.labeled.dataset import FewShotSplit, LabeledDataset, few_shot_split
from tasks.tune.cost import Cost, PeakMemory
from tasks.tune.initialization import TuningStart
from tasks.tune.plan import Tuning
from tasks.tune.tokenized_form import TokenizedForm

TELL_SECONDS = 0.5

Progress = Callable[[float, str], None]
"""Takes the share that is done and a remark."""


@dataclass(frozen=True)
class Setup:
    """Everything that the runs of a tuning share."""

    tuning: Tuning
    dataset: LabeledDataset
    start: TuningStart
    passes: Passes
    words: TokenizedForm

    @property
    def name(self) -> str:
        """The name in messages."""
        return f"{self.tuning.dataset}/{self.tuning.method}"


@dataclass(frozen=True)
class Work:
    """The folder of checkpoints.

    `key` names the tuning and everything it depends on; checkpoints of other keys are never resumed.
    """

    folder: Path
    key: str
    seconds: float


@dataclass(frozen=True)
class SeedTuned:
    """The results of one seed: one for each learning rate, of which validation chooses one.

    Attributes:
        start_hash: the hash of the numbers that training started from.
        cost: the seed's share of the time, and the memory of all seeds together.
    """

    seed: int
    start_hash: str
    split: FewShotSplit
    results: tuple[Tuned, ...]
    cost: Cost

    @property
    def chosen(self) -> int:
        """The number of the chosen learning rate."""
        return best_rate(self.results)


def tune_seeds(
    setup: Setup, seeds: Sequence[int], work: Work, progress: Progress, say: Callable[[str], None]
) -> list[SeedTuned]:
    """Tune every (seed, learning rate) pair together through the backbone, from the last checkpoint if there is one."""
    tuning, backbone, words = setup.tuning, setup.passes.backbone, setup.words
    regularizer = setup.start.regularizer(backbone)
    splits = [few_shot_split(setup.dataset, tuning.shots, seed) for seed in seeds]
    starts = [setup.start.prompt(backbone, seed) for seed in seeds]
    network = setup.start.network()
    runs = [
        TuneRun(theta, rate, seed, train, validation, regularizer, network)
        for seed, theta, split in zip(seeds, starts, splits, strict=True)
        for train, validation in [(words.examples(split.train), words.examples(split.validation))]
        for rate in tuning.learning_rates
    ]
    results: list[Tuned] = []
    memory, seconds = PeakMemory(backbone.device), 0.0
    groups = grouped(runs)
    for number, group in enumerate(groups):
        tuner = Tuner(
            setup.passes, group, words.label_ids, TuneForm(tuning.batch_size, tuning.epochs, tuning.evaluate_every), say
        )
        place = Work(work.folder / str(number), work.key, work.seconds)
        seconds += _to_the_end(tuner, setup.name, place, _part(progress, number, groups), say)
        results += tuner.results()
    rates, cost = len(tuning.learning_rates), Cost(starts[0].numel(), seconds / len(seeds), memory.peak())
    return [
        SeedTuned(
            seed, theta_hash(theta.cpu().numpy()), split, tuple(results[place * rates : (place + 1) * rates]), cost
        )
        for place, (seed, theta, split) in enumerate(zip(seeds, starts, splits, strict=True))
    ]


def _part(progress: Progress, number: int, groups: Sequence[object]) -> Progress:
    return lambda share, note: progress((number + share) / len(groups), note)


def _to_the_end(tuner: Tuner, name: str, work: Work, progress: Progress, say: Callable[[str], None]) -> float:
    """Tune to the end; return the seconds that it took, with those before an interruption."""
    spent = _resume(tuner, name, work, say)
    began, saved, shown, before = time.monotonic(), time.monotonic(), 0.0, tuner.step

    def after_step() -> None:
        nonlocal saved, shown
        now = time.monotonic()
        if now - saved >= work.seconds or tuner.ended:
            _save(tuner, work, spent + now - began)
            saved = time.monotonic()
        if now - shown >= TELL_SECONDS:
            shown = now
            rate = (tuner.step - before) / max(now - began, 1e-9)
            note = f"{name}: step {tuner.step} of {tuner.steps}, {speed(rate, 'steps')}"
            progress(tuner.step / max(tuner.steps, 1), note)

    try:
        tuner.tune(after_step)
    except MemoryError as error:
        raise InputError(
            f"{name}: memory ran out with a few rows at a time ({first_line(error)}): lower tune.max_length or "
            "metatrain.prompt_tokens, or take a larger device"
        ) from error
    return spent + time.monotonic() - began


def _save(tuner: Tuner, work: Work, seconds: float) -> None:
    arrays, rest = tuner.state()
    state = rest | {"key": work.key, "threads": torch.get_num_threads(), "seconds": seconds}
    write_checkpoint(work.folder, Checkpoint(tuner.step, arrays, state))


def _resume(tuner: Tuner, name: str, work: Work, say: Callable[[str], None]) -> float:
    """Go on from the last checkpoint, if there is one; return the seconds that were spent before."""
    checkpoint, damaged = last_checkpoint(work.folder)
    for path in damaged:
        say(f"{name}: warning: {path} is damaged and is skipped")
    put_aside(damaged)
    if checkpoint is None or checkpoint.state["key"] != work.key:
        return 0.0
    tuner.resume(checkpoint.arrays, checkpoint.state)
    threads = min(checkpoint.state["threads"], len(os.sched_getaffinity(0)))
    torch.set_num_threads(threads)  # the same sums, bit for bit, if there are as many cores
    say(f"{name}: continuing from step {checkpoint.step}")
    return float(checkpoint.state.get("seconds", 0.0))
