"""A lock that allows one run and one schedule per workspace; it names its holder and, after a crash, the dead run.

This is the only module that locks without filelock, for two reasons: commands that must be quick use this lock, and
filelock takes a tenth of a second to import; and filelock cannot check a lock without taking it, as `is_locked` does.
"""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import orjson

from storage import paths
from storage.errors import InputError

LOCK = paths.WORKSPACE_LOCK
SCHEDULE = paths.SCHEDULE
PATIENCE_SECONDS = 0.3  # a process that only checks whether the workspace is free takes the lock for a moment


@dataclass(frozen=True)
class Holder:
    """The process that holds the lock, or held it when it died."""

    pid: int
    command: str
    since: str
    interrupted: bool = False  # it was told to stop, and stopped at once, even in the middle of a write


class WorkspaceBusyError(InputError):
    """Another process holds the workspace; `holder` describes it."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"{holder} is running in this workspace: wait for it, or stop it first")
        self.holder = holder


@dataclass
class Lock:
    """A held workspace lock; `dead` is an earlier run that ended too early, whose traces have not been repaired yet."""

    dead: Holder | None
    mended: bool = False


@contextmanager
def workspace_lock(root: Path, command: str, *, needs_room: bool = True) -> Iterator[Lock]:
    """Hold the workspace; raise WorkspaceBusyError, naming the holder, if another process holds it.

    The kernel releases the lock of a dead process. The content of the file stays, which shows that the process died.
    A command that frees space (`needs_room` is false) holds the lock even if the disk is too full for that content.
    """
    path = root / LOCK
    path.parent.mkdir(exist_ok=True)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+b") as file:
        if not _taken_soon(file.fileno()):
            raise WorkspaceBusyError(_in_words(_read(file.read())))
        lock = Lock(_read(file.read()))
        mine = Holder(os.getpid(), command, datetime.now(UTC).isoformat(timespec="seconds"))
        try:
            _write(file.fileno(), orjson.dumps(mine))
        except OSError as error:
            if needs_room or error.errno != errno.ENOSPC:
                raise
        try:
            yield lock
        finally:
            _write(file.fileno(), b"" if lock.mended or not lock.dead else orjson.dumps(lock.dead))


@contextmanager
def schedule_lock(root: Path, command: str) -> Iterator[None]:
    """Hold the workspace's schedule; raise InputError if there is one already: two would start every run twice."""
    path = root / SCHEDULE
    path.parent.mkdir(exist_ok=True)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+b") as file:
        if not _taken_soon(file.fileno()):
            holder = _read(file.read())
            raise InputError(f"{_in_words(holder)} schedules this workspace already: stop it first")
        mine = Holder(os.getpid(), command, datetime.now(UTC).isoformat(timespec="seconds"))
        _write(file.fileno(), orjson.dumps(mine))
        yield


def is_free(root: Path, lock: Path = LOCK) -> bool:
    """Return True if no process holds the workspace (or its schedule) at the moment."""
    path = root / lock
    if not path.exists():
        return True
    with path.open("rb") as file:
        return not is_locked(file.fileno())


def is_locked(descriptor: int) -> bool:
    """Return True if another process holds the lock of an open file; several processes may check at the same time."""
    return not _taken(descriptor, fcntl.LOCK_SH)


def holder_in_words(root: Path) -> str:
    """Return a description of the process that holds the workspace."""
    return _in_words(_read((root / LOCK).read_bytes()))


def _in_words(holder: Holder | None) -> str:
    return f"process {holder.pid} (`{holder.command}`, since {holder.since})" if holder else "another process"


def _taken_soon(descriptor: int) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not _taken(descriptor):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _taken(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def stopped(root: Path) -> None:
    """Record that this process, if it holds the workspace, was interrupted and did not die; repairs may be needed."""
    holder = _read((root / LOCK).read_bytes())
    if holder and holder.pid == os.getpid():
        (root / LOCK).write_bytes(orjson.dumps(replace(holder, interrupted=True)))


def _read(content: bytes) -> Holder | None:
    try:
        return Holder(**orjson.loads(content))
    except (orjson.JSONDecodeError, TypeError):
        return None


def _write(descriptor: int, content: bytes) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, content, 0)
