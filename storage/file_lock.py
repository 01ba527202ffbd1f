"""Taking turns: one process at a time, on this machine, holds a file."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def turn(path: Path) -> Iterator[None]:
    """Wait until no other process holds `path`, and hold it; the kernel lets go of it however this process ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
