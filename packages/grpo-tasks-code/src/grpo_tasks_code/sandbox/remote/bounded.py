"""A bounded HTTP server: resources are limited before a client is authenticated, and web pages cannot reach it.

The server knows nothing of sandboxes: it serves any ASGI application that answers POST requests of JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hmac
import ipaddress
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self, cast
from urllib.parse import urlsplit

import uvicorn
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from grpo_core import UserError

JSON = "application/json"
GRACE_S = 2
"""Time to finish requests that are being answered at shutdown."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Resource limits of clients.

    Attributes:
        connections: Open connections. At the limit, one that has not sent a whole request head is closed for a new one.
        requests: Requests read and answered at once; others wait with their body unread.
        head_bytes: Size of a request line and headers.
        body_bytes: Size of a request body.
        head_s: Seconds from connecting, or from the last answer, to the end of the next request's headers.
        body_s: Seconds from the start of reading a body to its end.
        send_s: Seconds for which a client may leave an answer unread.
    """

    connections: int = 256
    requests: int = 32
    head_bytes: int = 16 << 10
    body_bytes: int = 64 << 20
    head_s: float = 10.0
    body_s: float = 120.0
    send_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Certificate:
    """TLS certificate of a server.

    Attributes:
        certfile: PEM file of the certificate and its chain.
        keyfile: PEM file of its private key, unless that is in `certfile`.
    """

    certfile: Path
    keyfile: Path | None = None


class BoundedServer:
    """Serves an ASGI application to clients with the token; listens as soon as it is constructed.

    Args:
        app: Application to serve.
        token: Token that clients must send; without a token only this machine is served.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one, see `address`.
        bounds: Resource limits of clients.
        certificate: TLS certificate, for https.

    Attributes:
        address: `http://host:port`, or https.

    Raises:
        UserError: other machines could connect and there is no token, the address cannot be used, or the certificate
            is invalid.
    """

    def __init__(
        self,
        app: ASGIApp,
        token: str = "",
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        bounds: Bounds | None = None,
        certificate: Certificate | None = None,
    ) -> None:
        bounds, token = bounds or Bounds(), clean_token(token)
        if not token and not is_loopback(host):
            raise UserError(f"listening on {host} needs a token: anybody there could run programs.")
        connections = _Connections(bounds)
        config = uvicorn.Config(
            _Guard(app, token, host, bounds),
            http=cast("Any", functools.partial(_Protocol, connections)),
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="critical",  # else whoever sends nonsense fills the log
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=int(bounds.head_s) + 1,  # `_Protocol` closes earlier
            timeout_graceful_shutdown=GRACE_S,
            h11_max_incomplete_event_size=bounds.head_bytes,
            ssl_certfile=None if certificate is None else certificate.certfile,
            ssl_keyfile=None if certificate is None else certificate.keyfile,
        )
        try:
            config.load()
        except (OSError, ssl.SSLError, ValueError) as error:  # an SSLError is an OSError, but not everywhere
            raise UserError(f"the certificate cannot be used: {error}.") from None
        self._socket, self._bounds = _listening(host, port), bounds
        self._server = uvicorn.Server(config)
        bound = self._socket.getsockname()
        name = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
        self.address = f"{'http' if certificate is None else 'https'}://{name}:{bound[1]}"

    def serve_forever(self) -> None:
        """Serve until `shutdown`, or a signal where this is the main thread."""
        loops: Callable[[], asyncio.AbstractEventLoop] = functools.partial(_EventLoop, self._bounds.head_s)
        with asyncio.Runner(loop_factory=loops) as runner:
            runner.run(self._server.serve(sockets=[self._socket]))

    def shutdown(self) -> None:
        """End `serve_forever` from another thread."""
        self._server.should_exit = True

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def clean_token(token: str) -> str:
    """Return a token without surrounding white space.

    Raises:
        UserError: the token has white space or control characters inside, which no header carries.
    """
    token = token.strip()
    if not token.isprintable() or " " in token:
        raise UserError("the token has white space or control characters in it.")
    return token


def _listening(host: str, port: int) -> socket.socket:
    if not 0 <= port < 1 << 16:
        raise UserError(f"cannot listen on {host}, port {port}: a port is a number from 0 to 65535.")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(cast("Any", address[:2]), family=family)
    except (OSError, UnicodeError) as error:
        raise UserError(f"cannot listen on {host}, port {port}: {error}.") from None


class _EventLoop(asyncio.SelectorEventLoop):
    """Limits the duration of TLS handshakes, for which uvicorn allows a minute."""

    def __init__(self, handshake_s: float) -> None:
        super().__init__()
        self._handshake_s = handshake_s

    async def create_server(self, *args: Any, **options: Any) -> Any:
        if options.get("ssl") is not None:
            options["ssl_handshake_timeout"] = self._handshake_s
        return await super().create_server(*args, **options)


class _Connections:
    """Open connections, and those of them that wait for a request."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._open: set[_Protocol] = set()
        self._waiting: dict[_Protocol, None] = {}  # the longest wait first

    def add(self, protocol: _Protocol) -> None:
        self._open.add(protocol)
        if len(self._open) > self.bounds.connections:
            victim = next(iter(self._waiting), protocol)
            self.remove(victim)
            victim.transport.abort()

    def remove(self, protocol: _Protocol) -> None:
        self._open.discard(protocol)
        self._waiting.pop(protocol, None)

    def mark(self, protocol: _Protocol, *, waits: bool) -> None:
        self._waiting.pop(protocol, None)
        if waits and protocol in self._open:
            self._waiting[protocol] = None


