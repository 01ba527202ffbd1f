"""A Prefect server for one run: it starts while modules are imported, and ends with the run, even if that is killed.

Prefect can start a server by itself, but a killed run would leave that server behind, and it would start only after the
client's imports. A run that finds a lasting server of its workspace (`supmer ui`, `supmer serve`) reports to that one
and starts none.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flows.server.access import configured
from flows.server.artifacts import report_is_served
from flows.server.kept_server import KeptServer, leave_after_parent, reserve, start_kept
from flows.server.lasting_server import announced
from flows.server.ready import wait_until_ready

GOODBYE_SECONDS = 5

# A server for one run needs no automations and no stored events, and records task runs in batches. With Prefect's
# defaults it would take a tenth of a second of processor time for each shard, from the cores that do the work.
LEAN = {
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",  # seconds
}


def start_server(root: Path, log: Path) -> KeptServer | None:
    """Start a server that ends with this process; return None if PREFECT_API_URL or the workspace has a server already.

    Call this before Prefect is imported: Prefect sends its last log lines when the interpreter exits, and exit handlers
    run in reverse order, so the server stops after that.
    """
    if configured():
        return None
    report_is_served()
    if lasting := announced(root):
        lasting.use()
        return None
    server = start_on(reserve(0), log)
    server.access.use()
    return server


def find_report(root: Path) -> None:
    """Note that the report is served if the current server is one of this program, as `supmer ui` starts it."""
    lasting, current = announced(root), configured()
    if lasting and current and lasting.api == current.api:
        report_is_served()


def await_server(server: KeptServer | None, log: Path) -> None:
    """Return once the server answers: that of `start_server`, or without one that of PREFECT_API_URL."""
    if server:
        server.wait_until_ready()
    else:
        wait_until_ready(None, log)


def start_on(listening: socket.socket, log: Path) -> KeptServer:
    """Start a server for one run at a socket; it ends with this process."""
    lean = {name: os.environ.get(name, value) for name, value in LEAN.items()}
    server = start_kept("flows.server.run_server", log, listening, **lean)
    atexit.register(_stop, server)
    return server


def _stop(server: KeptServer) -> None:
    server.let_go()
    try:
        server.process.wait(GOODBYE_SECONDS)
    except subprocess.TimeoutExpired:
        server.process.kill()


@contextmanager
def importing() -> Iterator[None]:
    """Turn off garbage collection during large imports, where it would take half a second and find nothing."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()


def _leave_with_parent() -> None:
    """End this server when the pipe from the run closes; the kernel closes it even after kill -9."""
    sys.stdin.buffer.read()
    leave_after_parent(GOODBYE_SECONDS)


def main() -> None:
    """Import Prefect and serve."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the run ends this server
    listening = socket.socket(fileno=int(sys.argv[1]))
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    with importing():
        import uvicorn
        from prefect.server.api.server import create_app

        from flows.server.doors import Doors

        config = uvicorn.Config(Doors(create_app(ephemeral=True, final=True)), log_level="error", lifespan="on")
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
