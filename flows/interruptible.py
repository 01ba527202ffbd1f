"""Ctrl-C during a long call into a library that does not return to Python until it is done."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

GRACE_SECONDS = 3.0


@contextmanager
def interruptible(interrupt: Callable[[], object]) -> Iterator[None]:
    """Call `interrupt` from another thread at Ctrl-C; if the work does not end soon after it, exit with code 130.

    Python runs a signal's handler between its own instructions only, but reports the signal to a descriptor at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reading, writing = socket.socketpair()
    writing.setblocking(False)
    done = threading.Event()

    def watch() -> None:
        while number := reading.recv(1):
            if number[0] == signal.SIGINT:
                interrupt()
                if not done.wait(GRACE_SECONDS):
                    sys.stderr.flush()
                    os._exit(128 + signal.SIGINT)

    thread = threading.Thread(target=watch, name="interruptible", daemon=True)
    before = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        done.set()
        writing.close()  # ends the thread
        thread.join()
        reading.close()
