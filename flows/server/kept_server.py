"""A server process that is started again if it dies.

The process that starts it holds its socket. While a killed server starts again, clients wait in the socket's queue
instead of being refused, and no other program can take the port and receive the key.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import click

from flows.server.access import ADDRESS, SERVER_KEY, Access, new_key
from flows.server.ready import wait_until_ready
from storage.errors import InputError

HOST = "127.0.0.1"
SOON_SECONDS = 30.0  # a server that dies sooner after its start than this ...
MOST_DEATHS = 3  # ... so many times is not started again


@dataclass
class KeptServer:
    """A Prefect server on loopback, in a process of its own that ends with this one."""

    access: Access
    log: Path
    _command: list[str]
    _environment: Mapping[str, str]
    _listening: socket.socket
    process: subprocess.Popen[bytes] = field(init=False)
    over: threading.Event = field(default_factory=threading.Event)  # set: it is not started again
    _started: float = 0.0
    _deaths: int = 0

    def __post_init__(self) -> None:
        _kept.append(self)
        self._start()

    def wait_until_ready(self) -> None:
        """Return once the server answers, and start it again if it is killed; raise InputError if it ends by itself."""
        while True:
            try:
                wait_until_ready(self.process, self.log, self.access.api)
                break
            except InputError:
                code = self.process.poll()
                self._deaths += 1
                if code is None or code >= 0 or self._deaths >= MOST_DEATHS:
                    raise
            _say(f"Prefect's server died at its start (killed by signal {-code}): it is started again")
            self._start_again()
        threading.Thread(target=self._keep, name="kept server", daemon=True).start()

    def let_go(self) -> None:
        """Do not start the server again; it ends by itself when its pipe is closed."""
        self.over.set()
        self._listening.close()
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()

    def _start_again(self) -> None:
        """Close the pipe to the server that died, and start another."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self._start()

    def _start(self) -> None:
        self._started = time.monotonic()
        with self.log.open("ab") as errors:
            self.process = subprocess.Popen(
                [*self._command, str(self._listening.fileno())],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=[self._listening.fileno()],
                start_new_session=True,  # else Ctrl-C in a terminal ends it before it is told what was cancelled
            )

    def _keep(self) -> None:
        while True:
            code = self.process.wait()
            if self.over.is_set():
                return
            self._deaths = self._deaths + 1 if time.monotonic() - self._started < SOON_SECONDS else 1
            how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
            if self._deaths >= MOST_DEATHS:
                self.over.set()
                self._listening.close()
                _say(f"Prefect's server died again ({how}) and is not started any more: see {self.log}")
                return
            _say(f"Prefect's server died ({how}): it is started again, and the work goes on")
            self._start_again()


_kept: list[KeptServer] = []


def is_kept_here() -> bool:
    """Return True if this process has started a server."""
    return bool(_kept)


def let_all_go() -> None:
    """Do not start the servers of this process again: the process is about to end, and they with it."""
    for server in _kept:
        server.over.set()


def _say(message: str) -> None:
    with suppress(OSError):  # nobody reads it
        click.echo(message, err=True)


def reserve(port: int) -> socket.socket:
    """Return a socket that listens on a port of loopback; 0 takes any free one. Raise InputError if it is taken."""
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        raise InputError(f"port {port} of {HOST}: {os.strerror(error.errno or 0)}: name another with --port") from error


def start_kept(
    module: str, log: Path, listening: socket.socket, *arguments: str, key: str | None = None, **settings: str
) -> KeptServer:
    """Start a module as the server that answers at a socket, with a key of its own and these Prefect settings.

    The module gets the arguments and the number of the socket, and must end when its standard input is closed.
    """
    access = Access(f"http://{HOST}:{listening.getsockname()[1]}/api", key or new_key())
    own = {SERVER_KEY: str(access.key), "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": access.origin}
    environment = {name: value for name, value in os.environ.items() if name != ADDRESS} | own | settings
    log.parent.mkdir(parents=True, exist_ok=True)
    return KeptServer(access, log, [sys.executable, "-m", module, *arguments], environment, listening)


def leave_after_parent(goodbye_seconds: float) -> None:
    """End this server process politely, then for good; to be called once its standard input has been closed."""
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(goodbye_seconds)
    os._exit(0)
