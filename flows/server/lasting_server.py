"""A Prefect server that outlasts runs, with its user interface and its scheduler; runs find it and report to it.

Its address lies in a file that it keeps locked as long as it lives: the kernel drops the lock of a dead process, so an
address is never taken from one. Who asked for the server may leave: while a run reports to it, it stays.
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
    """The API address of the workspace's lasting server, if there is one that does not mean to leave."""
    try:
        with (root / ANNOUNCEMENT).open("rb") as file:
            if is_locked(file.fileno()):
                return file.read().decode() or None
    except FileNotFoundError:
        pass
    return None


@dataclass(frozen=True)
class Lasting:
    """A server that this process has started."""

    root: Path
    api: str
    process: subprocess.Popen[bytes]

    def leave(self) -> bool:
        """Take leave of the server; return whether it stays, because a run reports to it."""
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
    """Start the server on loopback and wait for it; `port` 0 takes any.

    It leaves once this process has, and no run needs it.
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
        "PREFECT_UI_STATIC_DIRECTORY": str(root / HOME / "ui"),  # where Prefect is installed may not be ours to write
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
    process.stdout.readline()  # it has announced itself, or ended
    lasting = Lasting(root, f"{address}/api", process)
    try:
        wait_until_ready(process, root / HOME / "server.log", lasting.api)
    except BaseException:
        lasting.leave()
        raise
    return lasting


def needed(root: Path) -> bool:
    """Whether a run or a schedule is under way in this workspace."""
    return not is_free(root) or not is_free(root, SCHEDULE)


def _leave_after_parent(root: Path, announcement: int) -> None:
    """Wait until who asked for this server is gone, then until nobody needs it."""
    sys.stdin.buffer.read()
    # In this order: a run holds the workspace before it looks here, so that one which saw the address is seen below.
    os.ftruncate(announcement, 0)
    while needed(root):
        time.sleep(LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GOODBYE_SECONDS)
    os._exit(0)


def main() -> None:
    """Announce the address, then import Prefect and serve."""
    root, descriptor, api = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    for number in (signal.SIGINT, signal.SIGHUP):  # they reach the whole group: who asked for the server ends it
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
    app.router.routes.insert(0, Mount(REPORT_PLACE, report))  # before Prefect's own pages, which take every address
    # An open browser holds on to its connections: they are not waited for.
    config = uvicorn.Config(app, log_level="error", lifespan="on", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=descriptor)])


if __name__ == "__main__":
    main()