class _Protocol(H11Protocol):
    """Closes connections beyond the limit, and those that send a head or read an answer too slowly."""

    def __init__(self, connections: _Connections, **options: Any) -> None:
        super().__init__(**options)
        self._all, self._bounds = connections, connections.bounds
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._all.add(self)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.remove(self)
        for name in list(self._timers):
            self._stop(name)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._all.mark(self, waits=False)
            self._stop("head")

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete:  # else the next request was there already
            self._wait_for_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start("send", self._bounds.send_s)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop("send")

    def _wait_for_head(self) -> None:
        self._all.mark(self, waits=True)
        self._start("head", self._bounds.head_s)

    def _start(self, name: str, seconds: float) -> None:
        self._stop(name)
        self._timers[name] = self.loop.call_later(seconds, self.transport.abort)

    def _stop(self, name: str) -> None:
        if name in self._timers:
            self._timers.pop(name).cancel()


class _Guard:
    """Refuses invalid requests before their body is read, and limits how many are answered at once."""

    def __init__(self, app: ASGIApp, token: str, host: str, bounds: Bounds) -> None:
        self._app, self._bounds = app, bounds
        self._authorization = f"Bearer {token}".encode() if token else b""
        self._hosts = {"localhost", "127.0.0.1", "::1", host}
        self._turns = asyncio.Semaphore(bounds.requests)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check(scope)
        except HTTPException as refusal:
            # The body is not read, so that nothing else can be on this connection.
            headers = {**(refusal.headers or {}), "Connection": "close"}
            await PlainTextResponse(refusal.detail, refusal.status_code, headers)(scope, receive, send)
            return
        async with self._turns:
            await self._app(scope, self._limited(receive), send)

    def _check(self, scope: Scope) -> None:
        most = self._bounds.head_bytes
        if len(scope["raw_path"]) + sum(len(name) + len(value) for name, value in scope["headers"]) > most:
            # h11's own limit is for what comes in parts.
            raise HTTPException(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"headers may have {most} bytes at most")
        headers = Headers(scope=scope)
        if "Origin" in headers:
            raise HTTPException(HTTPStatus.FORBIDDEN, "a web page is no client of this server")
        if not self._authorization and _host_of(headers.get("Host", "")) not in self._hosts:  # DNS rebinding
            raise HTTPException(HTTPStatus.FORBIDDEN, "without a token this server answers to localhost alone")
        authorization = b"".join(value for name, value in scope["headers"] if name == b"authorization")
        if self._authorization and not hmac.compare_digest(authorization, self._authorization):
            why = "the token is not that of this server"
            raise HTTPException(HTTPStatus.UNAUTHORIZED, why, {"WWW-Authenticate": "Bearer"})
        if scope["method"] != "POST":
            raise HTTPException(HTTPStatus.METHOD_NOT_ALLOWED, "only POST requests are answered", {"Allow": "POST"})
        if headers.get("Content-Type", "").partition(";")[0].strip().lower() != JSON:
            raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"a request must have the content type {JSON}")
        length = headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length[:20]) > self._bounds.body_bytes:
            raise self._too_long()

    def _too_long(self) -> HTTPException:
        most = self._bounds.body_bytes
        return HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request may have {most} bytes at most")

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


def _host_of(header: str) -> str:
    with contextlib.suppress(ValueError):
        return urlsplit(f"//{header}").hostname or ""
    return ""
