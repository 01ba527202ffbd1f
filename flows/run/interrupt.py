"""Handle Ctrl-C and SIGTERM: stop at once, tell Prefect, and say how to continue."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click
import psutil

from flows.lock import stopped
from flows.run.measure import SERVER
from flows.server.access import configured
from flows.server.kept_server import let_all_go

TELL_SECONDS = 3.0  # of the five seconds in which a run must stop


def stop_on_signals() -> None:
    """Handle both signals from now on; call this again inside the flow, where Prefect sets its own SIGTERM handler."""
    signal.signal(signal.SIGINT, _stop)
    signal.signal(signal.SIGTERM, _stop)


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
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.stdout.isatty():
        click.echo("\x1b[?25h", nl=False)  # a live bar hides the cursor
    click.echo(f"\ninterrupted: finished stages and shards are kept; {advice()}", err=True)
    children = psutil.Process().children(recursive=True)
    trackers = [child for child in children if _runs(child, "resource_tracker")]
    if "prefect" in sys.modules:
        with suppress(Exception):  # the user asked to stop now, even if Prefect cannot be told
            _tell_prefect()
    let_all_go()
    for child in children:
        if child not in trackers:  # a worker that outlives Python's resource tracker would start another one
            with suppress(psutil.Error):
                # Workers write to temporary files and can be killed; Prefect's server has to close its database.
                child.terminate() if _runs(child, SERVER) else child.kill()
    psutil.wait_procs([child for child in children if child not in trackers], timeout=1)
    for tracker in trackers:
        with suppress(psutil.Error):
            tracker.kill()
    stopped(Path.cwd())
    os._exit(128 + number)


def _runs(process: psutil.Process, program: str) -> bool:
    try:
        return program in " ".join(process.cmdline())
    except psutil.Error:
        return False


def _tell_prefect() -> None:
    import httpx
    from prefect.context import FlowRunContext

    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        return
    state = {"type": "CANCELLED", "name": "Interrupted", "message": "Stopped by the user; the next run continues."}
    url = f"{os.environ['PREFECT_API_URL']}/flow_runs/{context.flow_run.id}/set_state"
    headers = access.headers if (access := configured()) else {}
    httpx.post(url, json={"state": state, "force": True}, headers=headers, timeout=TELL_SECONDS)
