"""Signs of life: work that prints nothing for two seconds says what it is doing."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

QUIET_SECONDS = 2.0  # silence after which a line is printed
SILENCE = "SUPMER_QUIET_SECONDS"  # environment variable: another length of that silence
LONGEST_PAUSE = 60.0  # between two lines about the same work in a log
LONGEST_WATCHED = 10.0  # and in a terminal

Say = Callable[[str], None]


def to_stderr(line: str) -> None:
    """Print a line about work under way; standard output is for results."""
    with suppress(OSError, ValueError):  # nobody reads it any more
        print(f"  {line}", file=sys.stderr, flush=True)


class SignsOfLife:
    """Lines about the work under way, printed only while nothing else is: `spoke` notes that something was printed."""

    def __init__(self, what: str, say: Say) -> None:
        """Start with the work `what`; `say` prints a line."""
        self._what, self._say = what, say
        self._began = self._spoken = time.monotonic()
        self._pause = self._quiet = _quiet_seconds()
        self._hushed = False

    def spoke(self) -> None:
        """Note that a line was printed: the silence begins anew."""
        self._spoken, self._pause = time.monotonic(), self._quiet

    def still(self, what: str) -> None:
        """Change the words for the same work."""
        self._what = what

    @contextmanager
    def named(self, what: str) -> Iterator[None]:
        """Call the work `what` while the context is open."""
        before = self._what
        self._begin(what)
        try:
            yield
        finally:
            self._begin(before)

    def _begin(self, what: str) -> None:
        """Begin other work, whose first line is due soon."""
        self._what, self._began, self._pause = what, time.monotonic(), self._quiet

    @contextmanager
    def hushed(self) -> Iterator[None]:
        """Print nothing while the context is open, because something else shows that the work goes on."""
        self._hushed = True
        try:
            yield
        finally:
            self._hushed = False
            self.spoke()

    def look(self, now: float) -> None:
        """Print a line if it has been silent for long enough; the more often, the longer the next silence may be."""
        if self._hushed or now - self._spoken < self._pause:
            return
        took = now - self._began
        self._say(self._what if took < 2 * self._quiet else f"{self._what}: {took:.0f} s so far")
        self._spoken, self._pause = now, min(2.5 * self._pause, max(_longest_pause(), self._quiet))


def _longest_pause() -> float:
    return LONGEST_WATCHED if sys.stderr is not None and sys.stderr.isatty() else LONGEST_PAUSE


def _quiet_seconds() -> float:
    try:
        return max(float(os.environ[SILENCE]), 0.1)
    except (KeyError, ValueError):
        return QUIET_SECONDS


@contextmanager
def doing(what: str, say: Say = to_stderr) -> Iterator[SignsOfLife]:
    """Say what is being done if the block is silent for more than two seconds, and again at growing intervals."""
    signs, ended = SignsOfLife(what, say), threading.Event()

    def watch() -> None:
        while not ended.wait(min(QUIET_SECONDS, _quiet_seconds()) / 4):
            signs.look(time.monotonic())

    thread = threading.Thread(target=watch, name="signs-of-life", daemon=True)
    thread.start()
    try:
        yield signs
    finally:
        ended.set()
        thread.join()
