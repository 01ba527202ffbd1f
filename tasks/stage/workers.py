"""Worker processes for shards: threads wait, processes compute, and no process outlives its parent."""

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

LARGE_BYTES = 400 * 1024**2  # larger workers are ended between two stages; smaller ones are quicker to keep
END_SECONDS = 30  # on a busy machine a process that holds a model takes long to end


@dataclass
class _Workers:
    """The current processes; all are replaced when one is killed, or has grown large by the end of a stage."""

    count: int
    pool: ProcessPoolExecutor
    lock: threading.Lock = field(default_factory=threading.Lock)
    under_way: int = 0

    def execute(self, job: Job) -> Record:
        """Execute a job in one of the processes, and wait for it."""
        with self.lock:
            pool = self.pool
            self.under_way += 1
        try:
            with _interrupts_blocked():
                future: Future[Record] = pool.submit(job.execute)  # starts a process if there are too few
            return future.result()
        except BrokenProcessPool as error:
            self.replace(pool)
            raise TransientError(
                f"{job.name}: a worker process was killed: is there enough memory? try --workers 1"
            ) from error
        finally:
            with self.lock:
                self.under_way -= 1

    def replace(self, broken: ProcessPoolExecutor) -> None:
        """Start new processes, only once even if several threads notice."""
        with self.lock:
            if self.pool is broken:
                broken.shutdown(wait=False, cancel_futures=True)
                self.pool = _new_pool(self.count)

    def rest(self) -> None:
        """End the processes if one has grown large and none is at work; new ones start with the next job."""
        with self.lock:
            workers = active_children()
            if self.under_way or all(_memory(worker.pid) <= LARGE_BYTES for worker in workers):
                return
            idle, self.pool = self.pool, _new_pool(self.count)
        idle.shutdown(wait=False)
        _await_end([worker.sentinel for worker in workers])


_workers: _Workers | None = None

# Threads of a Dask worker share state that is not thread-safe: libraries that load parts at first use, torch's threads.
_alone = threading.Lock()


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C in this thread: a process started meanwhile inherits it, until `_start_worker` ignores Ctrl-C.

    Other threads still receive the signal; one that is sent to this thread alone arrives afterwards.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_worker(threads: int) -> None:
    """Prepare a worker before its first shard: give it its share of the cores, unless the environment sets another."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group, and the run decides what to do
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))  # torch, faiss and BLAS read it when they are imported
    _leave_with_parent()


def _leave_with_parent() -> None:
    """End this worker when its parent is gone: after a kill -9 no other process would."""
    parent = parent_process()
    assert parent is not None  # called only in a worker

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _await_end(sentinels: list[int]) -> None:
    """Wait a few seconds for these processes to end, so that their memory is not counted for the next stage."""
    deadline = time.monotonic() + END_SECONDS
    while sentinels and (left := deadline - time.monotonic()) > 0:
        ended = wait(sentinels, left)
        sentinels = [sentinel for sentinel in sentinels if sentinel not in ended]


def _memory(process: int | None) -> int:
    """Return the number of bytes that a process holds, 0 if it is gone."""
    try:
        return int(psutil.Process(process).memory_info().rss)
    except psutil.Error:
        return 0


def _new_pool(count: int) -> ProcessPoolExecutor:
    threads = max(len(os.sched_getaffinity(0)) // count, 1)
    return ProcessPoolExecutor(count, get_context("spawn"), initializer=_start_worker, initargs=(threads,))


@contextmanager
def worker_processes(count: int) -> Iterator[None]:
    """Let `execute` use `count` processes, which share the available cores, while the context is open."""
    global _workers  # noqa: PLW0603 - Prefect calls tasks by reference; there is no other way to hand them the pool
    _workers = _Workers(count, _new_pool(count))
    try:
        yield
    finally:
        _workers.pool.shutdown(wait=False, cancel_futures=True)
        _workers = None


def execute(job: Job) -> Record:
    """Execute a job in a worker process if there are any (there are none on a Dask worker, which is one itself)."""
    if _workers is None:
        with _alone:
            return job.execute()
    return _workers.execute(job)


def rest_workers() -> None:
    """Free the memory that models and libraries hold in the workers; called at the end of a stage."""
    if _workers is not None:
        _workers.rest()
