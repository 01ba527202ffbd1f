"""Measure a stage: its duration, and the peak memory of this process and its workers."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psutil

SAMPLE_SECONDS = 0.2
SAMPLE_SHARE = 0.03  # of the time, at most: the system visits every page to find shared memory
SERVERS = ("flows.server.run_server", "flows.server.lasting_server")  # child processes too, but no part of the stage


@dataclass
class Usage:
    """Duration and peak memory, filled in by `measured`."""

    seconds: float = 0.0
    peak_memory_bytes: int = 0


def tree_memory() -> int:
    """Return the bytes that this process and its children use, shared memory counted once, without Prefect's server."""
    total = 0
    own = psutil.Process()
    for process in (own, *own.children(recursive=True)):
        with suppress(psutil.Error):
            if process is own or not {*SERVERS} & {*process.cmdline()}:
                total += _held(process)
    return total


def _held(process: psutil.Process) -> int:
    """Return a process's proportional share of resident memory if the system reports it, else its resident memory."""
    try:
        return int(process.memory_full_info().pss)
    except (AttributeError, psutil.AccessDenied):
        return int(process.memory_info().rss)


@contextmanager
def measured() -> Iterator[Usage]:
    """Measure the duration and peak memory of the block."""
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
