"""The contract of a method's module, which the table of methods names and which defines `tune` and `evaluate`.

A method that trains nothing needs no `tune`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from model.prompt.passes import Passes
from tasks.labeled.dataset import LabeledDataset, LabeledExample
from tasks.methods import METHODS
from tasks.stage.contract import Record
from tasks.tune.evaluation import Evaluated
from tasks.tune.initialization import Start
from tasks.tune.plan import Tuning
from tasks.tune.seed_tuning import Progress, Work
from tasks.tune.tokenized_form import TokenizedForm


@dataclass(frozen=True)
class TestSet:
    """Examples to test on, and their dataset's template and label words in tokens."""

    examples: Sequence[LabeledExample]
    words: TokenizedForm


@dataclass(frozen=True)
class Embedder:
    """The sentence embedder: its folder, and the hash of its files."""

    folder: Path
    hash: str


@dataclass(frozen=True)
class TuningJob:
    """Seeds of one dataset that one method tunes together.

    Attributes:
        words: the dataset's template and label words in tokens.
        load: loads the frozen backbone on the device to be used, for `passes`.
        model: the folder of the backbone.
        prompts: the folder of the prompts that `metatrain` learned.
        backbone: source and hash of the backbone.
        work: the folder of the checkpoints.
        folder: the folder of the results, with a folder SEED for each seed.
        progress: takes the share that is done and a remark.
        say: prints a line.
        start: the start that a user gave; None for the method's own.
        start_name: the name of the start in messages.
        tests: the test sets, for a method whose result is too large to be kept for them; None if it has to be kept.
        embedder: the sentence embedder, for a method that uses it.
        shipped: the folder of the shipped prompt, for a method that starts from it.
    """

    tuning: Tuning
    seeds: Sequence[int]
    dataset: LabeledDataset
    words: TokenizedForm
    load: Callable[[], Passes]
    model: Path
    prompts: Path
    backbone: Record
    work: Work
    folder: Path
    progress: Progress
    say: Callable[[str], None]
    start: Start | None = None
    start_name: str = ""
    tests: Sequence[TestSet] | None = None
    embedder: Embedder | None = None
    shipped: Path | None = None

    @cached_property
    def passes(self) -> Passes:
        """Passes of the frozen backbone, on the device to be used."""
        return self.load()


@dataclass(frozen=True)
class EvaluationJob:
    """Examples of one dataset that one method labels.

    Attributes:
        method: the name of the method.
        shots: number of labeled examples of each label.
        seed: seed of their draw; None for a method that uses none.
        source: the dataset that demonstrations come from; None for a method without demonstrations.
        room: number of positions of prompt and input together, in tokens.
        load: loads the frozen backbone on the device to be used, for `passes`.
        model: the folder of the backbone.
        tuned: the folder `prompt` in the results of the seed; None for a method that trains nothing.
        embedder: the sentence embedder, for a method that uses it.
    """

    method: str
    shots: int
    seed: int | None
    examples: Sequence[LabeledExample]
    words: TokenizedForm
    load: Callable[[], Passes]
    model: Path
    source: LabeledDataset | None
    room: int
    tuned: Path | None
    embedder: Embedder | None = None

    @cached_property
    def passes(self) -> Passes:
        """Passes of the frozen backbone, on the device to be used."""
        return self.load()


class MethodModule(Protocol):
    """A module that the table of methods names."""

    def tune(self, job: TuningJob) -> dict[str, Record]:
        """Tune the seeds together, write the results of each and return its record (`tasks.tune.results` reads it)."""

    def evaluate(self, job: EvaluationJob) -> Evaluated:
        """Label the examples."""


class SpreadModule(MethodModule, Protocol):
    """The module of a method that can use several processes together."""

    def ranks_for(self, payload: Record) -> int:
        """Return the number of processes for a shard."""

    def tune_on_ranks(self, payload: Record, folder: Path, ranks: int) -> dict[str, Record]:
        """Tune the seeds of a shard as `tune` does, on several processes."""


def spread_module(name: str) -> SpreadModule | None:
    """Return the module of a method if it can use several processes, otherwise None."""
    module = method_module(name)
    return cast("SpreadModule", module) if hasattr(module, "tune_on_ranks") else None


def method_module(name: str) -> MethodModule:
    """Return the module of a method."""
    return named_module(METHODS[name].module)


def named_module(name: str) -> MethodModule:
    """Return the module that a row of the table names."""
    return cast("MethodModule", import_module(name))
