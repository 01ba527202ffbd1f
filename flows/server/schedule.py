"""Run the pipeline on a schedule: Prefect's server says when; this loop starts `supmer run` for each due flow run."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any
from uuid import UUID

import click
import httpx
import psutil
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.objects import State
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Completed, Crashed, Failed, Scheduled

from flows.lock import holder_in_words, is_free
from flows.retries import Retries
from flows.server.prefect_home import workspace_tag
from flows.server.scheduled_run import FLOW, SCHEDULED
from storage.errors import InputError

LOOK_SECONDS = 1.0
GOODBYE_SECONDS = 2.0
PAUSE_SECONDS = 1.0
UNREACHABLE = (OSError, httpx.HTTPError)


def register(client: SyncPrefectClient, root: Path, schedule: Any, description: str) -> UUID:
    """Create or update the workspace's deployment and return its id; delete overdue runs of an earlier schedule."""
    tag = workspace_tag(root)
    deployment = client.create_deployment(
        flow_id=client.create_flow_from_name(FLOW),
        name=f"{root.name}-{tag.partition(':')[2][:6]}",
        description=description,
        schedules=[DeploymentScheduleCreate(schedule=schedule, active=True)],
        tags=[FLOW, tag],
        path=str(root),
        entrypoint="flows/run/flow.py:_supmer",
        paused=False,
    )
    for left in client.get_scheduled_flow_runs_for_deployments([deployment], scheduled_before=datetime.now(UTC)):
        client.delete_flow_run(left.id)
    return deployment


@dataclass
class Attempt:
    """A `supmer run` process in progress, for one flow run."""

    flow_run: Any
    process: subprocess.Popen[str]
    last_line: str = ""
    told_to_stop: bool = False

    def follow(self) -> None:
        """Print the output of the run, and remember its last line."""
        output: IO[str] | None = self.process.stdout
        assert output is not None
        for line in output:
            self.last_line = line.strip() or self.last_line
            with suppress(OSError):  # the run continues even if nobody reads its output
                click.echo(line, nl=False)


