"""Requests to one server: bounded replies, and one line for everything that goes wrong."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import httpx2
from pydantic import BaseModel, ValidationError

from grpo_sdk.endpoints.background import BackgroundLoop
from grpo_sdk.endpoints.openai import excerpt
from grpo_sdk.errors import EngineError, UserError

KEY_VARIABLE = "VLLM_API_KEY"
"""Environment variable of the server's key, which vLLM itself reads, too."""

MAX_REPLY_BYTES = 64 * 2**20
"""Longest reply read: a completion of 100,000 tokens with their log-probs is about 6 MiB."""

CONTROL_S = 600.0
"""Limit of a request other than a completion; loading the weights of a large model takes minutes."""

CONNECT_S = 10.0
"""Limit of opening a connection."""

MAX_CONNECTIONS = 512
"""Completions asked for at once; servers queue what they cannot batch."""


in_background = BackgroundLoop("server requests")
"""Where requests run."""

Reply = TypeVar("Reply", bound=BaseModel)


class Empty(BaseModel):
    """A reply of which nothing is read."""


class ServerClient:
    """Makes requests to a server of vLLM.

    Args:
        url: Address without a path; of a Unix socket any host will do.
        uds: Unix socket on which the server listens, if it is the run's own.
        timeout_s: Limit of one completion.
        cause: Why the server is gone, where this process knows.

    Raises:
        UserError: the URL is no plain http(s) address.
    """

    def __init__(
        self,
        url: str,
        *,
        uds: str | None = None,
        timeout_s: float,
        cause: Callable[[], str] = lambda: "",
    ) -> None:
        try:
            address = httpx2.URL(url)
        except httpx2.InvalidURL as error:
            raise UserError(f"engine.url: {error}; give http://host:port.") from None
        if address.scheme not in ("http", "https") or not address.host:
            raise UserError(f"engine.url={url!r} is no address; give http://host:port.")
        if address.userinfo or address.query or address.fragment:  # and do not repeat what may be a secret
            raise UserError(f"engine.url holds a user, a query or a fragment; a key belongs into {KEY_VARIABLE}.")
        self.url = url.rstrip("/").removesuffix("/v1")
        self.uds, self._timeout_s, self._cause = uds, timeout_s, cause

    @property
    def name(self) -> str:
        """How messages call the server."""
        return "the vLLM server" + ("" if self.uds is not None else f" at {self.url}")

    def ask(
        self, path: str, reply: type[Reply], *, method: str = "GET", body: Mapping[str, Any] | None = None
    ) -> Reply:
        """Ask the server something else than a completion.

        Args:
            path: Path of the request, with its query.
            reply: What it replies.
            method: Method of HTTP.
            body: Content, as JSON.

        Raises:
            EngineError: the server is gone, refuses, or replies something else.
        """

        async def ask() -> tuple[int, bytes]:
            async with self.session() as session:
                return await self._request(session, method, path, body, CONTROL_S)

        return self._read(path, *in_background.submit(ask()).result(), reply)

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> None:
        """Tell the server something, whatever it replies; see `ask`."""
        self.ask(path, Empty, method="POST", body=body)

    def is_up(self) -> bool:
        """Whether the server answers, and its engine runs."""

        async def ask() -> bool:
            async with (
                asyncio.timeout(CONNECT_S),
                self.session() as session,
                session.stream("GET", "/health") as response,  # whatever its body holds
            ):
                return response.status_code == httpx2.codes.OK

        try:
            if self.uds is not None:  # httpcore leaves a socket open that cannot be connected
                with socket.socket(socket.AF_UNIX) as probe:
                    probe.connect(self.uds)
            return in_background.submit(ask()).result()
        except (httpx2.TransportError, OSError):
            return False

    def session(self) -> httpx2.AsyncClient:
        """The client for a batch of completions; a new one for each, since servers close connections that are idle."""
        key = _key()
        if not (key.isascii() and key.isprintable()):
            raise UserError(f"the key in {KEY_VARIABLE} has characters that no HTTP header can carry.")
        headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {key}"} if key else {})
        transport = httpx2.AsyncHTTPTransport(uds=self.uds, limits=httpx2.Limits(max_connections=MAX_CONNECTIONS))
        timeout = httpx2.Timeout(None, connect=CONNECT_S)  # requests have limits of their own, from first to last byte
        return httpx2.AsyncClient(transport=transport, base_url=self.url, headers=headers, timeout=timeout)

    async def complete(
        self, session: httpx2.AsyncClient, path: str, body: Mapping[str, Any], reply: type[Reply]
    ) -> Reply:
        """Request one completion; at most `MAX_CONNECTIONS` at once, since its time begins here.

        Raises:
            EngineError: as for `ask`.
        """
        return self._read(path, *await self._request(session, "POST", path, body, self._timeout_s), reply)

    async def _request(
        self, session: httpx2.AsyncClient, method: str, path: str, body: Mapping[str, Any] | None, timeout_s: float
    ) -> tuple[int, bytes]:
        """Status and content of a reply, which has to be there in time: a slow server may send byte by byte."""
        data = bytearray()
        try:
            async with asyncio.timeout(timeout_s), session.stream(method, path, json=body) as response:
                async for chunk in response.aiter_raw():
                    data += chunk
                    if len(data) > MAX_REPLY_BYTES:
                        raise self._error(f"sent a reply of more than {MAX_REPLY_BYTES} bytes")
        except httpx2.TransportError as error:
            raise self._gone(f"{type(error).__name__}: {excerpt(str(error), _key())}") from None
        except TimeoutError:
            raise self._gone(f"no whole reply to {path.partition('?')[0]} within {timeout_s:g} s") from None
        return response.status_code, bytes(data)

    def _read(self, path: str, status: int, data: bytes, reply: type[Reply]) -> Reply:
        if status != httpx2.codes.OK:
            said = excerpt(data.decode("utf-8", "replace"), _key(), limit=300)
            raise self._error(f"refuses {path.partition('?')[0]}: HTTP {status}: {said}", status)
        if reply is Empty:
            return reply()
        try:
            return reply.model_validate_json(data)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise self._error(f"replied to {path.partition('?')[0]} with something else: {first['msg']}") from None

    def _gone(self, why: str) -> EngineError:
        return self._error(f"is gone or does not answer ({self._cause() or why})")

    def _error(self, what: str, status: int | None = None) -> EngineError:
        failure = EngineError(f"{self.name} {what}")
        failure.status = status
        return failure


def _key() -> str:
    return os.environ.get(KEY_VARIABLE, "").strip()
