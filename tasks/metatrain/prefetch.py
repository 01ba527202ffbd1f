"""Work done ahead in a background thread: a bounded queue between an iterator and its consumer."""

import queue
import threading
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Self, TypeVar

T = TypeVar("T")
_POLL = 0.1  # seconds between two checks by a waiting producer that it is still wanted


@dataclass(frozen=True)
class _End:
    """The last item of the queue, with the error that ended the source, if any."""

    error: BaseException | None


class Prefetched(Generic[T]):
    """Iterate over `source`, at most `depth` items ahead of the consumer; errors of the source are raised here.

    Leave it with `with`, `close()` or by dropping it: the thread ends within a moment in each case.
    """

    def __init__(self, source: Iterable[T], depth: int) -> None:
        self._queue: queue.Queue[T | _End] = queue.Queue(maxsize=depth)
        self._stop = threading.Event()
        self._over = False
        self._thread = threading.Thread(
            target=_produce, args=(iter(source), self._queue, self._stop), name="supmer-prefetch", daemon=True
        )
        weakref.finalize(self, self._stop.set)  # the thread holds no reference to this object
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if self._over:
            raise StopIteration
        item = self._queue.get()
        if isinstance(item, _End):
            self._over = True
            self._thread.join()
            if item.error is not None:
                raise item.error
            raise StopIteration
        return item

    def close(self) -> None:
        """Stop producing, and wait for the thread to end."""
        self._over = True
        self._stop.set()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _produce(source: Iterator[T], ahead: "queue.Queue[T | _End]", stop: threading.Event) -> None:
    error: BaseException | None = None
    try:
        for item in source:
            if not _put(ahead, item, stop):
                return
    except BaseException as raised:  # noqa: BLE001 - raised again in the consumer
        error = raised
    finally:
        closing = _closed(source)
        _put(ahead, _End(error or closing), stop)  # always, because the consumer waits for it


def _closed(source: Iterator[T]) -> BaseException | None:
    """Close a generator, and return the error that this raises, if any."""
    try:
        close = getattr(source, "close", None)
        if close is not None:
            close()
    except BaseException as raised:  # noqa: BLE001 - raised again in the consumer
        return raised
    return None


def _put(ahead: "queue.Queue[T | _End]", item: "T | _End", stop: threading.Event) -> bool:
    while not stop.is_set():
        try:
            ahead.put(item, timeout=_POLL)
        except queue.Full:
            continue
        return True
    return False
