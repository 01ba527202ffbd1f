"""One run a workspace: a lock that names its holder and, after a crash, the run that died."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import orjson

from storage.errors import InputError

LOCK = Path(".supmer", "lock")


@dataclass(frozen=True)
class Holder:
    """Who holds the lock, or held it when it died."""

    pid: int
    command: str
    since: str


@contextmanager
def workspace_lock(root: Path, command: str) -> Iterator[Holder | None]:
    """Hold the workspace; yield the earlier holder if it died without letting go, else None.

    The kernel drops the lock of a dead process; the file's content stays, and tells that it died.
    """
    path = root / LOCK
    path.parent.mkdir(exist_ok=True)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _read(file.read())
            who = f"process {holder.pid} (`{holder.command}`, since {holder.since})" if holder else "another process"
            raise InputError(f"{who} is running in this workspace: wait for it, or stop it first") from None
        dead = _read(file.read())
        mine = Holder(os.getpid(), command, datetime.now(UTC).isoformat(timespec="seconds"))
        _write(file.fileno(), orjson.dumps(mine))
        yield dead
        _write(file.fileno(), b"")


def forget(root: Path) -> None:
    """Let go in good order without leaving the context: what is on record is no longer a run that died."""
    (root / LOCK).write_bytes(b"")


def _read(content: bytes) -> Holder | None:
    try:
        return Holder(**orjson.loads(content))
    except (orjson.JSONDecodeError, TypeError):
        return None


def _write(descriptor: int, content: bytes) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, content, 0)
