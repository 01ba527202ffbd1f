"""Prefect inside this workspace: its settings, and the cleanup of its records after a killed run."""

from __future__ import annotations

import hashlib
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from storage import paths

HOME = paths.PREFECT_HOME
FLOW = "supmer"  # the name of the flow, and a tag of its runs
CONSOLE_LEVEL = "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"
SILENT = "CRITICAL"
LONGEST_NAME = 200
PAGE = 100


def settings(root: Path) -> dict[str, str]:
    """Return the environment variables for Prefect in this workspace; set them before Prefect is imported."""
    return {
        "PREFECT_HOME": str(root / HOME),
        CONSOLE_LEVEL: SILENT,  # supmer prints progress; Prefect keeps the log
        "PREFECT_LOGGING_INTERNAL_LEVEL": SILENT,  # events that a dead server did not get, a page for each
        "PREFECT_CLIENT_MAX_RETRIES": "6",  # two minutes, if a server does not answer
        "PREFECT_UI_ENABLED": "false",
    }


def prepare(root: Path) -> None:
    """Apply the settings, except those that the user has set."""
    for name, value in settings(root).items():
        os.environ.setdefault(name, value)
    logging.raiseExceptions = False  # do not print an error for a log line that the server refuses


def prints_logs() -> bool:
    """Return True if Prefect prints its log in this process, as it does in those that `prefect worker` starts."""
    return os.environ.get(CONSOLE_LEVEL) != SILENT


def workspace_tag(root: Path) -> str:
    """Return the Prefect tag of everything that runs in this workspace."""
    return f"workspace:{hashlib.sha256(str(root).encode()).hexdigest()[:12]}"


def deployment_name(root: Path) -> str:
    """Return the name of the deployment that `supmer serve` makes in this workspace."""
    return f"{root.name}-{workspace_tag(root).partition(':')[2][:6]}"


def describe_run(root: Path, name: str) -> None:
    """Give the current flow run a name that says what runs and why, and the tags of the workspace."""
    from prefect.client.orchestration import get_client
    from prefect.context import FlowRunContext

    context = FlowRunContext.get()
    assert context is not None
    assert context.flow_run is not None
    tags = {*context.flow_run.tags, FLOW, workspace_tag(root)}
    with suppress(Exception), get_client(sync_client=True) as client:  # work does not fail for want of a name
        client.update_flow_run(context.flow_run.id, name=name[:LONGEST_NAME], tags=sorted(tags))


def mark_crashed(root: Path, but: UUID | None = None) -> None:
    """Mark the flow and task runs of this workspace that Prefect still records as running as crashed.

    Call it only while holding the workspace lock, before a task starts: then every such run but one's own is dead.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import (
        FlowRunFilter,
        FlowRunFilterId,
        FlowRunFilterState,
        FlowRunFilterStateType,
        FlowRunFilterTags,
        TaskRunFilter,
        TaskRunFilterState,
        TaskRunFilterStateType,
    )
    from prefect.client.schemas.objects import StateType
    from prefect.states import Crashed

    unfinished = [StateType.RUNNING, StateType.PENDING, StateType.CANCELLING]
    mine = FlowRunFilterTags(all_=[workspace_tag(root)])
    own = FlowRunFilterId(not_any_=[but] if but else None)
    flows = FlowRunFilter(id=own, tags=mine, state=FlowRunFilterState(type=FlowRunFilterStateType(any_=unfinished)))
    waiting = [*unfinished, StateType.SCHEDULED]  # scheduled: a task between two tries
    tasks = TaskRunFilter(state=TaskRunFilterState(type=TaskRunFilterStateType(any_=waiting)))
    dead: Any = Crashed(message="The process was killed; the next run went on from its finished shards.")
    with get_client(sync_client=True) as client:
        while flow_runs := client.read_flow_runs(flow_run_filter=flows, limit=PAGE):
            for flow_run in flow_runs:
                client.set_flow_run_state(flow_run.id, dead, force=True)
        while task_runs := client.read_task_runs(
            flow_run_filter=FlowRunFilter(tags=mine), task_run_filter=tasks, limit=PAGE
        ):
            for task_run in task_runs:
                client.set_task_run_state(task_run.id, dead, force=True)
