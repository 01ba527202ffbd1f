"""`supmer ui`: show the runs of this workspace in Prefect's user interface."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
import urllib.error
import urllib.request
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import orjson

from flows.lock import SCHEDULE, is_free
from flows.run.interrupt import raise_on_signals
from flows.server.access import Access, configured
from flows.server.lasting_server import announced, opener, start_lasting_server
from flows.workspace import enter
from storage.errors import InputError

PORT = 4200  # Prefect's default


@click.command(epilog="Exit codes: 0 stopped with Ctrl-C, 1 a bug, 2 bad input.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="Port to listen on; 0: any free one."
)
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@click.option(
    "--env", "environment", is_flag=True, help="Print the settings that lead Prefect's own commands to the server."
)
def command(port: int, no_browser: bool, environment: bool) -> None:
    """Serve the Prefect UI with the runs of this workspace on loopback, until Ctrl-C.

    Runs that start meanwhile report to this server and appear as they go. If a run is still going when you stop the
    command, the server stays until that run ends. The server demands a key of every client: the printed link
    contains it, so keep it to yourself.

    \b
    Examples:
      supmer ui
      supmer ui --port 4300 --no-browser
      eval "$(supmer ui --env)" && prefect worker start --pool supmer
    """
    root = enter()
    own = announced(root)
    there = configured() or own
    if environment:
        _print_environment(there)
        return
    if there:
        ours = own if own == there else None  # a server of the user has no page that takes the key
        click.echo(f"the runs of this workspace are already at {ours.link() if ours else there.origin}")
        if not no_browser:
            show(opener(root, ours).as_uri() if ours else there.origin)
        return
    from flows.server import prefect_home

    prefect_home.prepare(root)
    raise_on_signals()
    try:
        lasting = start_lasting_server(root, port)
    except KeyboardInterrupt:
        return
    try:
        click.echo(f"the runs of this workspace: {lasting.access.link()}  (Ctrl-C stops)")
        _pause_left_schedule(root, lasting.access)
        if not _has_runs(lasting.access):
            click.echo("no run has been made here yet: `supmer run` makes one, and it appears there as it goes")
        if not no_browser:
            show(opener(root, lasting.access).as_uri())
        lasting.server.over.wait()
        raise InputError(f"Prefect's server ended: see {prefect_home.HOME / 'server.log'}")
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        stays = lasting.leave()
        click.echo("\nstopped" + (": the server ends with the run that still reports to it" if stays else ""))


def _print_environment(there: Access | None) -> None:
    if there is None:
        raise InputError("no Prefect server serves this workspace: start `supmer ui` or `supmer serve` first")
    for name, value in there.environment.items():
        click.echo(f"export {name}={shlex.quote(value)}")


def show(address: str) -> None:
    """Open a graphical browser if there is one; a text browser would take over this terminal."""
    graphical = sys.platform in {"darwin", "win32"} or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    if graphical and sys.stdout.isatty():
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


def _has_runs(access: Access) -> bool:
    return bool(_asked(access, "POST", "/flow_runs/count"))


def _pause_left_schedule(root: Path, access: Access) -> None:
    """Pause the schedule of a `supmer serve` that was killed: this server would make runs that nobody takes."""
    from flows.server.prefect_home import FLOW, deployment_name

    if not is_free(root, SCHEDULE):
        return
    with suppress(urllib.error.HTTPError):  # there is no schedule
        left = _asked(access, "GET", f"/deployments/name/{FLOW}/{quote(deployment_name(root), safe='')}")
        if not left["paused"]:
            _asked(access, "POST", f"/deployments/{left['id']}/pause_deployment")
            click.echo("the schedule of a `supmer serve` that was killed is paused: start `supmer serve` again")


def _asked(access: Access, method: str, place: str) -> Any:
    """Return the server's answer to a request."""
    request = urllib.request.Request(  # noqa: S310 - our own address
        f"{access.api}{place}",
        data=b"{}" if method == "POST" else None,
        headers=access.headers | {"Content-Type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - our own address
        return orjson.loads(answer.read() or b"null")
