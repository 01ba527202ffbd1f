"""Wait for a Prefect server to answer."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import closing, suppress
from pathlib import Path

from storage.errors import InputError

FULL_DISK_BYTES = 4_000_000  # with less free space Prefect cannot write its database
FULL_DISK_WORDS = ("No space left on device", "database or disk is full")
LOG_BYTES = 20_000  # the end of the log, which is about the last start
READY_SECONDS = 120  # the first start migrates a database for half a minute


def wait_until_ready(process: subprocess.Popen[bytes] | None, log: Path, api: str | None = None) -> None:
    """Return once the server (`api`, or PREFECT_API_URL) answers; raise InputError if it ends or does not answer."""
    url = f"{api or os.environ['PREFECT_API_URL']}/health"
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if process and process.poll() is not None:
            raise InputError(_why_it_ended(log))
        try:
            with urllib.request.urlopen(url, timeout=5):  # noqa: S310 - our own address, or the user's setting
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise InputError(f"no Prefect server answers at {url}: correct PREFECT_API_URL or unset it")


def _why_it_ended(log: Path) -> str:
    """Return one line that says why the server did not start, and what to do."""
    with suppress(OSError):
        said = log.read_bytes()[-LOG_BYTES:].decode(errors="replace").strip()
        free = shutil.disk_usage(log.parent).free
        if free < FULL_DISK_BYTES or any(words in said for words in FULL_DISK_WORDS):
            room = f"No space left on device: {free:,} bytes are free on the disk of {log.parent}"
            return f"Prefect's server did not start: {room}: make room (`supmer gc` frees some)"
        database = log.with_name("prefect.db")
        if database.exists() and not _is_whole(database):
            return (
                f"Prefect's server did not start: {database} is damaged: delete it; it holds the history of runs, and "
                "no results"
            )
        last = said.splitlines()[-1:] or ["it left no message"]
        return f"Prefect's server did not start ({last[0]}): see {log}"
    return f"Prefect's server did not start, and {log} cannot be read: check that the disk has room"


def _is_whole(database: Path) -> bool:
    """Return True if SQLite can read a database."""
    import sqlite3

    try:
        with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
    except sqlite3.DatabaseError:
        return False
