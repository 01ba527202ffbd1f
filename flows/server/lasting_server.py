"""A Prefect server that outlives runs, with its user interface and scheduler; runs find it and report to it.

The server writes its address to a file and keeps the file locked while it lives. The kernel releases the lock of a
dead process, so nobody uses the address of a dead server. If the process that started the server ends while a run
reports to it, the server stays until the run ends.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import click

from flows.lock import SCHEDULE, is_free, is_locked
from flows.server.artifacts import REPORT_PLACE
from flows.server.prefect_home import HOME
from flows.server.ready import wait_until_ready
from storage import paths
from storage.errors import InputError

ANNOUNCEMENT = paths.SERVER
HOST = "127.0.0.1"
GOODBYE_SECONDS = 1.5
LOOK_SECONDS = 0.2


def announced(root: Path) -> str | None:
    """Return the API address of the workspace's lasting server; None if there is none, or it is about to end."""
    try:
        with (root / ANNOUNCEMENT).open("rb") as file:
            if is_locked(file.fileno()):
                return file.read().decode() or None
    except FileNotFoundError:
        pass
    return None


@dataclass(frozen=True)
class Lasting:
    """A lasting server that this process has started."""

    root: Path
    api: str
    process: subprocess.Popen[bytes]

    def leave(self) -> bool:
        """Let the server end; return True if it stays because a run or a schedule still needs it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(GOODBYE_SECONDS)
        except subprocess.TimeoutExpired:
            if needed(self.root):
                return True
            self.process.kill()
            self.process.wait()
        return False


def start_lasting_server(root: Path, port: int) -> Lasting:
    """Start the server on loopback and wait until it answers; `port` 0 takes any free port.

    The server ends when this process has ended and no run needs it.
    """
    try:
        listening = socket.create_server((HOST, port))
    except OSError as error:
        raise InputError(f"port {port} of {HOST}: {os.strerror(error.errno or 0)}: name another with --port") from error
    (root / HOME).mkdir(exist_ok=True)
    (root / ANNOUNCEMENT).parent.mkdir(exist_ok=True)
    if not (root / HOME / "prefect.db").exists():
        click.echo("preparing Prefect's database in .prefect (first time only, about half a minute)")
    address = f"http://{HOST}:{listening.getsockname()[1]}"
    of_the_server = {
        "PREFECT_HOME": str(root / HOME),
        "PREFECT_UI_ENABLED": "true",
        "PREFECT_UI_API_URL": f"{address}/api",
        "PREFECT_UI_STATIC_DIRECTORY": str(root / HOME / "ui"),  # Prefect's own folder may be read-only
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    }
    with listening, (root / HOME / "server.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "flows.server.lasting_server", str(root), str(listening.fileno()), f"{address}/api"],
            env=os.environ | of_the_server,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            pass_fds=[listening.fileno()],
        )
    assert process.stdout is not None
    process.stdout.readline()  # returns when the server has announced itself or ended
    lasting = Lasting(root, f"{address}/api", process)
    try:
        wait_until_ready(process, root / HOME / "server.log", lasting.api)
    except BaseException:
        lasting.leave()
        raise
    return lasting


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
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GOODBYE_SECONDS)
    os._exit(0)


def main() -> None:
    """Announce the address, then import Prefect and serve."""
    root, descriptor, api = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    for number in (signal.SIGINT, signal.SIGHUP):  # sent to the whole group; the parent ends this server
        signal.signal(number, signal.SIG_IGN)
    from filelock import lock_descriptor

    announcement = os.open(root / ANNOUNCEMENT, os.O_RDWR | os.O_CREAT, 0o644)
    if not lock_descriptor(announcement, blocking=False):
        raise BlockingIOError(f"{root / ANNOUNCEMENT}: another server holds it")
    os.ftruncate(announcement, 0)
    os.pwrite(announcement, api.encode(), 0)
    print(api, flush=True)
    threading.Thread(target=_leave_after_parent, args=(root, announcement), daemon=True).start()
    import uvicorn
    from prefect.server.api.server import create_app
    from starlette.routing import Mount
    from starlette.staticfiles import StaticFiles

    app = create_app(final=True)
    report = StaticFiles(directory=root / paths.REPORT, html=True, check_dir=False)
    app.router.routes.insert(0, Mount(REPORT_PLACE, report))  # before Prefect's pages, which match every address
    # An open browser keeps its connections: do not wait for them.
    config = uvicorn.Config(app, log_level="error", lifespan="on", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=descriptor)])


if __name__ == "__main__":
    main()
