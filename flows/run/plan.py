"""What a run would do, stage by stage, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from flows.dvc_state.dag import Node
from flows.dvc_state.freshness import assess
from flows.run.session import Session

WOULD = {"fresh": "fresh", "restorable": "restore", "stale": "run"}
COLOURS = {"fresh": "cyan", "restore": "blue", "run": "yellow"}


@dataclass(frozen=True)
class Step:
    """One stage of a plan: `action` is fresh, restore or run."""

    stage: str
    action: str
    why: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The step for a machine."""
        return {"stage": self.stage, "action": self.action, "why": list(self.why)}

    def line(self, width: int) -> str:
        """The step for a person."""
        head = f"{self.stage:<{width}}  {click.style(f'{self.action:<7}', fg=COLOURS[self.action])}  {self.why[0]}"
        return head + "".join(f"\n{'':<{width + 11}}{reason}" for reason in self.why[1:])


def plan(session: Session, nodes: Sequence[Node], forced: Sequence[str] = ()) -> list[Step]:
    """Assess the stages in order; what comes after a stage that would run may have to run too."""
    steps: dict[str, Step] = {}
    returning: dict[str, Any] = {}
    for node in nodes:
        freshness = assess(session.pipeline, node.name, session.what_if, returning)
        returning |= freshness.returning
        if node.name in forced:
            step = Step(node.name, "run", ("it is forced", *freshness.reasons))
        else:
            step = Step(node.name, WOULD[freshness.state], freshness.reasons)
        above = [name for name in node.upstream if name in steps and steps[name].action == "run"]
        if above and step.action != "run":
            step = Step(node.name, "run", (f"{', '.join(above)} would run before it, and may change its input",))
        steps[node.name] = step
    return list(steps.values())
