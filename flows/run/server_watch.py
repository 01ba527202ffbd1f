"""Watch the server that a run reports to, because Prefect's engine cannot do without it.

A lasting server of this workspace that was killed together with the command that kept it (`supmer ui`, `supmer serve`)
is started again by the run. A server that stays away ends the run with one line; the next run continues.
"""

from __future__ import annotations

import atexit
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import click

from flows.run.interrupt import give_up
from flows.server.access import Access, configured
from flows.server.kept_server import KeptServer, reserve
from flows.server.lasting_server import Lasting, announced, is_alive, start_lasting_server_at
from storage.errors import InputError

LOOK_SECONDS = 0.5
ASK_SECONDS = 5.0  # between two requests to a server that may be far away
AWAY_SECONDS = 120.0  # that a server may be away; Prefect's clients try for about as long (`prefect_home.settings`)


@dataclass
class ServerWatch:
    """A thread that looks after a server; `kept` is one that this process keeps itself."""

    root: Path
    access: Access
    kept: KeptServer | None
    is_ours: bool  # the workspace's lasting server, which another process keeps
    away_seconds: float = AWAY_SECONDS
    _ended: threading.Event = field(default_factory=threading.Event)
    _lasting: Lasting | None = None

    def __post_init__(self) -> None:
        atexit.register(self._end)

    def start(self) -> None:
        """Watch until the end of this process."""
        threading.Thread(target=self._watch, name="server watch", daemon=True).start()

    def _end(self) -> None:
        self._ended.set()
        if self._lasting:
            self._lasting.leave()

    def _watch(self) -> None:
        answered = time.monotonic()
        while not self._ended.wait(LOOK_SECONDS if self.is_ours or self.kept else ASK_SECONDS):
            if self.kept:
                away = self.kept.over.is_set()
            elif self.is_ours:
                away = not is_alive(self.root) and not self._succeed() and not _answers(self.access)
            else:
                away = not _answers(self.access)
            if not away:
                answered = time.monotonic()
            elif self.kept or time.monotonic() - answered > self.away_seconds:
                self._give_up()
                return

    def _succeed(self) -> bool:
        """Start the server again at its address; return False if the process that kept it still holds the address."""
        try:
            listening = reserve(urlsplit(self.access.api).port or 0)
        except InputError:
            return False
        click.echo("Prefect's server was killed with the command that kept it: this run starts it again", err=True)
        try:
            self._lasting = start_lasting_server_at(self.root, listening, self.access.key)
        except InputError as error:
            give_up(str(error))
            return True
        self.kept = self._lasting.server
        return True

    def _give_up(self) -> None:
        if not self._ended.is_set():
            advice = "see .prefect/server.log" if self.kept else "start it again"
            give_up(f"Prefect's server at {self.access.origin} does not answer any more: {advice}")


def server_watch(root: Path, kept: KeptServer | None = None) -> ServerWatch:
    """Return a watch of the server that PREFECT_API_URL names; `kept` is the one that this process has started.

    Call this before Prefect is imported, which reports until the process ends: exit handlers run in reverse order.
    """
    access, lasting = configured(), announced(root)
    assert access is not None
    return ServerWatch(root, access, kept, is_ours=lasting is not None and lasting.api == access.api)


def _answers(access: Access) -> bool:
    """Return False if nobody listens at the address; a server that is busy counts as one that answers."""
    try:
        with urllib.request.urlopen(f"{access.api}/health", timeout=ASK_SECONDS):  # noqa: S310 - our own address
            return True
    except urllib.error.HTTPError:
        return True
    except urllib.error.URLError as error:
        return isinstance(error.reason, TimeoutError)
    except OSError as error:
        return isinstance(error, TimeoutError)
