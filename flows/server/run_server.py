"""A Prefect server of our own for one run: it starts while other things load, and ends with the run, however that ends.

Prefect can start one by itself, but then a killed run leaves it behind, and its start waits for the client's imports.
A run that finds a lasting server of its workspace (`supmer ui`, `supmer serve`) reports there and starts none.
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
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flows.server.artifacts import report_is_served
from flows.server.lasting_server import announced

GOODBYE_SECONDS = 5

# A server for one run has no automations to trigger and nobody to show events to; it writes down task runs many at a
# time. Without this it takes a tenth of a second of processor time a shard, from the cores that do the work.
LEAN = {
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",  # seconds
}


def start_server(root: Path, log: Path) -> subprocess.Popen[bytes] | None:
    """Serve Prefect's API to this process until it ends, unless PREFECT_API_URL or the workspace has a server already.

    Called before Prefect is imported: Prefect sends its last log lines when the interpreter exits, and exit handlers
    run in reverse, so the server stops after that.
    """
    if os.environ.get("PREFECT_API_URL"):
        return None
    report_is_served()
    if lasting := announced(root):
        os.environ["PREFECT_API_URL"] = lasting
        return None
    command = [sys.executable, "-m", "flows.server.run_server"]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as errors:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
    assert process.stdout is not None
    os.environ["PREFECT_API_URL"] = f"http://127.0.0.1:{int(process.stdout.readline() or 0)}/api"
    atexit.register(_stop, process)
    return process


def _stop(process: subprocess.Popen[bytes]) -> None:
    try:
        process.communicate(timeout=GOODBYE_SECONDS)  # closes the pipe, which the server takes as goodbye
    except subprocess.TimeoutExpired:
        process.kill()


@contextmanager
def importing() -> Iterator[None]:
    """Import much at once: nothing of it is garbage, and to look for some among it takes half a second."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()


def _leave_with_parent() -> None:
    """End this server when the pipe from the run closes: the kernel does that even after kill -9."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GOODBYE_SECONDS)
    os._exit(0)


def main() -> None:
    """Tell the port first, then import Prefect and serve."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the run ends this one
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    for name, value in LEAN.items():
        os.environ.setdefault(name, value)
    with importing():
        import uvicorn
        from prefect.server.api.server import create_app

        config = uvicorn.Config(create_app(ephemeral=True, final=True), log_level="error", lifespan="on")
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
