"""Runs that train weights: the seeds and learning rates of a job one after the other, resumable at any step."""

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import orjson
import torch
from torch import Tensor

from model.device import device
from model.meta.ranks import Ranks
from model.prompt.memory import is_out_of_memory
from model.tuning.fine_tuner import FineTuner
from model.tuning.runs import Point, Tuned, TuneForm, TuneRun, best_rate
from model.tuning.trainee import Trainee, whole
from model.tuning.weight_checkpoints import fill, read_state, write_weights
from storage.atomic import link_or_copy, remove, write_bytes
from storage.counts import speed
from storage.errors import InputError, first_line
from tasks.labeled.dataset import few_shot_split
from tasks.stage.contract import Record
from tasks.tune.cost import Cost, PeakMemory
from tasks.tune.method_module import TuningJob
from tasks.tune.seed_files import PROMPT_FOLDER, tuned_about, write_curves
from tasks.tune.seed_tuning import TELL_SECONDS, SeedTuned

_RATES, _RECORD, _RESULTS = "rates.json", "record.json", "results"


class Trained(Protocol):
    """The weights that a method trains, and the form in which its result is kept."""

    @property
    def job(self) -> TuningJob:
        """The job."""

    @property
    def ranks(self) -> Ranks:
        """The processes that train together."""

    @property
    def micro_batch(self) -> int:
        """The most rows of one pass."""

    @property
    def in_less_memory(self) -> str:
        """The parameters that a user can change if memory runs out, in words."""

    def trainee(self, seed: int, /) -> Trainee:
        """Return the model with the weights of the start."""

    def write(self, folder: Path, tuner: FineTuner, about: Record, digest: str) -> None:
        """Write the result of a seed, whose best weights the tuner holds; every rank calls it."""


@dataclass(frozen=True)
class _Rate:
    """A finished learning rate: its result, the hash of its best weights, and its time."""

    result: Tuned
    digest: str
    seconds: float
    memory: int | None
    parameters: int

    def to_json(self) -> Record:
        result = self.result
        return {
            "best": asdict(result.best),
            "curve": [asdict(point) for point in result.curve],
            "steps": result.steps,
            "status": result.status,
            "digest": self.digest,
            "seconds": self.seconds,
            "memory": self.memory,
            "parameters": self.parameters,
        }

    @classmethod
    def from_json(cls, values: Record) -> "_Rate":
        curve = tuple(Point(**point) for point in values["curve"])
        result = Tuned(torch.empty(0), Point(**values["best"]), curve, values["steps"], values["status"])
        return cls(result, values["digest"], values["seconds"], values["memory"], values["parameters"])


def tuned_seeds(job: TuningJob, trained: Trained) -> dict[str, Record]:
    """Tune the seeds, write the results of each, and return a record for each; a finished seed is not tuned again."""
    records = {}
    for place, seed in enumerate(job.seeds):
        run = _SeedRun(trained, seed, place)
        record = trained.ranks.same(_read(run.work / _RECORD))
        records[str(seed)] = record if record is not None else run.tune()
        if trained.ranks.first:
            for path in sorted((run.work / _RESULTS).rglob("*")):
                if path.is_file():
                    link_or_copy(path, job.folder / str(seed) / path.relative_to(run.work / _RESULTS))
    return records


def _read(path: Path) -> Any:
    return orjson.loads(path.read_bytes()) if path.is_file() else None


