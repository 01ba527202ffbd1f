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
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flows.server.artifacts import report_is_served
from flows.server.lasting_server import announced

GOODBYE_SECONDS = 5

# A server for one run needs no automations and no stored events, and records task runs in batches. With Prefect's
# defaults it would take a tenth of a second of processor time for each shard, from the cores that do the work.
LEAN = {
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",  # seconds
}


def start_server(root: Path, log: Path) -> subprocess.Popen[bytes] | None:
    """Start a server that ends with this process; return None if PREFECT_API_URL or the workspace has a server already.

    Call this before Prefect is imported: Prefect sends its last log lines when the interpreter exits, and exit handlers
    run in reverse order, so the server stops after that.
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
        process.communicate(timeout=GOODBYE_SECONDS)  # closes the pipe, which ends the server
    except subprocess.TimeoutExpired:
        process.kill()


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
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GOODBYE_SECONDS)
    os._exit(0)


def main() -> None:
    """Print the port first, then import Prefect and serve."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the run ends this server
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
