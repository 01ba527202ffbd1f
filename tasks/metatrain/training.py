"""The training loop of one variant, from its first step or its last checkpoint to its best prompt."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch

from model.device import device, make_deterministic
from model.meta.curriculum import Curriculum
from model.meta.meta_step import MixedTask, StepForm
from model.meta.objectives import MetaObjective, Objective, PlainObjective
from model.meta.ranks import Ranks
from model.meta.trainer import Arrays, Best, HeldOut, NotFiniteError, PlainStart, Rates, Trainer
from model.prompt.initial_prompt import initial_prompt
from model.prompt.passes import Passes
from model.prompt.regularizer import GradientRegularizer
from model.prompt.rows import Centroids
from model.t5.backbone import Backbone, load_backbone
from model.text.templates import UNIFIED_TEMPLATES, Form
from model.text.tokenization import TemplateTokenizer
from storage.counts import speed
from storage.errors import InputError, TransientError, first_line
from storage.prompts.checkpoints import Checkpoint, last_checkpoint, put_aside, write_checkpoint
from storage.tables.training_log import TrainingLog
from storage.vectors.centroids import read_centroids
from tasks.metatrain.task_order import MIXING, Partner, Place, Share
from tasks.metatrain.task_reader import TaskBatch, TaskReader
from tasks.metatrain.variants import Training
from tasks.stage.contract import Record

TELL_SECONDS = 0.5
Progress = Callable[[int, str], None]
"""Takes the steps done and a remark."""


@dataclass(frozen=True)
class Job:
    """A training and the places of its data; plain values, so that ranks receive it as JSON.

    Attributes:
        key: name of the training and everything it depends on; checkpoints of other keys are never resumed.
        work: folder of the checkpoints and the log during the training.
        threads: number of threads of this process, if it computes on a CPU.
    """

    training: Training
    seed: int
    key: str
    tasks: Path
    backbone: Path
    centroids: Path
    work: Path
    threads: int
    checkpoint_steps: int
    checkpoint_seconds: float
    chunk_tokens: int | None
    gradient_checkpointing: bool

    def to_json(self) -> Record:
        """Return the job as JSON."""
        values = {name: str(value) if isinstance(value, Path) else value for name, value in vars(self).items()}
        return values | {"training": self.training.to_json()}

    @classmethod
    def from_json(cls, values: Record) -> "Job":
        """Return the job that `to_json` wrote."""
        paths = {name: Path(values[name]) for name in ("tasks", "backbone", "centroids", "work")}
        return cls(**values | paths | {"training": Training.from_json(values["training"])})


@dataclass(frozen=True)
class Trained:
    """The result of a training: the best θ and φ with their loss, and the loss of the initial prompt."""

    arrays: Arrays
    best: Best
    start_loss: float
    steps: int

    def to_json(self) -> Record:
        """Return everything except the arrays, as JSON."""
        return {"best": asdict(self.best), "start_loss": self.start_loss, "steps": self.steps}

    @classmethod
    def from_json(cls, arrays: Arrays, values: Record) -> "Trained":
        """Return the result that `to_json` wrote, with its arrays."""
        return cls(arrays, Best(**values["best"]), values["start_loss"], values["steps"])


@dataclass
class Run:
    """A training under way."""

    job: Job
    ranks: Ranks
    trainer: Trainer
    reader: TaskReader
    held_out: TaskReader
    log: TrainingLog
    progress: Progress
    say: Callable[[str], None]
    reader_state: dict[str, Any] | None = None
    start_loss: float = float("nan")
    saved: float = field(default_factory=time.monotonic)
    shown: float = field(default_factory=time.monotonic)
    shown_step: int = 0

    @property
    def training(self) -> Training:
        """The settings of the training."""
        return self.job.training


def train(job: Job, ranks: Ranks, progress: Progress, say: Callable[[str], None]) -> Trained:
    """Train from the last checkpoint, if there is one, until the last step or until patience runs out."""
    torch.set_num_threads(job.threads)
    with TrainingLog(job.work if ranks.first else None) as log:
        run = _prepared(job, ranks, log, progress, say)
        _resume(run)
        if run.trainer.step == 0:
            start = _held_out(run)
            run.start_loss = start.loss
            run.log.validated(0, start.loss, [one.to_json() for one in start.kinds], best=False)
        with run.reader.stream(run.reader_state) as stream:
            while not _ended(run):
                _step(run, next(stream))
                if run.trainer.step % run.training.validate_every == 0 or run.trainer.step == run.training.steps:
                    _validate(run)
                if _checkpoint_due(run):
                    _save(run)
    best = run.trainer.best
    assert best is not None  # the last step is always validated
    if ranks.first and not best.loss < run.start_loss:
        say(f"{run.training.variant}: no held-out loss was below that of the initial prompt ({run.start_loss:.4f})")
    return Trained(run.trainer.best_arrays, best, run.start_loss, run.trainer.step)


def _ended(run: Run) -> bool:
    patience = run.training.patience
    return run.trainer.step >= run.training.steps or (patience is not None and run.trainer.without_gain >= patience)


def _step(run: Run, batch: TaskBatch) -> None:
    with _told_well(run):
        record = run.trainer.train(_mixed(run, batch), batch.size)
    run.reader_state = batch.state
    if run.ranks.first:
        run.log.step(record)
        now = time.monotonic()
        if now - run.shown >= TELL_SECONDS:
            rate = (run.trainer.step - run.shown_step) / max(now - run.shown, 1e-9)
            run.shown, run.shown_step = now, run.trainer.step
            note = f"{run.training.variant}: loss {record['query_loss']:.3f}, {speed(rate, 'steps')}"
            run.progress(run.trainer.step, note)


@contextmanager
def _told_well(run: Run) -> Iterator[None]:
    """Turn errors of numbers that are not finite and of memory into an InputError of one line that says what to do."""
    try:
        yield
    except NotFiniteError as error:
        last, _ = last_checkpoint(run.job.work)
        good = f"the last good checkpoint is of step {last.step}" if last else "there is no checkpoint yet"
        raise InputError(
            f"{run.training.variant}: {error}; {good} ({run.job.work}): lower metatrain.inner.learning_rate or "
            "metatrain.outer_learning_rate"
        ) from error
    except MemoryError as error:
        raise InputError(
            f"{run.training.variant}: memory ran out with a few rows at a time ({first_line(error)}): lower "
            "metatrain.max_length or prompt_tokens, set metatrain.gradient_checkpointing, or take a larger device"
        ) from error


def _mixed(run: Run, batch: TaskBatch) -> list[MixedTask]:
    """Return the batch's tasks with their partners, and w drawn for each by the seed and its place (ALGORITHM §3)."""
    if not batch.partners:
        return [MixedTask(task) for task in batch.tasks]
    shares = [run.trainer.curriculum.share(_chance(run.job.seed, place)) for place in batch.places]
    return [MixedTask(*one) for one in zip(batch.tasks, batch.partners, shares, strict=True)]


