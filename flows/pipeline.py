"""dvc.yaml as a Prefect flow: one task a stage, each cached, restored or run by what dvc.lock says."""

from __future__ import annotations

import threading
import traceback
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from prefect import flow, tags, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.futures import wait
from prefect.states import Completed, Failed
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from flows.audit import announce
from flows.dag import Node, Pipeline
from flows.execution import execute, prepare
from flows.freshness import assess, restore
from flows.interrupt import stop_on_signals
from flows.outcome import Outcome
from flows.prefect_home import workspace_tag
from storage.errors import InputError, TransientError
from tasks.contract import Record, Reporter
from tasks.fanout import PrefectFanOut
from tasks.params import Params
from tasks.pool import worker_processes


@dataclass
class Run:
    """One run of the pipeline: what was asked for, and what became of each stage."""

    pipeline: Pipeline
    params: Params
    reporter: Reporter
    shard_runner: TaskRunner[Any]
    forced: frozenset[str] = frozenset()
    told: Callable[[Outcome], None] = lambda _outcome: None
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    _dvc: threading.RLock = field(default_factory=threading.RLock)  # one stage at a time asks or changes DVC

    def stage(self, node: Node) -> Outcome:
        """Bring one stage up to date; whatever goes wrong is an outcome too, so that other stages can go on."""
        try:
            outcome = self._bring_up_to_date(node)
        except (InputError, TransientError, OSError) as error:
            outcome = Outcome(node.name, "failed", (str(error),))
        except Exception as error:  # noqa: BLE001 - a bug: told with its traceback at the end of the run
            why = (f"{type(error).__name__}: {error}",)
            outcome = Outcome(node.name, "failed", why, traceback=traceback.format_exc())
        self.outcomes[node.name] = outcome
        self.told(outcome)
        return outcome

    def _bring_up_to_date(self, node: Node) -> Outcome:
        forced = node.name in self.forced
        with self._dvc:
            freshness = assess(self.pipeline, node.name)
            if not forced and freshness.state == "fresh":
                return Outcome(node.name, "cached", freshness.reasons)
            if not forced and freshness.state == "restorable":
                restore(self.pipeline, node.name)
                return Outcome(node.name, "restored", (*freshness.reasons, "the same work was in DVC's cache"))
        why = ("it was forced", *freshness.reasons) if forced else freshness.reasons
        return Outcome(node.name, "ran", why, self.execute(node, why, refresh=forced))

    def execute(self, node: Node, why: tuple[str, ...], *, refresh: bool = False, commit: bool = True) -> Record:
        """Run a stage's function, put its outputs under DVC (unless DVC itself is calling), and log its lineage."""
        run_id, started = str(uuid.uuid4()), datetime.now(UTC)
        self.reporter.say(f"{node.name}: {why[0]}")
        with self._dvc:
            stage = prepare(
                self.pipeline, node, self.params, PrefectFanOut(self.shard_runner), self.reporter, refresh=refresh
            )
        announce(self.pipeline, node, "START", run_id, started, {"why": list(why)})
        try:
            record = execute(stage)
            if commit:
                with self._dvc:
                    self.pipeline.commit(node.name)
            stage.settle()
        except BaseException as error:
            announce(self.pipeline, node, "FAIL", run_id, datetime.now(UTC), {"error": str(error)})
            raise
        announce(self.pipeline, node, "COMPLETE", run_id, datetime.now(UTC), record | {"why": list(why)})
        return record


def run_flow(run: Run, nodes: Sequence[Node], workers: int) -> list[Outcome]:
    """Generate the flow from the nodes and run it here and now."""
    stages: TaskRunner[Any] = ThreadPoolTaskRunner(max_workers=len(nodes))

    @flow(name="supmer", task_runner=stages, validate_parameters=False)
    def supmer() -> State[None]:
        stop_on_signals()
        futures: dict[str, Any] = {}
        for node in nodes:
            upstream = [futures[name] for name in node.upstream if name in futures]
            futures[node.name] = _stage_task(run, node).submit(wait_for=upstream)
        wait(list(futures.values()))
        failed = [name for name, future in futures.items() if future.state.is_failed()]
        return Failed(message=f"failed: {', '.join(failed)}") if failed else Completed()

    with tags("supmer", workspace_tag(run.pipeline.root)), worker_processes(workers):
        state = supmer(return_state=True)
    if state.is_crashed() or (state.is_failed() and not run.outcomes):
        raise InputError(f"Prefect could not run the flow: {state.message}")
    return [run.outcomes.get(node.name) or _not_reached(run, node) for node in nodes]


def run_function(run: Run, node: Node, workers: int) -> None:
    """Run one stage's function in a flow of its own, leaving the bookkeeping to the `dvc` that called."""

    @flow(name=f"dvc-{node.name}", validate_parameters=False)
    def alone() -> None:
        stop_on_signals()
        run.execute(node, ("dvc asked for it",), commit=False)

    with tags("supmer", workspace_tag(run.pipeline.root)), worker_processes(workers):
        alone()


def _stage_task(run: Run, node: Node) -> Any:
    @task(name=node.name, task_run_name=node.name, cache_policy=NO_CACHE, persist_result=False)
    def stage() -> State[None]:
        outcome = run.stage(node)
        why = "; ".join(outcome.why)
        if outcome.verdict == "failed":
            return Failed(message=why)
        return Completed(name=outcome.verdict.capitalize(), message=why)

    return stage


def _not_reached(run: Run, node: Node) -> Outcome:
    """A stage Prefect did not start because something above it failed."""
    failed = [name for name, outcome in run.outcomes.items() if outcome.verdict == "failed"]
    outcome = Outcome(node.name, "skipped", (f"{', '.join(failed) or 'an earlier stage'} failed",))
    run.outcomes[node.name] = outcome
    run.told(outcome)
    return outcome
