"""Wait for a Prefect server to answer."""

from __future__ import annotations

import os
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

from storage.errors import InputError

READY_SECONDS = 120  # the first start migrates a database for half a minute


def wait_until_ready(process: subprocess.Popen[bytes] | None, log: Path, api: str | None = None) -> None:
    """Return once the server (`api`, or PREFECT_API_URL) answers; raise InputError if it ends or does not answer."""
    url = f"{api or os.environ['PREFECT_API_URL']}/health"
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
    raise InputError(f"no Prefect server answers at {url}: correct PREFECT_API_URL or unset it")