def _chance(seed: int, place: Place) -> np.random.Generator:
    return np.random.default_rng([seed, MIXING, place.epoch, place.position])


def _validate(run: Run) -> None:
    scores = _held_out(run)
    is_best = run.trainer.consider(scores.loss)
    if run.ranks.first:
        run.log.validated(run.trainer.step, scores.loss, [one.to_json() for one in scores.kinds], best=is_best)
        best, each = ", the best" * is_best, ", ".join(one.in_words() for one in scores.kinds)
        run.say(
            f"{run.training.variant}: step {run.trainer.step:,}, held-out loss {scores.loss:.4f}{best}; right: {each}"
        )


def _held_out(run: Run) -> HeldOut:
    with _told_well(run), run.held_out.once() as stream:
        return run.trainer.held_out((batch.tasks for batch in stream), [kind for kind, _ in run.held_out.index.kinds])


def _checkpoint_due(run: Run) -> bool:
    """True every `checkpoint_steps` steps, and after `checkpoint_seconds` by the first rank's clock."""
    late = time.monotonic() - run.saved >= run.job.checkpoint_seconds
    return run.trainer.step % run.job.checkpoint_steps == 0 or bool(run.ranks.same(late))


def _save(run: Run) -> None:
    run.saved = time.monotonic()
    settings = run.ranks.gathered(run.trainer.objective.settings())
    if not run.ranks.first:
        return
    arrays, rest = run.trainer.state()
    state = rest | {"key": run.job.key, "reader": run.reader_state, "start_loss": run.start_loss}
    state |= {"settings": settings, "log": run.log.position(), "threads": torch.get_num_threads()}
    write_checkpoint(run.job.work, Checkpoint(run.trainer.step, arrays, state))


