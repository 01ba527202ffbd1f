"""Progress display while stages run: a live bar or plain lines, and the log and an artifact of the Prefect task."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from flows.dvc_state.local_inputs import in_columns, is_listing
from flows.run.outcome import Outcome
from storage.counts import remaining, singular, speed
from storage.signs_of_life import SignsOfLife, doing

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

LINE_SECONDS = 5.0  # least time between two progress lines in a log
LEAST_SAMPLES = 3  # times that progress is reported before the time left is estimated
ARTIFACT_SECONDS = 2.0


@dataclass
class Bar:
    """Progress of one step, shown on the console and in Prefect."""

    label: str
    total: int
    unit: str
    live: tuple[RichProgress, TaskID] | None
    log: Callable[[str], None]
    quiet: bool = False
    done: int = 0
    signs: SignsOfLife | None = None
    _first: tuple[int, float] | None = None  # what was done when, at the first report
    _samples: int = 0
    _line: float = field(default_factory=time.monotonic)
    _artifact: float = 0.0
    _note: str = ""
    _artifact_id: UUID | None = None

    def advance(self, amount: int) -> None:
        """Count `amount` more units as done."""
        self.done += amount
        now = time.monotonic()
        self._samples += 1
        self._first = self._first or (self.done, now)
        self._tell_signs()
        if self.live:
            self.live[0].advance(self.live[1], amount)
        if now - self._line >= LINE_SECONDS:
            self._line = now
            line = f"{self._count()}{self._left(now)}{self._remark()}"
            self.log(line)
            if not self.live and not self.quiet:
                click.echo(f"  {line}")
                if self.signs:
                    self.signs.spoke()
        if now - self._artifact >= ARTIFACT_SECONDS or self.done == self.total:
            self._artifact = now
            with suppress(Exception):  # a failing display must not fail the work it shows
                self._tell_prefect()

    def note(self, text: str) -> None:
        """Show a remark beside the count."""
        self._note = text
        self._tell_signs()
        if self.live:
            self.live[0].update(self.live[1], note=text)

    def _remark(self) -> str:
        return f" ({self._note})" if self._note else ""

    def _tell_signs(self) -> None:
        """Name the progress as the work under way, for the time when nothing advances."""
        what = f"{self._count()}{self._remark()}"
        if self.signs and not self.live:
            self.signs.still(what)

    def _count(self) -> str:
        unit = singular(self.unit) if self.total == 1 else self.unit
        return f"{self.label}: {self.done:,} of {self.total:,} {unit}"

    def _left(self, now: float) -> str:
        """Return the speed and the time left; nothing before there are a few samples, of which the first is a start."""
        if self._samples < LEAST_SAMPLES or self._first is None or self.done <= self._first[0]:
            return ""
        rate = (self.done - self._first[0]) / max(now - self._first[1], 1e-9)
        left = f", {remaining((self.total - self.done) / rate)}" if self.done < self.total else ""
        return f", {speed(rate, self.unit)}{left}"

    def _tell_prefect(self) -> None:
        from prefect.artifacts import create_progress_artifact, update_progress_artifact
        from prefect.context import FlowRunContext

        if FlowRunContext.get() is None:
            return
        percent = 100.0 * self.done / max(self.total, 1)
        if self._artifact_id is None:
            created: Any = create_progress_artifact(percent, description=self.label)
            self._artifact_id = created
        else:
            update_progress_artifact(self._artifact_id, percent)


def _keep_no_log(_message: str) -> None:
    """Log nothing: outside a Prefect task there is no log."""


@dataclass(frozen=True)
class ConsoleReporter:
    """A reporter that writes to standard output, unless it is quiet, and to the log of a Prefect task."""

    log: Callable[[str], None] = _keep_no_log
    signs: SignsOfLife | None = None
    quiet: bool = False

    def say(self, message: str) -> None:
        """Print and log one line."""
        if not self.quiet:
            click.echo(f"  {message}")
        self.log(message)
        if self.signs:
            self.signs.spoke()

    @contextmanager
    def alive(self, what: str) -> Iterator[ConsoleReporter]:
        """Return a reporter for a piece of work; while it is silent, a line says what is being done."""
        with doing(what, self.say) as signs:
            yield replace(self, signs=signs)

    @contextmanager
    def progress(self, label: str, total: int, unit: str) -> Iterator[Bar]:
        """Show a live bar in a terminal, or print lines elsewhere."""
        if self.quiet or not sys.stdout.isatty():
            with self.doing(f"{label}: 0 of {total:,} {singular(unit) if total == 1 else unit}"):
                yield Bar(label, total, unit, None, self.log, self.quiet, signs=self.signs)
            return
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(unit),
        )
        remark = TextColumn("{task.fields[note]}")
        with (
            self._hushed(),
            Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), remark, transient=True) as bars,
        ):
            yield Bar(label, total, unit, (bars, bars.add_task(label, total=total, note="")), self.log)

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Name the work under way while the context is open, and the work around it afterwards."""
        if self.signs is None:
            yield
            return
        with self.signs.named(what):
            yield

    @contextmanager
    def _hushed(self) -> Iterator[None]:
        """Print no signs of life while a bar moves."""
        if self.signs is None:
            yield
            return
        with self.signs.hushed():
            yield


def outcome_printer(stages: Sequence[str], *, quiet: bool = False) -> Callable[[Outcome], None]:
    """Return a function that prints an outcome of one of the stages, in columns; cached listings are left out."""
    context = click.get_current_context(silent=True)  # threads, in which stages end, have none
    colour, width = context.color if context else None, in_columns(stages)

    def print_outcome(outcome: Outcome) -> None:
        if not quiet and (outcome.verdict != "cached" or not is_listing(outcome.stage)):
            click.echo(outcome.line(width), color=colour)

    return print_outcome
