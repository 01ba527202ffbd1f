"""Chunks side by side on the cores of a processor.

An operation that is shared among cores leaves them waiting for each other at its end, and small ones keep one core busy
only: two cores come to 1.7 times one. With a chunk for each core they come to almost two. Chunks that are left over
have all the cores again.
"""

import resource
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import lru_cache
from threading import Barrier
from typing import TypeVar

import torch

_MOST = 8  # chunks at once, each of which holds its activations; further cores help with their operations
_LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_DATA)
Piece = TypeVar("Piece")
Result = TypeVar("Result")


def side_by_side(work: Callable[[Piece], Result], pieces: Sequence[Piece]) -> Iterator[Result]:
    """The work's result for each piece, in their order; at most as many at once as torch may use threads.

    What decides how the work computes must be set within it, or for the whole process: autocast and gradient mode are a
    thread's own. After an error no piece is under way any more.
    """
    threads = torch.get_num_threads()
    each = -(-threads // _MOST)
    workers = threads // each
    even = len(pieces) - len(pieces) % workers if workers > 1 and _has_room() else 0
    pool = _pool(workers, each) if even else None
    if pool is None:
        yield from map(work, pieces)
        return
    waiting: deque[Future[Result]] = deque()
    try:
        torch.set_num_threads(1)  # threads of the caller's own operations would wait for more of them, at full speed
        waiting.extend(pool.submit(work, piece) for piece in pieces[:even])
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
        wait(waiting)
        torch.set_num_threads(threads)
    yield from map(work, pieces[even:])


def _has_room() -> bool:
    """Whether this process may take any memory: where several threads run out of it at once, oneDNN may crash."""
    return all(resource.getrlimit(limit)[0] == resource.RLIM_INFINITY for limit in _LIMITS)


@lru_cache(maxsize=1)
def _pool(workers: int, threads: int) -> ThreadPoolExecutor | None:
    """Workers that have begun, with so many threads for each's operations; None where the system gives no more."""
    pool, all_there = ThreadPoolExecutor(workers, "chunk"), Barrier(workers)

    def begin(_worker: int) -> None:
        torch.get_num_threads()  # a thread that asks for the first time takes the number that any one has set last
        torch.set_num_threads(threads)
        all_there.wait()

    try:
        for _ in pool.map(begin, range(workers)):
            pass
    except BaseException as error:
        all_there.abort()
        pool.shutdown(wait=False, cancel_futures=True)
        if isinstance(error, RuntimeError):  # a limit of memory or of processes
            return None
        raise
    return pool