@dataclass
class Schedule:
    """The schedule loop: one run at a time; a run that becomes due meanwhile is skipped, and a line says so."""

    client: SyncPrefectClient
    root: Path
    deployment: UUID
    arguments: Sequence[str]  # of `supmer run`
    retries: Retries
    _now: Attempt | None = None
    _told: datetime | None = None
    _paused: bool = False
    _tries: dict[UUID, int] = field(default_factory=dict)

    def run(self) -> None:
        """Start due runs until somebody deletes the deployment; raise InputError then."""
        while True:
            with suppress(*UNREACHABLE):  # the server may be away for a moment: ask again later
                self.look()
            time.sleep(LOOK_SECONDS)

    def look(self) -> None:
        """Check once: finish or stop the current run, start a run that is due, announce the next one."""
        if self._now and self._now.process.poll() is not None:
            ended, self._now = self._now, None
            self._close(ended)
        elif self._now and not self._now.told_to_stop and self._state(self._now.flow_run.id).is_cancelling():
            self._now.told_to_stop = True
            self._now.process.terminate()
        due = self.client.get_scheduled_flow_runs_for_deployments([self.deployment], scheduled_before=datetime.now(UTC))
        for flow_run in due:
            if self._now is None or flow_run.id != self._now.flow_run.id:  # a run stays due while it starts
                self._fire(flow_run)
        self._notice_outsiders()
        if self._now is None:
            self._tell_next()

    def _notice_outsiders(self) -> None:
        """Say so when somebody paused or resumed the schedule; raise InputError if it was deleted."""
        try:
            deployment = self.client.read_deployment(self.deployment)
        except ObjectNotFound as error:
            if self._now:  # let it end first
                return
            raise InputError("the schedule was deleted in Prefect: `supmer serve` makes it again") from error
        paused = deployment.paused or not any(schedule.active for schedule in deployment.schedules)
        if paused and not self._paused:
            click.echo(f"{_clock()} paused in Prefect: nothing runs until it is resumed there")
        elif self._paused and not paused:
            click.echo(f"{_clock()} resumed in Prefect")
            self._told = None
        self._paused = paused

    def stop(self) -> None:
        """End the current run and its child processes; the schedule is paused until it is served again."""
        run = self._now.process if self._now else None
        tree = _children(run.pid) if run else []
        if run:
            run.terminate()
        deadline = time.monotonic() + GOODBYE_SECONDS
        pausing = threading.Thread(target=self._pause, daemon=True)  # do not wait for a busy server
        pausing.start()
        pausing.join(PAUSE_SECONDS)
        if run:
            with suppress(subprocess.TimeoutExpired):
                run.wait(max(deadline - time.monotonic(), 0.0))
            run.kill()
            for child in tree:
                with suppress(psutil.Error):
                    child.kill()

    def _pause(self) -> None:
        with suppress(Exception):  # the next schedule of this workspace deletes what this one leaves
            self.client.pause_deployment(self.deployment)

    def _fire(self, flow_run: Any) -> None:
        if self._now or not is_free(self.root):
            who = f"the run {self._now.flow_run.name}" if self._now else holder_in_words(self.root)
            self._set(flow_run.id, Cancelled(name="Skipped", message=f"{who} was still going"))
            click.echo(f"{_clock()} {flow_run.name}: skipped, {who} is still going")
            return
        click.echo(f"{_clock()} {flow_run.name}: started")
        process = subprocess.Popen(
            [sys.executable, "-m", "flows.cli", "run", *self.arguments],
            cwd=self.root,
            env=os.environ | {SCHEDULED: str(flow_run.id)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._now = Attempt(flow_run, process)
        threading.Thread(target=self._now.follow, daemon=True).start()

    def _close(self, ended: Attempt) -> None:
        """Report how a run ended; if Prefect has no final state for it, set one, and retry the run if it failed."""
        code, name, flow_run = ended.process.returncode, ended.flow_run.name, ended.flow_run.id
        state = self._state(flow_run)
        if code == 0 and not state.is_final():
            self._set(flow_run, Completed(name="Cached", message="everything was fresh"))
        elif ended.told_to_stop and not state.is_final():
            self._set(flow_run, Cancelled(message="cancelled in Prefect"))
        elif not state.is_final():
            why = f"it was killed by signal {-code}" if code < 0 else ended.last_line
            self._set(flow_run, Crashed(message=why) if code < 0 else Failed(message=why))
            self._try_again(ended, why)
            return
        click.echo(f"{_clock()} {name}: {'done' if code == 0 else f'ended with exit code {code}'}")

    def _try_again(self, ended: Attempt, why: str) -> None:
        tried = self._tries.pop(ended.flow_run.id, 0) + 1
        if tried > self.retries.times:
            click.echo(f"{_clock()} {ended.flow_run.name}: failed, {why}")
            return
        later = datetime.now(UTC) + timedelta(seconds=self.retries.seconds)
        again: Any = Scheduled(scheduled_time=later)
        retry = self.client.create_flow_run_from_deployment(
            self.deployment, name=f"{ended.flow_run.name} again", state=again
        )
        self._tries[retry.id] = tried
        wait = f"try {tried + 1} of {self.retries.times + 1} in {self.retries.seconds:g} s"
        click.echo(f"{_clock()} {ended.flow_run.name}: {why} ({wait})")

    def _tell_next(self) -> None:
        waiting = self.client.get_scheduled_flow_runs_for_deployments([self.deployment])
        times = [flow_run.next_scheduled_start_time for flow_run in waiting if flow_run.next_scheduled_start_time]
        following = min(times, default=None)
        if following and following != self._told:
            self._told = following
            click.echo(f"next run: {following.astimezone():%Y-%m-%d %H:%M:%S %Z}")

    def _state(self, flow_run: UUID) -> State[Any]:
        try:
            state = self.client.read_flow_run(flow_run).state
        except ObjectNotFound:
            return Cancelled(message="deleted in Prefect")
        assert state is not None, "every flow run that is scheduled has a state"
        return state

    def _set(self, flow_run: UUID, state: Any) -> None:
        self.client.set_flow_run_state(flow_run, state, force=True)


def _clock() -> str:
    return f"{datetime.now().astimezone():%H:%M:%S}"


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:  # the process has ended
        return []
