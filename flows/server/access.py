"""Access to a Prefect server: its address, and the key (Prefect's auth string) that it demands of every client."""

from __future__ import annotations

import base64
import os
import secrets
from dataclasses import dataclass
from urllib.parse import quote

SERVER_KEY = "PREFECT_SERVER_API_AUTH_STRING"  # environment variable: the key that a server demands
CLIENT_KEY = "PREFECT_API_AUTH_STRING"  # environment variable: the key that a client sends
ADDRESS = "PREFECT_API_URL"
OPEN_PLACE = "/open"  # page of our servers that hands the key in its fragment to Prefect's interface


@dataclass(frozen=True)
class Access:
    """The API address of a server, and its key; a server of the user may have none."""

    api: str
    key: str | None = None

    @property
    def origin(self) -> str:
        """The address of the user interface."""
        return self.api.removesuffix("/").removesuffix("/api")

    @property
    def headers(self) -> dict[str, str]:
        """The HTTP headers with which the server answers a request."""
        return {"Authorization": authorization(self.key)} if self.key else {}

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that lead Prefect's own programs to the server."""
        return {ADDRESS: self.api} | ({CLIENT_KEY: self.key} if self.key else {})

    def link(self, place: str = "/") -> str:
        """Return an address that opens a page of our own server in a browser without asking for the key.

        The key is in the fragment, which a browser does not send: it is in no log.
        """
        return f"{self.origin}{OPEN_PLACE}?to={quote(place)}#{quote(self.key or '')}"

    def use(self) -> None:
        """Lead Prefect, in this process and its children, to the server; call this before Prefect is imported."""
        os.environ.update(self.environment)


def authorization(key: str) -> str:
    """Return the value of the header Authorization."""
    return f"Basic {base64.b64encode(key.encode()).decode()}"


def new_key() -> str:
    """Return the key for a new server: the user's own choice in the environment, or a random one."""
    return os.environ.get(SERVER_KEY) or f"supmer:{secrets.token_urlsafe(32)}"


def configured() -> Access | None:
    """Return the server that the user's environment names, if it names one."""
    api = os.environ.get(ADDRESS)
    return Access(api, os.environ.get(CLIENT_KEY)) if api else None