class _SeedRun:
    """The runs of one seed.

    The folder `work` has the finished rates (`rates.json`), the weights of the best of them (`best-RATE`), and one
    checkpoint of the rate under way (`step-RATE-STEP`); all weights are removed when the seed is finished.
    """

    def __init__(self, trained: Trained, seed: int, place: int) -> None:
        self.trained, self.job, self.ranks = trained, trained.job, trained.ranks
        self.seed, self.place = seed, place
        self.work = self.job.work.folder / str(seed)
        self.name = f"{self.job.tuning.dataset}/{self.job.tuning.method}"
        self._say: Callable[[str], None] = self.job.say if self.ranks.first else lambda _line: None

    def tune(self) -> Record:
        """Tune every rate that is not finished, write the results of the best and return the record."""
        rates = [_Rate.from_json(values) for values in self.ranks.same(_read(self.work / _RATES)) or []]
        tuner = None
        for number in range(len(rates), len(self.job.tuning.learning_rates)):
            tuner = None  # the memory of the rate before
            tuner, rate = self._tune_rate(number)
            rates.append(rate)
            self._note(rates, tuner)
        return self._finish(rates, tuner or self._tuner(0))

    def _tuner(self, number: int) -> FineTuner:
        job, words = self.job, self.job.words
        split = few_shot_split(job.dataset, job.tuning.shots, self.seed)
        train, validation = words.examples(split.train), words.examples(split.validation)
        run = TuneRun(torch.empty(0), job.tuning.learning_rates[number], self.seed, train, validation)
        form = TuneForm(job.tuning.batch_size, job.tuning.epochs, job.tuning.evaluate_every)
        trainee = self.trained.trainee(self.seed)
        return FineTuner(trainee, run, words.label_ids, form, self.trained.micro_batch, self.ranks)

    def _tune_rate(self, number: int) -> tuple[FineTuner, _Rate]:
        memory = PeakMemory(device())
        tuner = self._tuner(number)
        spent = self._resume(tuner, number)
        began, saved, shown, before = time.monotonic(), time.monotonic(), 0.0, tuner.step

        def after_step() -> None:
            nonlocal saved, shown
            now = time.monotonic()
            if self.ranks.same(now - saved >= self.job.work.seconds):
                self._save(tuner, number, spent + now - began)
                saved = time.monotonic()
            if self.ranks.first and now - shown >= TELL_SECONDS:
                shown = now
                self._tell(tuner, number, (tuner.step - before) / max(now - began, 1e-9))

        try:
            tuner.tune(after_step)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise InputError(
                f"{self.name}: memory ran out ({first_line(error)}): {self.trained.in_less_memory}, or take a larger "
                "device"
            ) from error
        digest = _digest(tuner.best_weights)
        seconds = spent + time.monotonic() - began
        return tuner, _Rate(tuner.result(), digest, seconds, memory.peak(), tuner.parameters)

    def _tell(self, tuner: FineTuner, number: int, rate: float) -> None:
        rates = len(self.job.tuning.learning_rates)
        share = (self.place * rates + number + tuner.step / max(tuner.steps, 1)) / (rates * len(self.job.seeds))
        where = f"seed {self.seed}, learning rate {self.job.tuning.learning_rates[number]:g}"
        self.job.progress(share, f"{self.name}: {where}: step {tuner.step} of {tuner.steps}, {speed(rate, 'steps')}")

    def _save(self, tuner: FineTuner, number: int, seconds: float) -> None:
        state = tuner.state() | {
            "key": self.job.work.key,
            "threads": torch.get_num_threads(),
            "seconds": seconds,
            "ranks": self.ranks.count,
        }
        folder = self.work / f"step-{number}-{tuner.step:09d}"
        write_weights(folder, tuner.tensors(), state, self.ranks)
        self._drop([path for path in self._checkpoints(number) if path != folder])

    def _checkpoints(self, number: int) -> list[Path]:
        """Return the checkpoints of a rate, the newest first."""
        return sorted(self.work.glob(f"step-{number}-*"), reverse=True)

    def _resume(self, tuner: FineTuner, number: int) -> float:
        """Go on from the last checkpoint, if there is one; return the seconds that were spent before."""
        for folder in self.ranks.same(self._checkpoints(number)):
            state = read_state(folder)
            if state is None or state["key"] != self.job.work.key:
                continue
            if not fill(folder, tuner.tensors(), self.ranks):
                raise InputError(f"{folder}: the checkpoint is damaged: remove this folder, then run again")
            tuner.resume(state)
            if state["ranks"] == self.ranks.count:  # the same sums, bit for bit, if there are as many cores
                torch.set_num_threads(min(state["threads"], len(os.sched_getaffinity(0))))
            rate = self.job.tuning.learning_rates[number]
            self._say(f"{self.name}: continuing from step {tuner.step} of seed {self.seed}, learning rate {rate:g}")
            return float(state["seconds"])
        return 0.0

    def _note(self, rates: list[_Rate], tuner: FineTuner) -> None:
        """Write that a rate is finished, with its weights if it is the best; the checkpoints are then not needed."""
        last = len(rates) - 1
        if best_rate([rate.result for rate in rates]) == last:
            write_weights(self.work / f"best-{last}", tuner.best_weights, {}, self.ranks)
        if self.ranks.first:
            write_bytes(self.work / _RATES, orjson.dumps([rate.to_json() for rate in rates]))
        best = self.work / f"best-{best_rate([rate.result for rate in rates])}"
        self._drop([*self._checkpoints(last), *(path for path in self.work.glob("best-*") if path != best)])

    def _finish(self, rates: list[_Rate], tuner: FineTuner) -> Record:
        tuning, dataset = self.job.tuning, self.job.dataset
        results = tuple(rate.result for rate in rates)
        cost = Cost(
            rates[0].parameters,
            sum(rate.seconds for rate in rates),
            max((rate.memory for rate in rates if rate.memory is not None), default=None),
        )
        split = few_shot_split(dataset, tuning.shots, self.seed)
        tuned = SeedTuned(self.seed, self.job.backbone["hash"], split, results, cost)
        if not fill(self.work / f"best-{tuned.chosen}", tuner.best_weights, self.ranks):
            raise InputError(f"{self.work}: the best weights are damaged: remove this folder, then run again")
        tuner.take_best()
        folder, digests = self.work / _RESULTS, [rate.digest for rate in rates]
        about = tuned_about(tuning, dataset, tuned, self.job.backbone)
        self.trained.write(folder / PROMPT_FOLDER, tuner, about, digests[tuned.chosen])
        record = None
        if self.ranks.first:
            record = write_curves(folder, tuning, dataset, tuned, digests)
            write_bytes(self.work / _RECORD, orjson.dumps(record))
        self._drop(self.work.glob("best-*"))
        shared: Record = self.ranks.same(record)
        return shared

    def _drop(self, folders: Any) -> None:
        for folder in [*folders] if self.ranks.first else []:
            remove(folder)


def _digest(weights: dict[str, Tensor]) -> str:
    """Return the SHA-256 of weights, with their names; every rank must call it."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode() + whole(weights[name]).contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
