"""Bring stages up to date: each is cached, restored or run according to dvc.lock, as a Prefect task of its own."""

from __future__ import annotations

import shutil
import threading
import traceback
import uuid
from collections.abc import Callable
from contextlib import nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from prefect import flow, get_run_logger, tags, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.runtime import task_run
from prefect.states import Completed, Failed
from prefect.task_runners import TaskRunner

from flows.dvc_state.cache_objects import drop_damaged_objects
from flows.dvc_state.dag import Node, Pipeline
from flows.dvc_state.freshness import assess, restore
from flows.dvc_state.listings import keep_listings
from flows.retries import ONCE, Retries
from flows.run.console import ConsoleReporter
from flows.run.execution import execute, prepare, refuse_changed
from flows.run.interrupt import note_ended, stop_on_signals
from flows.run.lineage_events import announce, is_recorded
from flows.run.outcome import Outcome
from flows.server.artifacts import tell_prefect
from flows.server.prefect_home import workspace_tag
from flows.server.ready import FULL_DISK_BYTES
from storage.errors import InputError, TransientError
from storage.signs_of_life import doing
from tasks.params.schema import Params
from tasks.stage.contract import Record, Stage
from tasks.stage.fanout import PrefectFanOut
from tasks.stage.workers import rest_workers, worker_processes

FULL_DISK_WORDS = ("No space left", "requested and")  # of DuckDB and NumPy; their scratch files may be gone by now


