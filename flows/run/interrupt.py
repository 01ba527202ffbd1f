"""Handle Ctrl-C and SIGTERM: stop at once, tell Prefect, and say how to continue."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn
from uuid import UUID

import click
import psutil

from flows.lock import stopped
from flows.run.measure import SERVERS
from flows.server.access import configured
from flows.server.kept_server import is_kept_here, let_all_go

TELL_SECONDS = 3.0  # of the five seconds in which a run must stop
LOOK_SECONDS = 2.0
SUPERVISED = "PREFECT__FLOW_RUN_ID"  # environment variable: set by a runner or worker of Prefect, which watches the run


def stop_on_signals() -> None:
    """Handle both signals from now on; call this again inside the flow, where Prefect sets its own SIGTERM handler."""
    signal.signal(signal.SIGINT, _stop)
    signal.signal(signal.SIGTERM, _stop)


def stop_when_cancelled() -> None:
    """Stop this run when somebody cancels it in Prefect's interface; a runner or worker of Prefect does so itself."""
    if SUPERVISED not in os.environ and not is_kept_here():  # the server of a single run has no interface
        threading.Thread(target=_watch, args=(_flow_run(),), daemon=True).start()


def _watch(flow_run_id: UUID | None) -> None:
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        while flow_run_id:
            time.sleep(LOOK_SECONDS)
            with suppress(Exception):  # a server that is busy or away does not stop the work
                state = client.read_flow_run(flow_run_id).state
                if state and (state.is_cancelling() or state.is_cancelled()):
                    os.kill(os.getpid(), signal.SIGTERM)


_given_up: list[str] = []  # why this process stops itself


def give_up(problem: str) -> None:
    """Stop this run as Ctrl-C does, but because of a problem, with exit code 2; any thread may call this."""
    _given_up.append(problem)
    os.kill(os.getpid(), signal.SIGTERM)


def raise_on_signals() -> None:
    """Raise KeyboardInterrupt on both signals, for commands that are meant to be ended with Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the background jobs of a script ignore it by default
    signal.signal(signal.SIGTERM, signal.default_int_handler)


_forced: set[str] = set()  # stages that are to run although they are fresh, and have not ended


def note_forced(stages: Iterable[str]) -> None:
    """Remember the forced stages: after an interruption they count as fresh again, with their earlier outputs."""
    _forced.clear()
    _forced.update(stages)


def note_ended(stage: str) -> None:
    """Remember that a stage has ended."""
    _forced.discard(stage)


def advice() -> str:
    """Return how to go on after an interruption."""
    if not _forced:
        return "`supmer run` continues from here"
    forced = " ".join(f"--force {stage}" for stage in sorted(_forced))
    return f"`supmer run` continues from here, and `supmer run {forced}` forces again"


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    """End the process without waiting for shards: unfinished files have temporary names and are never read."""
    for another in (signal.SIGINT, signal.SIGTERM):
        signal.signal(another, signal.SIG_IGN)
    told, given_up = False, [*_given_up]
    if sys.stdout.isatty():
        click.echo("\x1b[?25h", nl=False)  # a live bar hides the cursor
    what = f"supmer: {given_up[0]}" if given_up else "interrupted"
    click.echo(f"\n{what}: finished stages and shards are kept; {advice()}", err=True)
    logging.disable()  # what is said about workers that are killed now would mislead
    children = psutil.Process().children(recursive=True)
    trackers = [child for child in children if _runs(child, "resource_tracker")]
    if "prefect" in sys.modules and not given_up:
        with suppress(Exception):  # the user asked to stop now, even if Prefect cannot be told
            told = _tell_prefect()
    let_all_go()
    for child in children:
        if child not in trackers:  # a worker that outlives Python's resource tracker would start another one
            with suppress(psutil.Error):
                # Workers write to temporary files and can be killed; Prefect's server has to close its database.
                child.terminate() if any(_runs(child, server) for server in SERVERS) else child.kill()
    psutil.wait_procs([child for child in children if child not in trackers], timeout=1)
    for tracker in trackers:
        with suppress(psutil.Error):
            tracker.kill()
    with suppress(OSError):  # the workspace was not open yet
        stopped(Path.cwd())
    code = 2 if given_up else 128 + number
    os._exit(0 if told and SUPERVISED in os.environ else code)  # another code would be a crash for Prefect


def _runs(process: psutil.Process, program: str) -> bool:
    try:
        return program in " ".join(process.cmdline())
    except psutil.Error:
        return False


def _flow_run() -> UUID | None:
    from prefect.context import FlowRunContext

    context = FlowRunContext.get()
    return context.flow_run.id if context and context.flow_run else None


def _tell_prefect() -> bool:
    """Mark the current flow run as cancelled; return True if the server has done so."""
    import httpx

    flow_run = _flow_run()
    if flow_run is None:
        return False
    state = {"type": "CANCELLED", "name": "Interrupted", "message": "Stopped by the user; the next run continues."}
    url = f"{os.environ['PREFECT_API_URL']}/flow_runs/{flow_run}/set_state"
    headers = access.headers if (access := configured()) else {}
    answer = httpx.post(url, json={"state": state, "force": True}, headers=headers, timeout=TELL_SECONDS)
    return answer.is_success
