"""Chunks side by side on the cores of a processor.

An operation that is shared among cores leaves them waiting for each other at its end, and small ones keep one core busy
only: two cores come to 1.7 times one. With a chunk for each core they come to almost two. Chunks that are left over
have all the cores again.
"""

import resource
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Barrier
from typing import TypeVar

import torch

from model.device import single_threaded

_MOST = 8  # chunks at once, each of which holds its activations; further cores help with their operations
Piece = TypeVar("Piece")
Result = TypeVar("Result")


def side_by_side(work: Callable[[Piece], Result], pieces: Sequence[Piece]) -> Iterator[Result]:
    """The work's result for each piece, in their order; at most as many at once as torch may use threads.

    What decides how the work computes must be set within it, or for the whole process: autocast and gradient mode are a
    thread's own.
    """
    threads = torch.get_num_threads()
    workers = min(threads, _MOST, len(pieces)) if _has_room() else 1
    pool = _pool(workers, threads // workers) if workers > 1 else None
    even = len(pieces) - len(pieces) % workers if pool is not None else 0
    if pool is not None:
        with single_threaded():  # threads of the caller's own operations would wait for more of them, at full speed
            yield from pool.map(work, pieces[:even])
    yield from map(work, pieces[even:])


def _has_room() -> bool:
    """Whether this process may take any memory: where several threads run out of it at once, oneDNN may crash."""
    return resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY


@cache
def _pool(workers: int, threads: int) -> ThreadPoolExecutor | None:
    """Workers that have begun, with so many threads for each's operations; None where the system gives no more."""
    pool, all_there = ThreadPoolExecutor(workers, "chunk"), Barrier(workers)

    def begin(_worker: int) -> None:
        torch.set_num_threads(threads)
        torch.get_num_threads()  # a thread that never asked takes the number that another one has set last
        all_there.wait()

    try:
        for _ in pool.map(begin, range(workers)):
            pass
    except RuntimeError:  # a limit of memory or of processes
        all_there.abort()
        pool.shutdown(wait=False, cancel_futures=True)
        return None
    return pool
