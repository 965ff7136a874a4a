"""A bounded HTTP server: resources are limited before a client is authenticated, and web pages cannot reach it.

The server knows nothing of sandboxes or tasks: it serves any ASGI application that answers requests of JSON.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import ipaddress
import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

import uvicorn
from starlette.types import ASGIApp

from grpo_sdk.errors import UserError
from grpo_sdk.killable.secrets import withhold
from grpo_sdk.serve.connections import BoundedEventLoop, BoundedProtocol, Connections
from grpo_sdk.serve.guard import Access, Bounds, Guard


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
        access: Requests that are let through; by default POST requests with the token.
        certificate: TLS certificate, for https.

    Attributes:
        host: Address to listen on, as it was given.
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
        access: Access | None = None,
        certificate: Certificate | None = None,
    ) -> None:
        bounds, access, token = bounds or Bounds(), access or Access(), clean_token(token)
        if not token and not is_loopback(host):
            raise UserError(f"listening on {host} needs a token: anybody there could use this server.")
        config = uvicorn.Config(
            Guard(app, token, host, bounds, access),
            http=cast("Any", functools.partial(BoundedProtocol, Connections(bounds))),
            ws="websockets-sansio" if access.websockets else "none",
            ws_max_size=bounds.body_bytes,
            ws_per_message_deflate=False,  # a short message could become a long one
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="critical",  # else whoever sends nonsense fills the log
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=int(bounds.head_s) + 1,  # `BoundedProtocol` closes earlier
            timeout_graceful_shutdown=cast("Any", bounds.grace_s),  # asyncio takes fractions
            h11_max_incomplete_event_size=bounds.head_bytes,
            ssl_certfile=None if certificate is None else certificate.certfile,
            ssl_keyfile=None if certificate is None else certificate.keyfile,
        )
        try:
            config.load()
        except (OSError, ssl.SSLError, ValueError) as error:  # an SSLError is an OSError, but not everywhere
            raise UserError(f"the certificate cannot be used: {error}.") from None
        self.host = host
        self._socket, self._bounds = _listening(host, port), bounds
        self._server = uvicorn.Server(config)
        bound = self._socket.getsockname()
        name = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
        self.address = f"{'http' if certificate is None else 'https'}://{name}:{bound[1]}"

    def serve_forever(self) -> None:
        """Serve until `shutdown`, or a signal where this is the main thread.

        Requests that are being answered then get the time of `Bounds.grace_s`.
        """
        loops: Callable[[], asyncio.AbstractEventLoop] = functools.partial(BoundedEventLoop, self._bounds.head_s)
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
    """Whether an address can be reached from this machine only.

    Args:
        host: Name or address to listen on.
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def clean_token(token: str) -> str:
    """Return a token without surrounding white space.

    Args:
        token: Text of a file or a variable.

    Raises:
        UserError: the token has white space or control characters inside, which no header carries.
    """
    token = token.strip()
    if not token.isprintable() or " " in token:
        raise UserError("the token has white space or control characters in it.")
    return token


def read_token(file: Path | None, variable: str) -> str:
    """Read a token from a file, or else from an environment variable; empty if neither gives one.

    Workers that start from now on do not get the variable.

    Args:
        file: Value of `--token-file`.
        variable: Name of the environment variable.

    Raises:
        UserError: the file cannot be read, or is empty.
    """
    withhold(variable)  # from workers, whose tasks answer clients
    if file is None:
        return os.environ.get(variable, "")
    try:
        token = file.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"--token-file {file}: {error.strerror or error}.") from None
    except ValueError:
        raise UserError(f"--token-file {file}: not UTF-8 text.") from None
    if not token.strip():
        raise UserError(f"--token-file {file}: there is no token in it.")
    return token


def _listening(host: str, port: int) -> socket.socket:
    if not 0 <= port < 1 << 16:
        raise UserError(f"cannot listen on {host}, port {port}: a port is a number from 0 to 65535.")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(cast("Any", address[:2]), family=family)
    except (OSError, UnicodeError) as error:
        is_taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        # asyncio's text of a taken port has the address once more
        reason = "another process uses it. Give another port, or 0 for a free one" if is_taken else error
        raise UserError(f"cannot listen on {host}, port {port}: {reason}.") from None
