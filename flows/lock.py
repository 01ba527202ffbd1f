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


@dataclass
class Lock:
    """The workspace, held: `dead` is the run that died holding it and has not been mended since."""

    dead: Holder | None
    mended: bool = False


@contextmanager
def workspace_lock(root: Path, command: str) -> Iterator[Lock]:
    """Hold the workspace, or refuse in one line that names who does.

    The kernel drops the lock of a dead process; the file's content stays, and tells that it died.
    """
    path = root / LOCK
    path.parent.mkdir(exist_ok=True)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+b") as file:
        if not _taken(file.fileno()):
            holder = _read(file.read())
            who = f"process {holder.pid} (`{holder.command}`, since {holder.since})" if holder else "another process"
            raise InputError(f"{who} is running in this workspace: wait for it, or stop it first")
        lock = Lock(_read(file.read()))
        mine = Holder(os.getpid(), command, datetime.now(UTC).isoformat(timespec="seconds"))
        _write(file.fileno(), orjson.dumps(mine))
        try:
            yield lock
        finally:
            _write(file.fileno(), b"" if lock.mended or not lock.dead else orjson.dumps(lock.dead))


def is_free(root: Path) -> bool:
    """Whether nobody holds the workspace just now."""
    path = root / LOCK
    if not path.exists():
        return True
    with path.open("rb") as file:
        return _taken(file.fileno())


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


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
