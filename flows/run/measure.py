"""What a stage took: seconds, and the peak memory of this process and its workers."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psutil

SAMPLE_SECONDS = 0.2
SAMPLE_SHARE = 0.03  # of the time, at most: the system walks through every page to tell what processes share
SERVER = "flows.server.run_server"  # a child too, but not the stage's


@dataclass
class Usage:
    """Filled in while the context is open."""

    seconds: float = 0.0
    peak_memory_bytes: int = 0


def tree_memory() -> int:
    """Bytes that this process and its children hold, what they share counted once, Prefect's server excepted."""
    total = 0
    own = psutil.Process()
    for process in (own, *own.children(recursive=True)):
        with suppress(psutil.Error):
            if process is own or SERVER not in process.cmdline():
                total += _held(process)
    return total


def _held(process: psutil.Process) -> int:
    """Its proportional share of resident memory where the system tells it, else all that is resident."""
    try:
        return int(process.memory_full_info().pss)
    except (AttributeError, psutil.AccessDenied):
        return int(process.memory_info().rss)


@contextmanager
def measured() -> Iterator[Usage]:
    """Measure what happens inside."""
    usage = Usage()
    stop = threading.Event()

    def sample() -> None:
        pause = SAMPLE_SECONDS
        while not stop.wait(pause):
            began = time.monotonic()
            usage.peak_memory_bytes = max(usage.peak_memory_bytes, tree_memory())
            pause = max(SAMPLE_SECONDS, (time.monotonic() - began) / SAMPLE_SHARE)

    usage.peak_memory_bytes = tree_memory()
    sampler = threading.Thread(target=sample, daemon=True)
    started = time.monotonic()
    sampler.start()
    try:
        yield usage
    finally:
        usage.seconds = round(time.monotonic() - started, 3)
        stop.set()
        sampler.join()
