"""A Prefect server that outlives runs, with its user interface and scheduler; runs find it and report to it.

The server writes its address and key to a file that only this user can read, and keeps the file locked while it lives.
The kernel releases the lock of a dead process, so nobody uses the address of a dead server. If the process that started
the server ends while a run reports to it, the server stays until the run ends.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import orjson

from flows.lock import SCHEDULE, is_free, is_locked
from flows.server.access import SERVER_KEY, Access
from flows.server.kept_server import HOST, KeptServer, leave_after_parent, reserve, start_kept
from flows.server.prefect_home import HOME
from flows.workspace import private_folder
from storage import paths
from storage.atomic import write_bytes
from storage.signs_of_life import doing

ANNOUNCEMENT = paths.SERVER
GOODBYE_SECONDS = 1.5
LOOK_SECONDS = 0.2


def announced(root: Path) -> Access | None:
    """Return the access to the workspace's lasting server; None if there is none, or it is about to end."""
    try:
        with (root / ANNOUNCEMENT).open("rb") as file:
            if is_locked(file.fileno()):
                return Access(**orjson.loads(file.read()))
    except (FileNotFoundError, orjson.JSONDecodeError, TypeError):
        pass
    return None


def is_alive(root: Path) -> bool:
    """Return True if a lasting server of the workspace lives, even if it is about to end."""
    return not is_free(root, ANNOUNCEMENT)


@dataclass(frozen=True)
class Lasting:
    """A lasting server that this process has started."""

    root: Path
    server: KeptServer

    @property
    def access(self) -> Access:
        """The address and key of the server."""
        return self.server.access

    def leave(self) -> bool:
        """Let the server end; return True if it stays because a run or a schedule still needs it."""
        self.server.let_go()
        process = self.server.process
        try:
            process.wait(GOODBYE_SECONDS)
        except subprocess.TimeoutExpired:
            if needed(self.root):
                return True
            process.kill()
            process.wait()
        return False


def start_lasting_server(root: Path, port: int) -> Lasting:
    """Start the server on loopback and wait until it answers; `port` 0 takes any free port.

    The server ends when this process has ended and no run needs it.
    """
    return start_lasting_server_at(root, reserve(port))


def start_lasting_server_at(root: Path, listening: socket.socket, key: str | None = None) -> Lasting:
    """Start the server at a socket, with a new key or with that of a server that died, and wait until it answers."""
    private_folder(root / HOME)
    private_folder(root / ANNOUNCEMENT.parent)
    if not (root / HOME / "prefect.db").exists():
        click.echo("preparing Prefect's database in .prefect (first time only, about half a minute)")
    server = start_kept(
        "flows.server.lasting_server",
        root / HOME / "server.log",
        listening,
        str(root),
        key=key,
        PREFECT_HOME=str(root / HOME),
        PREFECT_UI_ENABLED="true",
        PREFECT_UI_API_URL="/api",
        PREFECT_UI_STATIC_DIRECTORY=str(root / HOME / "ui"),  # Prefect's own folder may be read-only
        PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT="false",
        # In memory, as by default, the places that runs hold would be lost with a server that dies, and the runs too.
        PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE="prefect.server.concurrency.lease_storage.filesystem",
    )
    lasting = Lasting(root, server)
    try:
        with doing("starting Prefect's server"):
            server.wait_until_ready()
    except BaseException:
        lasting.leave()
        raise
    return lasting


def opener(root: Path, access: Access, place: str = "/") -> Path:
    """Write and return a page that only this user can read and that leads a browser to the server with its key.

    A browser gets this file as its argument instead of the key: every user can read the arguments of a process.
    """
    path = root / paths.OPENER
    page = f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={access.link(place)}">'
    write_bytes(path, page.encode())
    path.chmod(0o600)
    return path


def needed(root: Path) -> bool:
    """Return True if a run or a schedule is active in this workspace."""
    return not is_free(root) or not is_free(root, SCHEDULE)


def _leave_after_parent(root: Path, announcement: int) -> None:
    """Wait until the process that started this server has ended and nobody needs the server, then end it."""
    sys.stdin.buffer.read()
    # The order matters: a run takes the workspace lock before it reads the address, so a run that has read the address
    # counts in `needed`.
    os.ftruncate(announcement, 0)
    while needed(root):
        time.sleep(LOOK_SECONDS)
    leave_after_parent(GOODBYE_SECONDS)


def _announce(root: Path, access: Access) -> int:
    """Write the access to the file that runs look at, lock it, and return its descriptor."""
    from filelock import lock_descriptor

    announcement = os.open(root / ANNOUNCEMENT, os.O_RDWR | os.O_CREAT, 0o600)
    os.fchmod(announcement, 0o600)  # a file of an earlier version
    if not lock_descriptor(announcement, blocking=False):
        raise BlockingIOError(f"{root / ANNOUNCEMENT}: another server holds it")
    os.ftruncate(announcement, 0)
    os.pwrite(announcement, orjson.dumps(asdict(access)), 0)
    return announcement


def main() -> None:
    """Announce the address, then import Prefect and serve."""
    root, listening = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    for number in (signal.SIGINT, signal.SIGHUP):  # sent to the whole group; the parent ends this server
        signal.signal(number, signal.SIG_IGN)
    port, key = listening.getsockname()[1], os.environ[SERVER_KEY]
    announcement = _announce(root, Access(f"http://{HOST}:{port}/api", key))
    threading.Thread(target=_leave_after_parent, args=(root, announcement), daemon=True).start()
    import uvicorn
    from prefect.server.api.server import create_app

    from flows.server.doors import Doors, pages

    app = create_app(final=True)
    app.router.routes[:0] = pages(root, key, port)  # before Prefect's pages, which match every address
    # An open browser keeps its connections: do not wait for them.
    config = uvicorn.Config(Doors(app), log_level="error", lifespan="on", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
