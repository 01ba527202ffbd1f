"""A Prefect server of our own for one run: it starts while other things load, and ends with the run, however that ends.

Prefect can start one by itself, but then a killed run leaves it behind, and its start waits for the client's imports.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

from storage.errors import InputError

READY_SECONDS = 120  # the first start migrates a database for half a minute
GOODBYE_SECONDS = 5


def start_server(log: Path) -> subprocess.Popen[bytes] | None:
    """Serve Prefect's API to this process until it ends, unless PREFECT_API_URL names a server already.

    Called before Prefect is imported: Prefect sends its last log lines when the interpreter exits, and exit handlers
    run in reverse, so the server stops after that.
    """
    if os.environ.get("PREFECT_API_URL"):
        return None
    command = [sys.executable, "-m", "flows.server"]
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


def wait_until_ready(process: subprocess.Popen[bytes] | None, log: Path) -> None:
    """Return once the server answers."""
    url = f"{os.environ['PREFECT_API_URL']}/health"
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if process and process.poll() is not None:
            last = log.read_text(errors="replace").strip().splitlines()[-1:] or ["it left no message"]
            raise InputError(f"Prefect's server did not start ({last[0]}): see {log}")
        try:
            with urllib.request.urlopen(url, timeout=5):  # noqa: S310 - our own address, or the user's setting
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise InputError(f"no Prefect server answers at {url}: mend PREFECT_API_URL or unset it")


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
    import uvicorn
    from prefect.server.api.server import create_app

    config = uvicorn.Config(create_app(ephemeral=True, final=True), log_level="error", lifespan="on")
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
