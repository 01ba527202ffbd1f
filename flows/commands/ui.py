"""`supmer ui`: show the runs of this workspace in Prefect's user interface."""

from __future__ import annotations

import os
import signal
import sys
import threading
import urllib.request
import webbrowser

import click
import orjson

from flows.run.interrupt import raise_on_signals
from flows.server.lasting_server import announced, start_lasting_server
from flows.workspace import enter
from storage.errors import InputError

PORT = 4200  # Prefect's default


@click.command(epilog="Exit codes: 0 stopped with Ctrl-C, 1 a bug, 2 bad input.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="Port to listen on; 0: any free one."
)
@click.option("--no-browser", is_flag=True, help="Only print the address.")
def command(port: int, no_browser: bool) -> None:
    """Serve the Prefect UI with the runs of this workspace on loopback, until Ctrl-C.

    Runs that start meanwhile report to this server and appear as they go. If a run is still going when you stop the
    command, the server stays until that run ends.

    \b
    Examples:
      supmer ui
      supmer ui --port 4300 --no-browser
    """
    root = enter()
    there = os.environ.get("PREFECT_API_URL") or announced(root)
    if there:
        click.echo(f"the runs of this workspace are already at {interface(there)}")
        if not no_browser:
            show(interface(there))
        return
    from flows.server import prefect_home

    prefect_home.prepare(root)
    raise_on_signals()
    try:
        server = start_lasting_server(root, port)
    except KeyboardInterrupt:
        return
    try:
        click.echo(f"the runs of this workspace: {interface(server.api)}  (Ctrl-C stops)")
        if not _has_runs(server.api):
            click.echo("no run has been made here yet: `supmer run` makes one, and it appears there as it goes")
        if not no_browser:
            show(interface(server.api))
        server.process.wait()
        raise InputError(f"Prefect's server ended: see {prefect_home.HOME / 'server.log'}")
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        stays = server.leave()
        click.echo("\nstopped" + (": the server ends with the run that still reports to it" if stays else ""))


def interface(api: str) -> str:
    """Return the address of the user interface that belongs to an API address."""
    return api.removesuffix("/").removesuffix("/api")


def show(address: str) -> None:
    """Open a graphical browser if there is one; a text browser would take over this terminal."""
    graphical = sys.platform in {"darwin", "win32"} or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    if graphical and sys.stdout.isatty():
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


def _has_runs(api: str) -> bool:
    request = urllib.request.Request(  # noqa: S310 - our own address
        f"{api}/flow_runs/count", data=b"{}", headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - our own address
        return bool(orjson.loads(answer.read()))
