"""The deployment of `supmer serve`, which Prefect's own runner serves: one run at a time, each a process of its own."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
from prefect.deployments.runner import RunnerDeployment
from prefect.runner import Runner
from prefect.types.entrypoint import EntrypointType

from flows.lock import is_free
from flows.server.prefect_home import FLOW, mark_crashed, workspace_tag

POLL_SECONDS = 1.0
GOODBYE_SECONDS = 2.0
PAUSE_SECONDS = 1.5  # after that
ENGINE = "prefect.engine"  # the module that a run's process executes


def deployment_of(flow: Any, root: Path, when: Any, parameters: dict[str, Any], asked: str) -> RunnerDeployment:
    """Return the deployment of a workspace's schedule; a run that is due while another is going is cancelled."""
    tag = workspace_tag(root)
    return RunnerDeployment.from_flow(
        flow,
        name=f"{root.name}-{tag.partition(':')[2][:6]}",
        schedules=[when],
        parameters=parameters,
        description=asked,
        tags=[FLOW, tag],
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
        thread = threading.Thread(target=lambda: asyncio.run(runner.start()), name="runner", daemon=True)
        thread.start()
        return cls(client, made, thread)

    def is_alive(self) -> bool:
        """Return True as long as the runner takes runs."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Pause the schedule, and end the current run with its child processes, within seconds."""
        pausing = threading.Thread(target=self._pause, daemon=True)  # do not wait for a busy server
        pausing.start()
        runs = [child for child in psutil.Process().children() if ENGINE in _command(child)]
        tree = [process for run in runs for process in (run, *_children(run))]
        for run in runs:
            with suppress(psutil.Error):
                run.terminate()
        psutil.wait_procs(runs, timeout=GOODBYE_SECONDS)
        pausing.join(PAUSE_SECONDS)
        for process in tree:
            with suppress(psutil.Error):
                process.kill()

    def _pause(self) -> None:
        with suppress(Exception):  # the next schedule of this workspace deletes what this one leaves
            self.client.pause_deployment(self.deployment)


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
