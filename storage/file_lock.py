"""A lock file that one process on this machine can hold at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def turn(path: Path) -> Iterator[None]:
    """Wait until no other process holds the lock file `path`, and hold it; the kernel frees it if this process dies.

    The file is not deleted afterwards. The process that holds the lock may delete it: the processes that wait then
    lock a new file.
    """
    from filelock import FileLock

    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path, fallback_to_soft=False):  # a soft lock would outlive a killed process
        yield
