"""The doors of a Prefect server: which requests come in, and how a browser gets the key.

Prefect itself refuses API calls without the key. This module refuses, before Prefect sees them, requests that a foreign
web page makes a browser send: those with a foreign Origin, and those with a foreign Host (DNS rebinding).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from flows.server.access import OPEN_PLACE, authorization
from flows.server.artifacts import REPORT_PLACE
from storage import paths

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
OPEN_PAGE = Path(__file__).with_name("open.html")
POLICY_VIOLATION = 1008  # code with which a websocket is closed


def refusal(headers: Headers) -> str | None:
    """Return why a request must be refused; None if it may come in."""
    host = headers.get("host", "")
    if _name(f"//{host}") not in LOOPBACK:
        return f"Host {host!r} is not this server's: open it as 127.0.0.1"
    origin = headers.get("origin")
    if origin is not None and origin != f"http://{host}":
        return f"Origin {origin!r} is not this server's"
    return None


def _name(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None


class Doors:
    """An ASGI application that passes on to another one what may come in, and forbids other pages to frame it."""

    def __init__(self, inside: ASGIApp) -> None:
        self._inside = inside

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request with 403, or pass it on."""
        if scope["type"] not in {"http", "websocket"}:
            await self._inside(scope, receive, send)
            return
        reason = refusal(Headers(scope=scope))
        if reason is None:
            await self._inside(scope, receive, _unframed(send))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": reason})
        else:
            await PlainTextResponse(f"{reason}\n", 403)(scope, receive, send)


def _unframed(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], (b"content-security-policy", b"frame-ancestors 'self'")]
        await send(message)

    return sending


def pages(root: Path, key: str, port: int) -> list[Mount | Route]:
    """Return our own pages: the one that takes the key from a link, and the report, which needs the key as well."""
    cookie = f"supmer-{port}"  # browsers send cookies to every port of a host: it opens the report, but not the API
    ticket = hashlib.sha256(f"report {key}".encode()).hexdigest()

    def knows_key(headers: Headers) -> bool:
        return hmac.compare_digest(headers.get("authorization", "").encode(), authorization(key).encode())

    async def open_page(request: Request) -> Response:
        if request.method != "POST":
            return HTMLResponse(OPEN_PAGE.read_text("utf-8"), headers={"Referrer-Policy": "no-referrer"})
        if not knows_key(request.headers):
            return PlainTextResponse("not the key of this server\n", 401)
        answer = Response(status_code=204)
        answer.set_cookie(cookie, ticket, httponly=True, samesite="strict", path=REPORT_PLACE)
        return answer

    def may_read(request: Request) -> bool:
        shown = request.cookies.get(cookie, "")
        return hmac.compare_digest(shown.encode(), ticket.encode()) or knows_key(request.headers)

    report = StaticFiles(directory=root / paths.REPORT, html=True, check_dir=False)
    return [
        Route(OPEN_PLACE, open_page, methods=["GET", "POST"]),
        Mount(REPORT_PLACE, _Guarded(report, may_read)),
    ]


class _Guarded:
    """An ASGI application that asks for the key, as browsers ask for a password, before it passes on a request."""

    def __init__(self, inside: ASGIApp, may_enter: Callable[[Request], bool]) -> None:
        self._inside, self._may_enter = inside, may_enter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._may_enter(Request(scope)):
            ask = {"WWW-Authenticate": 'Basic realm="supmer: the key that `supmer ui` prints"'}
            refused = PlainTextResponse("the report needs the key of this server: call `supmer ui`\n", 401, ask)
            await refused(scope, receive, send)
            return
        await self._inside(scope, receive, send)
