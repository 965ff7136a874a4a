"""Requests to one server: bounded replies, and one line for everything that goes wrong."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

import httpx2
from pydantic import BaseModel, ValidationError

from grpo_core.engines.servers.products import Product
from grpo_sdk.endpoints.background import stream_from_thread
from grpo_sdk.endpoints.openai import excerpt
from grpo_sdk.errors import EngineError, UserError

MAX_REPLY_BYTES = 64 * 2**20
"""Longest reply read: a completion of 100,000 tokens with their log-probs is about 6 MiB."""

CONTROL_S = 600.0
"""Limit of a request other than a completion; loading the weights of a large model takes minutes."""

CONNECT_S = 10.0
"""Limit of opening a connection."""

MAX_CONNECTIONS = 512
"""Completions asked for at once; servers queue what they cannot batch."""


Reply = TypeVar("Reply", bound=BaseModel)


class Empty(BaseModel):
    """A reply of which nothing is read."""


class ServerClient:
    """Makes requests to a server.

    Args:
        product: Its software.
        url: Address without a path; of a Unix socket any host will do.
        uds: Unix socket on which the server listens, if it does.
        key: Its key, if it is the run's own; one that runs already has the product's environment variable.
        timeout_s: Limit of one completion.
        cause: Why the server is gone, where this process knows.

    Raises:
        UserError: the URL is no plain http(s) address.
    """

    def __init__(
        self,
        product: Product,
        url: str,
        *,
        uds: str | None = None,
        key: str | None = None,
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
            raise UserError(
                f"engine.url holds a user, a query or a fragment; a key belongs into {product.key_variable}."
            )
        self.url = url.rstrip("/").removesuffix("/v1")
        self.product, self.uds, self.key = product, uds, key
        self._cause = cause
        self._timeout_s = timeout_s

    @property
    def name(self) -> str:
        """How messages call the server."""
        is_own = self.uds is not None or self.key is not None
        return f"the {self.product.name} server" + ("" if is_own else f" at {self.url}")

    def get(self, path: str, reply: type[Reply]) -> Reply:
        """Read something of the server; see `post`."""
        return self._control("GET", path, None, reply)

    @overload
    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Empty: ...

    @overload
    def post(self, path: str, body: Mapping[str, Any] | None = None, *, reply: type[Reply]) -> Reply: ...

    def post(self, path: str, body: Mapping[str, Any] | None = None, *, reply: type[BaseModel] = Empty) -> BaseModel:
        """Tell the server something.

        Args:
            path: Path of the request, with its query.
            body: Content, as JSON.
            reply: What it replies.

        Raises:
            EngineError: the server is gone, refuses, or replies something else.
        """
        return self._control("POST", path, body, reply)

    def is_up(self) -> bool:
        """Whether the server answers, and its engine runs."""

        async def ask(put: Callable[[bool], None]) -> None:
            async with (
                asyncio.timeout(CONNECT_S),
                self.session() as session,
                session.stream("GET", "/health") as response,  # whatever its body holds
            ):
                put(response.status_code == httpx2.codes.OK)

        try:
            if self.uds is not None:  # httpcore leaves a socket open that cannot be connected
                with socket.socket(socket.AF_UNIX) as probe:
                    probe.connect(self.uds)
            (is_up,) = stream_from_thread(ask)
        except (httpx2.TransportError, OSError):
            return False
        return is_up

    def session(self) -> httpx2.AsyncClient:
        """The client for a batch of completions; a new one for each, since servers close connections that are idle."""
        transport = httpx2.AsyncHTTPTransport(uds=self.uds, limits=httpx2.Limits(max_connections=MAX_CONNECTIONS))
        timeout = httpx2.Timeout(None, connect=CONNECT_S)  # requests have limits of their own, from first to last byte
        return httpx2.AsyncClient(transport=transport, base_url=self.url, headers=self._headers(), timeout=timeout)

    async def complete(
        self, session: httpx2.AsyncClient, path: str, body: Mapping[str, Any], reply: type[Reply]
    ) -> Reply:
        """Request one completion; at most `MAX_CONNECTIONS` at once, since its time begins here.

        Raises:
            EngineError: as for `post`.
        """
        return self._read(path, *await self._request(session, "POST", path, body, self._timeout_s), reply)

    def _control(self, method: str, path: str, body: Mapping[str, Any] | None, reply: type[Reply]) -> Reply:
        async def ask(put: Callable[[tuple[int, bytes]], None]) -> None:
            async with self.session() as session:
                put(await self._request(session, method, path, body, CONTROL_S))

        ((status, data),) = stream_from_thread(ask)
        return self._read(path, status, data, reply)

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
            raise self._gone(f"{type(error).__name__}: {excerpt(str(error), self._key_in_use)}") from None
        except TimeoutError:
            raise self._gone(f"no whole reply to {path.partition('?')[0]} within {timeout_s:g} s") from None
        return response.status_code, bytes(data)

    def _read(self, path: str, status: int, data: bytes, reply: type[Reply]) -> Reply:
        if status != httpx2.codes.OK:
            said = excerpt(data.decode("utf-8", "replace"), self._key_in_use, limit=300)
            raise self._error(f"refuses {path.partition('?')[0]}: HTTP {status}: {said}", status)
        if reply is Empty:
            return reply()
        try:
            return reply.model_validate_json(data)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise self._error(f"replied to {path.partition('?')[0]} with something else: {first['msg']}") from None

    def _headers(self) -> dict[str, str]:
        key = self._key_in_use
        if not (key.isascii() and key.isprintable()):
            raise UserError(f"the key in {self.product.key_variable} has characters that no HTTP header can carry.")
        return {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {key}"} if key else {})

    @property
    def _key_in_use(self) -> str:
        return os.environ.get(self.product.key_variable, "").strip() if self.key is None else self.key

    def _gone(self, why: str) -> EngineError:
        return self._error(f"is gone or does not answer ({self._cause() or why})")

    def _error(self, what: str, status: int | None = None) -> EngineError:
        failure = EngineError(f"{self.name} {what}")
        failure.status = status
        return failure
