"""What a client may send: resource limits, and a middleware that refuses requests before their body is read."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

JSON = "application/json"
"""Content type of bodies and answers."""

RETRY_AFTER_S = 1
"""Pause that a client is told when too many requests wait: a queue of any length has moved on by then."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Resource limits of clients.

    Attributes:
        connections: Open connections. At the limit, one that has not sent a whole request head is closed for a new one.
        requests: Requests read and answered at once; others wait with their body unread.
        waiting: Requests that wait; one more is refused with status 429. None lets any number wait.
        head_bytes: Size of a request line and headers.
        body_bytes: Size of a request body, and of a message of a WebSocket.
        head_s: Seconds from connecting, or from the last answer, to the end of the next request's headers.
        body_s: Seconds from the start of reading a body to its end.
        send_s: Seconds for which a client may leave an answer unread.
        grace_s: Seconds that requests which are being answered get at shutdown.
    """

    connections: int = 256
    requests: int = 32
    waiting: int | None = None
    head_bytes: int = 16 << 10
    body_bytes: int = 64 << 20
    head_s: float = 10.0
    body_s: float = 120.0
    send_s: float = 60.0
    grace_s: float = 2.0


@dataclass(frozen=True, slots=True)
class Access:
    """Requests that a server lets through to its application.

    Attributes:
        methods: Allowed methods; the body of a POST request is JSON.
        open_paths: Paths that are answered without a token.
        own_pages: Whether pages of the server itself may send requests, as a user interface does; those of any other
            origin never may.
        websockets: Whether WebSockets are accepted.
    """

    methods: frozenset[str] = frozenset({"POST"})
    open_paths: frozenset[str] = frozenset()
    own_pages: bool = False
    websockets: bool = False


class Guard:
    """Middleware that refuses invalid requests before their body is read, and limits how many are answered at once.

    Args:
        app: Application behind it.
        token: Token that clients must send; empty for none.
        host: Address of the server, as a client may name it.
        bounds: Limits.
        access: Requests that are let through.
    """

    def __init__(self, app: ASGIApp, token: str, host: str, bounds: Bounds, access: Access) -> None:
        self._app, self._bounds, self._access = app, bounds, access
        self._authorization = f"Bearer {token}".encode() if token else b""
        self._hosts = {"localhost", "127.0.0.1", "::1", host}
        self._turns = asyncio.Semaphore(bounds.requests)
        self._waiting = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        try:
            self._check_sender(scope)
            if scope["type"] == "http":
                self._check_request(scope)
                await self._wait_for_turn()
        except HTTPException as refusal:
            # The body is not read, so that nothing else can be on this connection.
            headers = {**(refusal.headers or {}), "Connection": "close"}
            await PlainTextResponse(refusal.detail, refusal.status_code, headers)(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await self._app(scope, receive, send)
            return
        try:
            await self._app(scope, self._limited(receive), send)
        finally:
            self._turns.release()

    async def _wait_for_turn(self) -> None:
        most = self._bounds.waiting
        if most is not None and self._turns.locked() and self._waiting >= most:
            why = f"{self._waiting} requests wait for their turn already; try again later"
            raise HTTPException(HTTPStatus.TOO_MANY_REQUESTS, why, {"Retry-After": str(RETRY_AFTER_S)})
        self._waiting += 1
        try:
            await self._turns.acquire()
        finally:
            self._waiting -= 1

    def _check_sender(self, scope: Scope) -> None:
        most = self._bounds.head_bytes
        if len(scope["raw_path"]) + sum(len(name) + len(value) for name, value in scope["headers"]) > most:
            # h11's own limit is for what comes in parts.
            raise HTTPException(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"headers may have {most} bytes at most")
        if scope["type"] == "websocket" and not self._access.websockets:
            raise HTTPException(HTTPStatus.METHOD_NOT_ALLOWED, "this server has no WebSockets")
        headers = Headers(scope=scope)
        own_page = self._access.own_pages and _netloc(headers.get("Origin", "")) == headers.get("Host")
        if "Origin" in headers and not own_page:
            raise HTTPException(HTTPStatus.FORBIDDEN, "a web page is no client of this server")
        if not self._authorization and _host_of(headers.get("Host", "")) not in self._hosts:  # DNS rebinding
            raise HTTPException(HTTPStatus.FORBIDDEN, "without a token this server answers to localhost alone")
        if scope["path"] in self._access.open_paths:
            return
        authorization = b"".join(value for name, value in scope["headers"] if name == b"authorization")
        if self._authorization and not hmac.compare_digest(authorization, self._authorization):
            why = "the token is not that of this server"
            raise HTTPException(HTTPStatus.UNAUTHORIZED, why, {"WWW-Authenticate": "Bearer"})

    def _check_request(self, scope: Scope) -> None:
        allowed, headers = sorted(self._access.methods), Headers(scope=scope)
        if scope["method"] not in allowed:
            why = f"only {' and '.join(allowed)} requests are answered"
            raise HTTPException(HTTPStatus.METHOD_NOT_ALLOWED, why, {"Allow": ", ".join(allowed)})
        if scope["method"] == "POST" and headers.get("Content-Type", "").partition(";")[0].strip().lower() != JSON:
            raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"a request must have the content type {JSON}")
        length = headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length[:20]) > self._bounds.body_bytes:
            raise self._too_long()

    def _too_long(self) -> HTTPException:
        most = self._bounds.body_bytes
        why = f"a request may have {most} bytes at most"
        return HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why, {"Connection": "close"})

    def _limited(self, receive: Receive) -> Receive:
        deadline = asyncio.get_running_loop().time() + self._bounds.body_s
        length, is_complete = 0, False

        async def limited() -> Message:
            nonlocal length, is_complete
            if is_complete:
                return await receive()  # waits for the client to go
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                why = f"a request may take {self._bounds.body_s:g} s"
                raise HTTPException(HTTPStatus.REQUEST_TIMEOUT, why, {"Connection": "close"}) from None
            length += len(message.get("body", b""))
            if length > self._bounds.body_bytes:
                raise self._too_long()
            is_complete = not message.get("more_body", False)
            return message

        return limited


def _netloc(origin: str) -> str:
    with contextlib.suppress(ValueError):
        return urlsplit(origin).netloc
    return ""


def _host_of(header: str) -> str:
    with contextlib.suppress(ValueError):
        return urlsplit(f"//{header}").hostname or ""
    return ""
