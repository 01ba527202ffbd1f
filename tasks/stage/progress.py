"""Progress of shards that take minutes: the share that is done, and lines for a person.

A shard writes two small files beside its folder, and the display reads them: this works from any process, also on a
Dask worker.
"""

import contextvars
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import orjson

INTERVAL = 0.5  # seconds between two readings
_LIVE, _SAID = ".live", ".said"


class Shown(Protocol):
    """The display of progress."""

    def advance(self, amount: int) -> None:
        """Count `amount` more units as done."""

    def note(self, text: str) -> None:
        """Show a remark about the work under way."""


def tell(folder: Path, done: int, note: str) -> None:
    """Report that `done` units of the shard in `folder` are done; cheap, and nothing depends on it."""
    path = _beside(folder, _LIVE)
    new = path.with_name(f"{path.name}-new")
    with suppress(OSError):  # a failing display must not stop the work that it shows
        new.write_bytes(orjson.dumps({"done": done, "note": note}))
        new.replace(path)


def say(folder: Path, line: str) -> None:
    """Report one line to be printed."""
    with suppress(OSError), _beside(folder, _SAID).open("a") as said:
        said.write(f"{line}\n")


def _beside(folder: Path, suffix: str) -> Path:
    return folder.with_name(folder.name.partition(".partial-")[0] + suffix)


class Following:
    """Count and print what the shards report; when a shard ends, count the rest of it."""

    def __init__(self, shown: Shown, printed: Callable[[str], None], weights: Mapping[Path, int]) -> None:
        self._shown, self._printed, self._weights = shown, printed, weights
        self._counted = dict.fromkeys(weights, 0)
        self._read = dict.fromkeys(weights, 0)
        self._notes: dict[Path, str] = {}
        self._lock = threading.Lock()
        for folder in weights:
            _forget(folder)  # left by a run that died

    def look(self) -> None:
        """Read what the shards under way have written."""
        with self._lock:
            for folder, weight in self._weights.items():
                self._print(folder)
                with suppress(OSError, orjson.JSONDecodeError):
                    state = orjson.loads(_beside(folder, _LIVE).read_bytes())
                    self._count(folder, min(int(state["done"]), weight), str(state["note"]))

    def finished(self, folder: Path) -> None:
        """Count a shard as finished."""
        with self._lock:
            self._print(folder)
            self._count(folder, self._weights[folder], "")
            _forget(folder)

    def _print(self, folder: Path) -> None:
        with suppress(OSError), _beside(folder, _SAID).open() as said:
            said.seek(self._read[folder])
            for line in iter(said.readline, ""):
                if line.endswith("\n"):  # else it is still being written
                    self._printed(line.rstrip("\n"))
                    self._read[folder] = said.tell()

    def _count(self, folder: Path, done: int, note: str) -> None:
        more = max(done - self._counted[folder], 0)
        self._counted[folder] += more
        self._notes[folder] = note
        self._shown.note("; ".join(filter(None, self._notes.values())))
        if more:
            self._shown.advance(more)


def _forget(folder: Path) -> None:
    for suffix in (_LIVE, _SAID):
        _beside(folder, suffix).unlink(missing_ok=True)


@contextmanager
def following(
    shown: Shown, printed: Callable[[str], None], weights: Mapping[Path, int], *, live: bool
) -> Iterator[Following]:
    """Follow shards (folder: weight) while the context is open; unless `live`, count only their ends."""
    followed = Following(shown, printed, weights)
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(INTERVAL):
            followed.look()

    thread = threading.Thread(target=contextvars.copy_context().run, args=(watch,), daemon=True)
    if live:
        thread.start()
    try:
        yield followed
    finally:
        stop.set()
        if live:
            thread.join()
            followed.look()
