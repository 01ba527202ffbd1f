"""Taking turns: one process at a time, on this machine, holds a file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def turn(path: Path) -> Iterator[None]:
    """Wait until no other process holds `path`, and hold it; the kernel lets go of it however this process ends.

    The file stays where it is. Who holds it may remove it: those who wait then take their turns at a new one.
    """
    from filelock import FileLock

    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path, fallback_to_soft=False):  # a soft lock would outlast a process that was killed
        yield
