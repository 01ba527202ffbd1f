"""Progress display while stages run: a live bar or plain lines, and the log and an artifact of the Prefect task."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

LINE_SECONDS = 5.0  # least time between two progress lines in a log
ARTIFACT_SECONDS = 2.0


@dataclass
class Bar:
    """Progress of one step, shown on the console and in Prefect."""

    label: str
    total: int
    unit: str
    live: tuple[RichProgress, TaskID] | None
    log: Callable[[str], None]
    done: int = 0
    started: float = field(default_factory=time.monotonic)
    _line: float = field(default_factory=time.monotonic)
    _artifact: float = 0.0
    _note: str = ""
    _artifact_id: UUID | None = None

    def advance(self, amount: int) -> None:
        """Count `amount` more units as done."""
        self.done += amount
        now = time.monotonic()
        if self.live:
            self.live[0].advance(self.live[1], amount)
        if now - self._line >= LINE_SECONDS:
            self._line = now
            line = f"{self.label}: {self.done:,} of {self.total:,} {self.unit}, {self._left(now)}{self._remark()}"
            self.log(line)
            if not self.live:
                click.echo(f"  {line}")
        if now - self._artifact >= ARTIFACT_SECONDS or self.done == self.total:
            self._artifact = now
            with suppress(Exception):  # a failing display must not fail the work it shows
                self._tell_prefect()

    def note(self, text: str) -> None:
        """Show a remark beside the count."""
        self._note = text
        if self.live:
            self.live[0].update(self.live[1], note=text)

    def _remark(self) -> str:
        return f" ({self._note})" if self._note else ""

    def _left(self, now: float) -> str:
        rate = self.done / max(now - self.started, 1e-9)
        return f"{rate:,.1f} a second, about {(self.total - self.done) / max(rate, 1e-9):.0f} s left"

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
    """A reporter that writes to standard output and to the log of a Prefect task."""

    log: Callable[[str], None] = _keep_no_log

    def say(self, message: str) -> None:
        """Print and log one line."""
        click.echo(f"  {message}")
        self.log(message)

    @contextmanager
    def progress(self, label: str, total: int, unit: str) -> Iterator[Bar]:
        """Show a live bar in a terminal, or print lines elsewhere."""
        if not sys.stdout.isatty():
            yield Bar(label, total, unit, None, self.log)
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(unit))
        remark = TextColumn("{task.fields[note]}")
        with Progress(*columns, TimeRemainingColumn(), remark, transient=True) as bars:
            yield Bar(label, total, unit, (bars, bars.add_task(label, total=total, note="")), self.log)
