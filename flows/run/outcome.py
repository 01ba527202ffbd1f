"""The outcome of a stage, and the reasons for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import click

Verdict = Literal["ran", "cached", "restored", "skipped", "failed"]
COLOURS: dict[Verdict, str] = {
    "ran": "green",
    "cached": "cyan",
    "restored": "blue",
    "skipped": "yellow",
    "failed": "red",
}


@dataclass(frozen=True)
class Outcome:
    """The outcome of one stage in one run."""

    stage: str
    verdict: Verdict
    why: tuple[str, ...]
    record: dict[str, Any] = field(default_factory=dict)
    traceback: str = ""  # only for a bug: bad input has none

    def line(self, width: int) -> str:
        """Return the outcome as text: the first reason beside the verdict, the others below it."""
        head = f"{self.stage:<{width}}  {click.style(f'{self.verdict:<8}', fg=COLOURS[self.verdict])}  "
        took = f" ({self.record['seconds']:.1f} s)" if "seconds" in self.record else ""
        rest = "".join(f"\n{'':<{width + 12}}{reason}" for reason in self.why[1:])
        return f"{head}{self.why[0]}{took}{rest}"

    def as_json(self) -> dict[str, Any]:
        """Return the outcome as a value for JSON."""
        return {"stage": self.stage, "verdict": self.verdict, "why": list(self.why), "record": self.record}
