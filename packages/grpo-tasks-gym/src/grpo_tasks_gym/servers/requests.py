"""Requests to a server that is not trusted: bounded in time and size, and failing with its address."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, TypeVar

import httpx2

from grpo_sdk import InfrastructureError, UserError
from grpo_tasks_gym.servers.options import ServerConfig, token_of

T = TypeVar("T")

MAX_REPLY_BYTES = 4 * 2**20
"""Longest reply that is read."""

MAX_EXCERPT_CHARS = 200

MAX_PAUSE_S = 10.0
"""Longest pause before another attempt, whatever the server asks for."""

ATTEMPTS = 4
"""Attempts of a request that a busy server may answer yet, within the time of one."""

FAILURES_TO_PAUSE = 8
"""Failures in a row after which others fail at once; at least the concurrency."""

PAUSE_S = 30.0
"""Time for which others then fail at once, before one is tried again."""

_BUSY = frozenset({429, 502, 503, 504})
_REFUSED = frozenset({401, 403})


@dataclass(frozen=True, slots=True)
class JsonReply:
    """A server's reply.

    Attributes:
        status: HTTP status.
        content: The content, if it is JSON; else its beginning, as text.
        cookies: What the server sets, as pairs of a name and a value.
    """

    status: int
    content: Any
    cookies: tuple[tuple[str, str], ...] = ()

    @property
    def is_ok(self) -> bool:
        """Whether the request succeeded."""
        return self.status == HTTPStatus.OK


class Health:
    """Fails requests at once while a server answers none, so that a batch does not wait for each.

    Args:
        concurrency: Requests at the same time.
    """

    def __init__(self, concurrency: int) -> None:
        self._most = max(FAILURES_TO_PAUSE, concurrency)
        self._failures, self._paused_until, self._why = 0, 0.0, ""

    async def watch(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do some work, unless what was tried before failed too often.

        Raises:
            InfrastructureError: that of the work, or that of the failure before.
        """
        if time.monotonic() < self._paused_until:
            raise InfrastructureError(f"{self._why} (not tried: {self._failures} requests in a row failed)")
        try:
            result = await work()
        except InfrastructureError as error:
            self._failures, self._why = self._failures + 1, str(error)
            if self._failures >= self._most:
                self._paused_until = time.monotonic() + PAUSE_S
            raise
        self._failures = 0
        return result


class JsonClient:
    """Makes requests with JSON.

    Args:
        config: Limits and token.
    """

    def __init__(self, config: ServerConfig) -> None:
        self.timeout_s, self.token = config.timeout_s, token_of(config)
        headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {self.token}"} if self.token else {})
        jar = CookieJar(DefaultCookiePolicy(allowed_domains=[]))  # those of a rollout are sent with its requests alone
        limits = httpx2.Limits(max_connections=config.concurrency)
        self._client = httpx2.AsyncClient(headers=headers, cookies=jar, timeout=None, limits=limits)
        self._slots, self._health = asyncio.Semaphore(config.concurrency), Health(config.concurrency)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def get(self, url: str) -> JsonReply:
        """Get a page; see `post`."""
        return await self._ask("GET", url, None, {})

    async def post(self, url: str, body: Any, cookies: tuple[tuple[str, str], ...] = ()) -> JsonReply:
        """Post JSON.

        Args:
            url: Address.
            body: Content.
            cookies: Cookies to send.

        Raises:
            InfrastructureError: no whole reply in time, or one that is too long.
            UserError: the server refuses the token.
        """
        headers = {"Content-Type": "application/json"}
        if cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in cookies)
        # Not orjson: a completion may hold lone surrogates, which this escapes.
        return await self._ask("POST", url, json.dumps(body, allow_nan=False).encode(), headers)

    async def _ask(self, method: str, url: str, body: bytes | None, headers: dict[str, str]) -> JsonReply:
        async with self._slots:
            reply = await self._health.watch(lambda: self._answered(method, url, body, headers))
        if reply.status in _REFUSED:
            known = "api_key_env names its variable" if self.token else "name its variable with api_key_env="
            raise UserError(f"{url}: HTTP {reply.status}: the server wants another token; {known}.")
        return reply

    async def _answered(self, method: str, url: str, body: bytes | None, headers: dict[str, str]) -> JsonReply:
        try:
            async with asyncio.timeout(self.timeout_s):
                for attempt in range(ATTEMPTS):
                    reply, pause_s = await self._once(method, url, body, headers)
                    if reply.status not in _BUSY or attempt == ATTEMPTS - 1:
                        break
                    await asyncio.sleep(max(pause_s, 0.25 * 2**attempt * random.uniform(0.5, 1.5)))
        except TimeoutError:
            raise InfrastructureError(f"{url}: no answer within {self.timeout_s:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            why = excerpt(str(error), self.token)
            raise InfrastructureError(f"{url}: {type(error).__name__}: {why}") from None
        return reply

    async def _once(
        self, method: str, url: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[JsonReply, float]:
        data = bytearray()
        async with self._client.stream(method, url, content=body, headers=headers) as response:
            if response.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
                raise InfrastructureError(f"{url}: a compressed reply, which was not asked for")
            async for chunk in response.aiter_raw():
                data += chunk
                if len(data) > MAX_REPLY_BYTES:
                    raise InfrastructureError(f"{url}: a reply of more than {MAX_REPLY_BYTES} bytes")
            pause = response.headers.get("Retry-After", "")
            pause_s = min(float(pause[:9]), MAX_PAUSE_S) if pause.isascii() and pause.isdigit() else 0.0
            cookies = tuple(_cookie(header) for header in response.headers.get_list("Set-Cookie")[:16])
            return JsonReply(response.status_code, self._content(bytes(data)), cookies), pause_s

    def _content(self, data: bytes) -> Any:
        try:
            return read_json(data)
        except ValueError:
            return excerpt(data[: 4 * MAX_EXCERPT_CHARS].decode("utf-8", "replace"), self.token)


def read_json(data: str | bytes) -> Any:
    """A server's JSON, in which texts may hold lone surrogates, since a completion may.

    Raises:
        ValueError: it is none, nested too deeply, or holds NaN or Infinity.
    """

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    try:
        return json.loads(data, parse_constant=refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _cookie(header: str) -> tuple[str, str]:
    name, _, value = header.partition(";")[0].partition("=")
    return name.strip(), value.strip()


def excerpt(text: object, token: str = "") -> str:
    """The beginning of what a server said, on one line, without control characters and without the token."""
    content = text if isinstance(text, str) else json.dumps(text)
    content = content.replace(token, "(the token)") if token else content
    line = " ".join("".join(char if char.isprintable() else " " for char in content[: 4 * MAX_EXCERPT_CHARS]).split())
    return line[:MAX_EXCERPT_CHARS] or "(nothing)"