@dataclass
class Run:
    """A run of the pipeline: the request, and the outcome of each stage."""

    pipeline: Pipeline
    params: Params
    reporter: ConsoleReporter
    shard_runner: TaskRunner[Any]
    forced: frozenset[str] = frozenset()
    print_outcome: Callable[[Outcome], None] = lambda _outcome: None
    after_crash: bool = False
    retries: Retries = ONCE
    nodes: dict[str, Node] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    _dvc: threading.RLock = field(default_factory=threading.RLock)  # one stage at a time uses DVC

    def stage(self, name: str) -> Outcome:
        """Bring one stage up to date; return errors as an outcome too, so that other stages can go on."""
        node = self.nodes[name]
        try:
            outcome = self._bring_up_to_date(node)
        except (InputError, TransientError) as error:
            outcome = Outcome(node.name, "failed", (str(error),))
        except Exception as error:  # noqa: BLE001 - reported as an outcome, a bug with its traceback
            outcome = self._unforeseen(node, error)
        self.outcomes[node.name] = outcome
        note_ended(node.name)
        tried, tries = task_run.run_count, self.retries.times + 1
        if outcome.verdict == "failed" and tried < tries:  # Prefect calls again
            again = f"try {tried + 1} of {tries} in {self.retries.seconds:g} s"
            self.reporter.say(f"{node.name} failed: {outcome.why[0]} ({again})")
        else:
            self.print_outcome(outcome)
        return outcome

    def _unforeseen(self, node: Node, error: Exception) -> Outcome:
        """Return the outcome of an unexpected error: a full disk, which shows in many ways, or a bug with traceback."""
        if isinstance(error, OSError) and error.errno is not None:
            return Outcome(node.name, "failed", (str(error),))
        free = shutil.disk_usage(self.pipeline.root).free
        if free < FULL_DISK_BYTES or any(words in str(error) for words in FULL_DISK_WORDS):
            why = f"No space left on device: {free:,} bytes are free on the disk of {self.pipeline.root}: make room"
            return Outcome(node.name, "failed", (why,))
        return Outcome(node.name, "failed", (f"{type(error).__name__}: {error}",), traceback=traceback.format_exc())

    def _bring_up_to_date(self, node: Node) -> Outcome:
        forced = node.name in self.forced
        damaged: tuple[str, ...] = ()
        with self._dvc, doing(f"{node.name}: hashing what may have changed", self.reporter.say):
            freshness = assess(self.pipeline, node.name)
            if not forced and freshness.state == "fresh":
                self._record_after_crash(node)
                return Outcome(node.name, "cached", freshness.reasons)
            if not forced and freshness.state == "restorable":
                if restore(self.pipeline, node.name):
                    self._record_after_crash(node)
                    return Outcome(node.name, "restored", (*freshness.reasons, "the same work was in DVC's cache"))
                damaged = ("its copy in DVC's cache was damaged",)
        why = ("it was forced", *freshness.reasons) if forced else (*freshness.reasons, *damaged)
        return Outcome(node.name, "ran", why, self.execute(node, why, refresh=forced))

    def _record_after_crash(self, node: Node) -> None:
        """Log the completion of a stage if the run was killed before it could log that."""
        if self.after_crash and not is_recorded(self.pipeline, node):
            record = {"why": ["it had ended before the crash"]}
            announce(self.pipeline, node, "COMPLETE", str(uuid.uuid4()), datetime.now(UTC), record)

    def execute(self, node: Node, why: tuple[str, ...], *, refresh: bool = False, commit: bool = True) -> Record:
        """Run a stage's function, commit its outputs to DVC and log its lineage; return its record.

        `commit` is false if DVC is the caller: then DVC itself commits the outputs.
        """
        run_id, started = str(uuid.uuid4()), datetime.now(UTC)
        # Threads of the stage report too, and have no Prefect context: the logger is bound here.
        reporter = replace(self.reporter, log=get_run_logger().info)
        reporter.say(f"{node.name}: {why[0]}")
        for reason in why[1:]:
            reporter.log(reason)
        with reporter.alive(f"{node.name}: at work") as alive:
            return self._executed(node, why, alive, (run_id, started), refresh=refresh, commit=commit)

    def _executed(
        self,
        node: Node,
        why: tuple[str, ...],
        reporter: ConsoleReporter,
        begun: tuple[str, datetime],
        *,
        refresh: bool,
        commit: bool,
    ) -> Record:
        run_id, started = begun
        with self._dvc, reporter.doing(f"{node.name}: hashing its inputs"):
            stage = prepare(
                self.pipeline, node, self.params, PrefectFanOut(self.shard_runner), reporter, refresh=refresh
            )
            announce(self.pipeline, node, "START", run_id, started, {"why": list(why)})
        try:
            with self.pipeline.claimed(node.name) if commit else nullcontext():
                record = execute(stage, lambda: self._refuse_changed(stage))
            with self._dvc, reporter.doing(f"{node.name}: hashing its outputs and putting them into DVC's cache"):
                refuse_changed(self.pipeline, stage)
                keep_listings(self.pipeline, node.name)
                drop_damaged_objects(self.pipeline, node.name)
                if commit:
                    self.pipeline.commit(node.name)
            stage.settle()
        except BaseException as error:
            with self._dvc, suppress(InputError, OSError):  # a full disk fails both; report the first error
                announce(self.pipeline, node, "FAIL", run_id, datetime.now(UTC), {"error": str(error)})
            raise
        finally:
            rest_workers()
        with reporter.doing(f"{node.name}: recording what it read and wrote"):
            with self._dvc:
                announce(self.pipeline, node, "COMPLETE", run_id, datetime.now(UTC), record | {"why": list(why)})
            tell_prefect(self.pipeline.root, node, why, record, reporter.say)
        return record

    def _refuse_changed(self, stage: Stage) -> None:
        with self._dvc:
            refuse_changed(self.pipeline, stage)


# What a stage's task needs stays in this process: a Dask worker receives the task that a shard runs in, with its
# arguments, and DVC and a terminal cannot be sent.
current: ContextVar[Run] = ContextVar("current")


def run_stage(name: str) -> State[None]:
    """Bring one stage of dvc.yaml up to date; what is printed about it is in the log of this task."""
    outcome = current.get().stage(name)
    why = "; ".join(outcome.why)
    tell = get_run_logger().error if outcome.verdict == "failed" else get_run_logger().info
    tell(f"{name} {outcome.verdict}: {why}")
    if outcome.traceback:
        tell(outcome.traceback)
    if outcome.verdict == "failed":
        return Failed(message=why)
    return Completed(name=outcome.verdict.capitalize(), message=why)


# No decorator: a Dask worker finds a plain function by its name.
stage = task(name="stage", cache_policy=NO_CACHE, persist_result=False)(run_stage)


def run_function(run: Run, node: Node, workers: int) -> None:
    """Run one stage's function in its own flow, and leave the bookkeeping to the `dvc` command that called."""

    @flow(name=f"dvc-{node.name}", flow_run_name=f"{node.name}: dvc asked for it", validate_parameters=False)
    def alone() -> None:
        stop_on_signals()
        run.execute(node, ("dvc asked for it",), commit=False)

    with tags("supmer", workspace_tag(run.pipeline.root)), worker_processes(workers):
        alone()
