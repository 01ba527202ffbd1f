"""Say what happens to a schedule that Prefect serves: its runs, the next one, and what others do to its deployment."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import click
import httpx
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowRunFilter,
    FlowRunFilterExpectedStartTime,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import ObjectNotFound

from storage.errors import InputError

LOOK_SECONDS = 1.0
LATEST = 20  # runs that are looked at each time
UNREACHABLE = (OSError, httpx.HTTPError)
UNDER_WAY = {StateType.PENDING, StateType.RUNNING, StateType.CANCELLING}


@dataclass
class Watch:
    """A look at the server once a second, and a line for each change."""

    client: SyncPrefectClient
    deployment: UUID
    _since: datetime = field(default_factory=lambda: datetime.now(UTC))
    _told: dict[UUID, StateType] = field(default_factory=dict)
    _names: dict[UUID, str] = field(default_factory=dict)  # of the runs under way
    _next: datetime | None = None
    _paused: bool = False

    def run(self, goes_on: Callable[[], bool]) -> None:
        """Look as long as `goes_on()`; raise InputError if it ends, or somebody deleted the deployment."""
        while goes_on():
            with suppress(*UNREACHABLE):  # the server may be away for a moment: look again later
                self.look()
            time.sleep(LOOK_SECONDS)
        raise InputError("Prefect's runner ended: see .prefect/server.log, and start `supmer serve` again")

    def look(self) -> None:
        """Tell what has changed since the last look; raise InputError if the deployment is gone and no run goes on."""
        try:
            deployment = self.client.read_deployment(self.deployment)
        except ObjectNotFound as error:
            if self._runs_left():
                return
            raise InputError("the schedule was deleted in Prefect: `supmer serve` makes it again") from error
        for flow_run in reversed(self._latest()):
            self._tell(flow_run)
        self._tell_pause(deployment)
        if not self._names:
            self._tell_next()

    def _latest(self) -> list[FlowRun]:
        due = {"after_": self._since, "before_": datetime.now(UTC)}
        return self.client.read_flow_runs(
            deployment_filter=DeploymentFilter(id=DeploymentFilterId(any_=[self.deployment])),
            flow_run_filter=FlowRunFilter(expected_start_time=FlowRunFilterExpectedStartTime.model_validate(due)),
            sort=FlowRunSort.EXPECTED_START_TIME_DESC,
            limit=LATEST,
        )

    def _runs_left(self) -> bool:
        """Return True if a run of the deleted deployment is still under way."""
        for flow_run in list(self._names):
            with suppress(ObjectNotFound):
                self._tell(self.client.read_flow_run(flow_run))
                continue
            self._names.pop(flow_run)
        return bool(self._names)

    def _tell(self, flow_run: FlowRun) -> None:
        state = flow_run.state
        if state is None:
            return
        if state.type in UNDER_WAY:
            self._names[flow_run.id] = flow_run.name  # a run gets the name that says what it does when it starts
        else:
            self._names.pop(flow_run.id, None)
        if self._told.get(flow_run.id) != state.type:
            self._told[flow_run.id] = state.type
            going = ", ".join(name for other, name in self._names.items() if other != flow_run.id)
            if said := _in_words(flow_run.name, state, going):
                click.echo(f"{_clock()} {said}")

    def _tell_pause(self, deployment: Any) -> None:
        paused = deployment.paused or not any(schedule.active for schedule in deployment.schedules)
        if paused and not self._paused:
            click.echo(f"{_clock()} paused in Prefect: nothing runs until it is resumed there")
        elif self._paused and not paused:
            click.echo(f"{_clock()} resumed in Prefect")
            self._next = None
        self._paused = paused

    def _tell_next(self) -> None:
        waiting = self.client.get_scheduled_flow_runs_for_deployments([self.deployment])
        times = [flow_run.next_scheduled_start_time for flow_run in waiting if flow_run.next_scheduled_start_time]
        following = min(times, default=None)
        if following and following != self._next and following > datetime.now(UTC):
            self._next = following
            click.echo(f"next run: {following.astimezone():%Y-%m-%d %H:%M:%S %Z}")


def _in_words(name: str, state: Any, going: str) -> str:
    """Return what a line says about a run in a state; nothing about a state that is not worth a line."""
    if state.type == StateType.CANCELLED and state.name == "Skipped":
        return f"a run was due and is skipped: {state.message}"
    if state.type == StateType.CANCELLED and "concurrency limit" in (state.message or ""):
        return f"a run was due and is skipped: {going or 'the run before it'} is still going"
    words = {
        StateType.RUNNING: "a run has started",
        StateType.COMPLETED: f"{name}: done",
        StateType.CANCELLED: f"{name}: cancelled",
        StateType.FAILED: f"{name}: {state.message or 'failed'}",
        StateType.CRASHED: f"{name}: crashed, the next run goes on where it was: {state.message}",
    }
    return words.get(state.type, "")


def _clock() -> str:
    return f"{datetime.now().astimezone():%H:%M:%S}"
