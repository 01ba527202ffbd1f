"""Start a command that keeps running, and read its output line by line."""

import queue
import signal
import threading
import time
from contextlib import contextmanager

import httpx
import psutil

from support.workspaces import KEY

WAIT_SECONDS = 90
BUSY = 503  # Prefect's answer while its database is locked


class Patient(httpx.HTTPTransport):
    """Ask again while the server's database is busy, as Prefect's own clients do."""

    def handle_request(self, request):
        deadline = time.monotonic() + WAIT_SECONDS
        while (answer := super().handle_request(request)).status_code == BUSY and time.monotonic() < deadline:
            answer.close()
            time.sleep(0.2)
        return answer


# A server that shares two cores with other tests may be slow.
WEB = httpx.Client(timeout=WAIT_SECONDS, auth=tuple(KEY.split(":")), transport=Patient())


class Followed:
    def __init__(self, process):
        self.process = process
        self.lines = []
        self._queue = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self._queue.put(line.rstrip("\n"))
        self._queue.put(None)

    def line_with(self, text):
        """Wait for the next line that contains a text, and return the line."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            line = self._queue.get(timeout=max(deadline - time.monotonic(), 0.1))
            assert line is not None, f"ended without {text!r}: " + "\n".join(self.lines)
            self.lines.append(line)
            if text in line:
                return line

    def family(self):
        """Return the process of the command and all its child processes."""
        own = psutil.Process(self.process.pid)
        return [own, *own.children(recursive=True)]

    def end(self, number=signal.SIGINT):
        """Send a signal to the command alone; return its exit code, the seconds it took, and the survivors."""
        family = self.family()
        started = time.monotonic()
        self.process.send_signal(number)
        code = self.process.wait(30)
        seconds = time.monotonic() - started
        left = psutil.wait_procs(family, timeout=1)[1]
        return code, seconds, [one for one in left if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


@contextmanager
def following(workspace, *arguments, **options):
    process = workspace.start(*arguments, **options)
    try:
        yield Followed(process)
    finally:
        if process.poll() is None:
            for one in (*psutil.Process(process.pid).children(recursive=True), process):
                one.kill()
        process.wait()
        process.stdout.close()
