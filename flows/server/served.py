"""The deployment of `supmer serve`, which Prefect's own runner serves: one run at a time, each a process of its own."""

from __future__ import annotations

import asyncio
import signal
import threading
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy, StateType
from prefect.deployments.runner import RunnerDeployment
from prefect.runner import Runner
from prefect.states import Cancelled
from prefect.types.entrypoint import EntrypointType

from flows.lock import is_free
from flows.server.prefect_home import FLOW, deployment_name, mark_crashed, workspace_tag

POLL_SECONDS = 1.0
MARK_SECONDS = 1.0
GOODBYE_SECONDS = 2.0
TELL_SECONDS = 8.0  # after that, for a busy server; it takes a moment otherwise
ENGINE = "prefect.engine"  # the module that a run's process executes


def deployment_of(flow: Any, root: Path, when: Any, parameters: dict[str, Any], asked: str) -> RunnerDeployment:
    """Return the deployment of a workspace's schedule; a run that is due while another is going is cancelled."""
    return RunnerDeployment.from_flow(
        flow,
        name=deployment_name(root),
        schedules=[when],
        parameters=parameters,
        description=asked,
        tags=[FLOW, workspace_tag(root)],
        paused=False,
        concurrency_limit=ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW),
        entrypoint_type=EntrypointType.MODULE_PATH,
    )


@dataclass(frozen=True)
class Served:
    """A deployment that a runner of Prefect serves in a thread of this process."""

    client: SyncPrefectClient
    deployment: UUID
    _thread: threading.Thread

    @classmethod
    def start(
        cls, client: SyncPrefectClient, flow: Any, root: Path, when: Any, parameters: dict[str, Any], asked: str
    ) -> Served:
        """Create or update the deployment, tidy up after an earlier schedule, and serve it as `prefect.serve` does."""
        # Runs are taken when they are due, not before: one that waits for its time would count as going.
        runner = Runner(query_seconds=POLL_SECONDS, prefetch_seconds=0, limit=None, pause_on_shutdown=False)
        made: Any = runner.add_deployment(deployment_of(flow, root, when, parameters, asked))
        _tidy(client, root, made)
        thread = threading.Thread(target=_serve, args=(runner,), name="runner", daemon=True)
        thread.start()
        return cls(client, made, thread)

    def is_alive(self) -> bool:
        """Return True as long as the runner takes runs."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Mark the current run as cancelled and end it, and pause the schedule; a busy server has some seconds."""
        marked, ended = threading.Event(), threading.Event()
        telling = threading.Thread(target=self._tell_server, args=(marked, ended), daemon=True)
        telling.start()
        marked.wait(MARK_SECONDS)
        _end_runs()
        ended.set()
        telling.join(TELL_SECONDS)
        _end_runs(seconds=0)  # one that was due before the schedule was paused

    def _tell_server(self, marked: threading.Event, ended: threading.Event) -> None:
        """Mark the run before its end, which would count as a crash, and again in case that came first."""
        with suppress(Exception):  # the next schedule of this workspace tidies up what this one leaves
            self.client.pause_deployment(self.deployment)  # first: the place of a cancelled run is free for the next
            going = self._going()
            self._cancel(going)
            marked.set()
            ended.wait()
            self._cancel({*going, *self._going()})

    def _going(self) -> set[UUID]:
        """Return the runs of the schedule that have not ended."""
        unfinished = FlowRunFilterStateType(any_=[StateType.PENDING, StateType.RUNNING, StateType.CANCELLING])
        flow_runs = self.client.read_flow_runs(
            deployment_filter=DeploymentFilter(id=DeploymentFilterId(any_=[self.deployment])),
            flow_run_filter=FlowRunFilter(state=FlowRunFilterState(type=unfinished)),
        )
        return {flow_run.id for flow_run in flow_runs}

    def _cancel(self, flow_runs: set[UUID]) -> None:
        stopped: Any = Cancelled(name="Interrupted", message="`supmer serve` was stopped; the next run continues.")
        for flow_run in flow_runs:
            self.client.set_flow_run_state(flow_run, stopped, force=True)


def _serve(runner: Runner) -> None:
    """Serve without SIGINT in this thread and the runs it starts: Ctrl-C is for this process, which ends its runs."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    asyncio.run(runner.start())


def _end_runs(seconds: float = GOODBYE_SECONDS) -> None:
    """End the runs that this process has started, with their child processes; they have some seconds to stop."""
    runs = [child for child in psutil.Process().children() if ENGINE in _command(child)]
    tree = [process for run in runs for process in (run, *_children(run))]
    for run in runs:
        with suppress(psutil.Error):
            run.terminate()
    psutil.wait_procs(runs, timeout=seconds)
    for process in tree:
        with suppress(psutil.Error):
            process.kill()


def _tidy(client: SyncPrefectClient, root: Path, deployment: UUID) -> None:
    """Delete overdue runs of an earlier schedule, and mark runs that were killed with it, which frees their place."""
    for left in client.get_scheduled_flow_runs_for_deployments([deployment], scheduled_before=datetime.now(UTC)):
        client.delete_flow_run(left.id)
    if is_free(root):
        mark_crashed(root)


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # the process has ended
        return ""


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []
