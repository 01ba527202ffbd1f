"""The plan of a run: what it would do with each stage, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from flows.dvc_state.dag import Node
from flows.dvc_state.freshness import assess
from flows.dvc_state.local_inputs import in_columns, is_listing
from flows.lock import Holder
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
        """Return the step as a value for JSON."""
        return {"stage": self.stage, "action": self.action, "why": list(self.why)}

    def line(self, width: int) -> str:
        """Return the step as text."""
        head = f"{self.stage:<{width}}  {click.style(f'{self.action:<7}', fg=COLOURS[self.action])}  {self.why[0]}"
        return head + "".join(f"\n{'':<{width + 11}}{reason}" for reason in self.why[1:])


def _after(step: Step, above: Sequence[str], steps: Mapping[str, Step]) -> Step:
    """Return a step that follows stages that would run; it takes over the reasons of those that list local sources."""
    why = () if step.action == "fresh" else step.why
    listed = [reason for name in above if is_listing(name) for reason in steps[name].why]
    why += tuple(reason for reason in listed if not _is_told(reason, step.why))
    if step.action != "run":
        for action, done in (("run", "run"), ("restore", "be restored")):
            others = [name for name in above if not is_listing(name) and steps[name].action == action]
            if others:
                why = (f"{', '.join(others)} would {done} before it, and may change its input", *why)
    return Step(step.stage, "run", why)


def _is_told(reason: str, why: Iterable[str]) -> bool:
    """Return True if the reasons already mention the parameter of a local source."""
    parameter = reason.partition(" ")[0]
    return any(own.startswith(f"parameter {parameter} ") for own in why)


def plan(session: Session, nodes: Sequence[Node], forced: Sequence[str] = ()) -> list[Step]:
    """Return a step for each stage, in order; a stage after one that would run may have to run too."""
    steps: dict[str, Step] = {}
    returning: dict[str, Any] = {}
    changing: set[str] = set()  # stages that run, or are restored as they were at an earlier time
    for node in nodes:
        freshness = assess(session.pipeline, node.name, session.what_if, returning)
        returning |= freshness.returning
        if node.name in forced:
            step = Step(node.name, "run", ("it is forced", *freshness.reasons))
        else:
            step = Step(node.name, WOULD[freshness.state], freshness.reasons)
        above = [name for name in node.upstream if name in changing]
        if above:
            step = _after(step, above, steps)
        steps[node.name] = step
        if step.action == "run" or (step.action == "restore" and not freshness.returning):
            changing.add(node.name)
    return list(steps.values())


def summary(steps: Sequence[Step], dead: Holder | None) -> str:
    """Return the name of a run: the first stage that would run or be restored, and why."""
    work = [step for step in steps if step.action != "fresh"]
    work = [step for step in work if not is_listing(step.stage)] or work
    if not work:
        return "nothing to do: all stages are fresh"
    first, more = work[0], len(work) - 1
    after = " (after a crash)" if dead and not dead.interrupted else ""
    return f"{first.stage}{f' and {more} more' if more else ''}: {first.why[0]}{after}"


def print_steps(steps: Iterable[Step]) -> None:
    """Print a plan as text, without the fresh listings of local sources."""
    shown = [step for step in steps if step.action != "fresh" or not is_listing(step.stage)]
    width = in_columns(step.stage for step in shown)
    for step in shown:
        click.echo(step.line(width))