def _resume(run: Run) -> None:
    """Resume from the newest undamaged checkpoint, if there is one."""
    found, damaged = last_checkpoint(run.job.work)
    usable = found is not None and found.state["key"] == run.job.key and run.log.reaches(found.state["log"])
    ours = found if run.ranks.same(usable) else None  # the first rank decides, because it has the log
    steps = run.ranks.gathered(ours.step if ours is not None else None)  # all have read before any file is put aside
    if len(set(steps)) > 1:
        raise TransientError(f"{run.job.work}: ranks read the checkpoints of different steps: check the disk")
    if run.ranks.first:
        for path in damaged:
            run.say(f"{run.training.variant}: warning: {path} is damaged and is skipped")
        put_aside(damaged)
    if ours is None:
        run.log.restart()
        return
    settings = ours.state["settings"]
    if len(settings) == run.ranks.count:  # with the same threads and chunks, the sums are the same, bit for bit
        torch.set_num_threads(min(ours.state["threads"], len(os.sched_getaffinity(0))))
    run.trainer.resume(ours.arrays, ours.state | {"settings": settings[run.ranks.rank % len(settings)]})
    if run.job.chunk_tokens is not None:  # it may have been lowered by hand since the checkpoint
        passes = run.trainer.objective.passes
        passes.chunk_tokens = min(passes.chunk_tokens, run.job.chunk_tokens)
    run.reader_state, run.start_loss = ours.state["reader"], ours.state["start_loss"]
    run.log.cut(ours.state["log"])
    run.shown_step = run.trainer.step
    if run.ranks.first:
        run.say(f"{run.training.variant}: continuing from step {ours.step:,}")


def _prepared(job: Job, ranks: Ranks, log: TrainingLog, progress: Progress, say: Callable[[str], None]) -> Run:
    training = job.training
    where = device(int(os.environ.get("LOCAL_RANK", "0")))
    make_deterministic(where)
    tokenizer = TemplateTokenizer.from_folder(job.backbone, training.max_length)
    form = cast("Form", training.template)
    templates = {kind: both[form] for kind, both in UNIFIED_TEMPLATES.items()} if training.unified else {}
    shared: dict[str, Any] = {"formats": training.formats, "seed": job.seed, "share": Share(ranks.rank, ranks.count)}
    shared |= {"kinds": training.kinds or None, "varied": training.varied_label_words}
    shared |= {"rewritten": training.rewritten_formats}
    shared |= {"batch_size": training.tasks_per_batch, "templates": templates}
    mixing = training.augmentation != "none"
    partner = cast("Partner", training.partner) if mixing else None
    backbone = load_backbone(job.backbone, where, recompute=job.gradient_checkpointing, precision=training.precision)
    say_here = say if ranks.first else lambda _line: None
    objective = _objective(job, backbone, say_here)
    plain = PlainStart(PlainObjective(objective.passes, say=say_here), training.plain_steps)
    trainer = Trainer(
        objective,
        initial_prompt(backbone, training.prompt_tokens, cast("Any", training.initialization), job.seed),
        Curriculum(cast("Any", training.augmentation), training.alpha, training.m, training.similarity_smoothing),
        Rates(
            training.learning_rate,
            training.regularizer_rate,
            training.steps,
            training.warmup_steps,
            training.clip_norm,
            cast("Any", training.schedule),
            training.regularizer_warmup_steps,
        ),
        ranks,
        plain,
    )
    return Run(
        job,
        ranks,
        trainer,
        TaskReader(job.tasks, tokenizer, form, partner=partner, **shared),
        TaskReader(job.tasks, tokenizer, form, split="validation", **shared),
        log,
        progress,
        say,
    )


def _objective(job: Job, backbone: Backbone, say: Callable[[str], None]) -> Objective:
    training = job.training
    vectors = read_centroids(job.centroids)
    table = torch.from_numpy(vectors.vectors).to(backbone.device)
    passes = Passes(backbone, Centroids(table, vectors.numbers), job.chunk_tokens or 0)
    if training.plain:
        return PlainObjective(passes, say=say)
    regularizer = None
    if training.rank is not None:
        torch.manual_seed(job.seed)
        regularizer = GradientRegularizer(backbone.width, training.rank, cast("Any", training.gate)).to(backbone.device)
    form = StepForm(
        cast("Literal[1, 2]", training.order),
        training.inner_rate,
        cast("Any", training.inner_form),
        cast("Any", training.similarity_at),
        training.gate_weight,
        inner_steps=training.inner_steps,
        inner_batch=training.inner_batch,
        outer=cast("Any", training.outer_direction),
        support_weight=training.support_weight,
    )
    return MetaObjective(passes, regularizer, form, say=say)
