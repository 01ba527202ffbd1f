"""Worker processes for shards: threads wait, processes compute, none outlives its parent."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.connection import wait

import psutil

from storage.errors import TransientError
from tasks.stage.contract import Job, Record

LARGE_BYTES = 400 * 1024**2  # a larger worker is ended between two stages; a smaller one is quicker to keep
END_SECONDS = 5


@dataclass
class _Workers:
    """The processes at hand; replaced as a whole when one is killed, or has grown large by the end of a stage."""

    count: int
    pool: ProcessPoolExecutor
    lock: threading.Lock = field(default_factory=threading.Lock)
    under_way: int = 0

    def execute(self, job: Job) -> Record:
        """Have one of them do a job, and wait for it."""
        with self.lock:
            pool = self.pool
            self.under_way += 1
        try:
            future: Future[Record] = pool.submit(job.execute)
            return future.result()
        except BrokenProcessPool as error:
            self.replace(pool)
            raise TransientError(
                f"{job.name}: a worker process was killed: is there memory enough? try --workers 1"
            ) from error
        finally:
            with self.lock:
                self.under_way -= 1

    def replace(self, broken: ProcessPoolExecutor) -> None:
        """Start new processes, once however many threads notice."""
        with self.lock:
            if self.pool is broken:
                broken.shutdown(wait=False, cancel_futures=True)
                self.pool = _new_pool(self.count)

    def rest(self) -> None:
        """End the processes if one of them has grown large and none is at work; new ones start with the next job."""
        with self.lock:
            workers = active_children()
            if self.under_way or all(_memory(worker.pid) <= LARGE_BYTES for worker in workers):
                return
            idle, self.pool = self.pool, _new_pool(self.count)
        idle.shutdown(wait=False)
        _await_end([worker.sentinel for worker in workers])


_workers: _Workers | None = None

# Threads of a Dask worker share what is not made for it: libraries that load their parts at first use, torch's threads.
_alone = threading.Lock()


def _start_worker(threads: int) -> None:
    """Before a worker's first shard: its share of the cores, unless the environment says otherwise."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the run decides what becomes of it
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))  # what torch, faiss and BLAS go by when they are imported
    _leave_with_parent()


def _leave_with_parent() -> None:
    """End this worker when its parent is gone: after a kill -9 nobody else would."""
    parent = parent_process()
    assert parent is not None  # only ever called in a worker

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _await_end(sentinels: list[int]) -> None:
    """Wait until these processes are gone, so that no other stage is charged with their memory; but not for long."""
    deadline = time.monotonic() + END_SECONDS
    while sentinels and (left := deadline - time.monotonic()) > 0:
        ended = wait(sentinels, left)
        sentinels = [one for one in sentinels if one not in ended]


def _memory(process: int | None) -> int:
    """Bytes that a process holds, none if it is gone."""
    try:
        return int(psutil.Process(process).memory_info().rss)
    except psutil.Error:
        return 0


def _new_pool(count: int) -> ProcessPoolExecutor:
    threads = max(len(os.sched_getaffinity(0)) // count, 1)
    return ProcessPoolExecutor(count, get_context("spawn"), initializer=_start_worker, initargs=(threads,))


@contextmanager
def worker_processes(count: int) -> Iterator[None]:
    """Let `execute` use `count` processes while the context is open; together they keep to the cores there are."""
    global _workers  # noqa: PLW0603 - Prefect calls tasks by reference; there is no other way to hand them the pool
    _workers = _Workers(count, _new_pool(count))
    try:
        yield
    finally:
        _workers.pool.shutdown(wait=False, cancel_futures=True)
        _workers = None


def execute(job: Job) -> Record:
    """Execute a job in a worker process where there are any (not on a Dask worker, which is one itself)."""
    if _workers is None:
        with _alone:
            return job.execute()
    return _workers.execute(job)


def rest_workers() -> None:
    """A stage is done: give back the memory that its models and the library's kernels took in the workers."""
    if _workers is not None:
        _workers.rest()
