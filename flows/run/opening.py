"""A workspace that is open for a run: locked, mended after a crash, with its settings written and its stages chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from flows.dvc_state.recovery import mend
from flows.lock import Lock, workspace_lock
from flows.run.console import outcome_printer
from flows.run.outcome import Outcome
from flows.run.session import Session, open_session
from storage.signs_of_life import doing

if TYPE_CHECKING:
    from flows.dvc_state.dag import Node
    from flows.run.request import Request


@dataclass(frozen=True)
class OpenRun:
    """A request in a workspace that this process holds, and the outcome of each stage so far."""

    request: Request
    session: Session
    lock: Lock
    nodes: list[Node]
    print_outcome: Callable[[Outcome], None]
    quiet: bool = False  # True: Prefect prints its log, which has everything that would be printed
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    @property
    def ended(self) -> list[Outcome]:
        """The outcomes in the order of the stages."""
        return [self.outcomes[node.name] for node in self.nodes if node.name in self.outcomes]

    @property
    def obituary(self) -> str:
        """A line about the earlier run that died here; nothing if none did."""
        dead = self.lock.dead
        return f"the run of {dead.since} (process {dead.pid}) died: continuing" if dead and not dead.interrupted else ""

    def settle(self, problem: str) -> None:
        """Give an outcome to stages that Prefect did not start, because an upstream stage or Prefect itself failed."""
        from flows.dvc_state.dag import ancestors

        by_name = {node.name: node for node in self.nodes}
        for name in by_name:
            if name not in self.outcomes:
                above = [self.outcomes.get(other) for other in sorted(ancestors(by_name, name))]
                failed = [outcome.stage for outcome in above if outcome and outcome.verdict == "failed"]
                why = f"Prefect did not run it ({problem}): see .prefect/server.log"
                skipped = Outcome(name, "skipped", (f"{', '.join(failed)} failed",))
                self.outcomes[name] = skipped if failed else Outcome(name, "failed", (why,))
                self.print_outcome(self.outcomes[name])


@contextmanager
def open_run(root: Path, request: Request, command: str, *, quiet: bool = False) -> Iterator[OpenRun]:
    """Hold the workspace for a run; raise WorkspaceBusyError if another process does, InputError if it is wrong."""
    with workspace_lock(root, command) as lock:
        if lock.dead:
            mend(root, lock.dead)
        with doing("run: comparing files with dvc.lock"):
            if request.settings:  # refuse wrong stages before the settings are written
                from flows.dvc_state.dag import Pipeline

                request.nodes(Pipeline(root))
            session = open_session(request.settings, keep=True)
            nodes = request.nodes(session.pipeline)
        yield OpenRun(request, session, lock, nodes, outcome_printer([node.name for node in nodes], quiet=quiet), quiet)


# `supmer run` opens the workspace before it imports Prefect, and then calls the flow, which finds it here.
opened: ContextVar[OpenRun | None] = ContextVar("opened", default=None)
