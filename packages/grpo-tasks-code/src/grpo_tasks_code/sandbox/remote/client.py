"""HTTP client of a sandbox server, as an `Executor`."""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import math
import socket
import threading
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from pydantic import TypeAdapter, ValidationError

from grpo_sdk import UserError
from grpo_tasks_code.sandbox.arguments import DEFAULT_OUTPUT_BYTES, MAX_WORKERS, Limits, Script, check_whole
from grpo_tasks_code.sandbox.errors import SandboxUnavailableError, ServerError
from grpo_tasks_code.sandbox.executor import Cancellation, Executor
from grpo_tasks_code.sandbox.host.plan import Plan
from grpo_tasks_code.sandbox.host.testing import MAX_REASON_CHARS
from grpo_tasks_code.sandbox.results import Execution, Level, TestResult, readable

URL_VARIABLE, TOKEN_VARIABLE = "GRPO_SANDBOX_URL", "GRPO_SANDBOX_TOKEN"

DEFAULT_WORKERS = 16
QUEUE_TIMEOUT_S = 600.0
"""Time limit of a request beyond the program's own, since requests may queue at the server."""
BYTES_PER_CHARACTER = 6
r"""Most bytes of JSON for one character of text: \u0000."""
_ROOM_BYTES = 1 << 20
"""Size limit of an answer beyond its texts."""
_VERDICT_BYTES = 2 * BYTES_PER_CHARACTER * MAX_REASON_CHARS + 100
"""Size limit of an answer per test: a reason's characters may take two escapes each, and a program chooses them."""

T = TypeVar("T")


class HttpExecutor(Executor):
    """Client of a sandbox server.

    Args:
        url: Address, `http://host:port` or `https://…`, optionally with a path; `http://[::1]:8700` is valid too.
        token: Token of the server; surrounding white space is removed.
        workers: Number of requests at once.

    Raises:
        UserError: an invalid address, or a token that no header carries.
    """

    _level_name = "remote"

    def __init__(self, url: str, token: str = "", *, workers: int = DEFAULT_WORKERS) -> None:
        check_whole("workers", workers, 1, MAX_WORKERS)
        self.workers, self._token = workers, token.strip()
        if not self._token.isprintable():
            raise UserError(f"the token in {TOKEN_VARIABLE} has control characters in it.")
        try:
            parts = urlsplit(url)
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError as error:
            raise UserError(f"sandbox address {url!r}: {error}.") from None
        if parts.username is not None or parts.query or parts.fragment:  # and do not repeat what may be a secret
            raise UserError(
                f"sandbox address of {self._host}: write http://host:port and put the token into {TOKEN_VARIABLE}."
            )
        if parts.scheme not in ("http", "https") or not self._host:
            raise UserError(f"sandbox address {url!r}: write http://host:port.")
        self._is_secure, self._path = parts.scheme == "https", quote(parts.path.rstrip("/"), safe="/%")

    @property
    def level(self) -> Level:
        """Isolation level as the server reports it.

        Raises:
            SandboxUnavailableError: the server cannot be reached, or refuses.
        """
        try:
            level = self._ask(Level, "level", {}, 0.0, _ROOM_BYTES)
        except ServerError as error:
            raise SandboxUnavailableError(
                f"no {error}. Start one there with python -m grpo_tasks_code.sandbox.remote, or unset {URL_VARIABLE}."
            ) from None
        guarantee = f"the provider's; it says {level.name} {level.title}: {level.guarantee}"
        return Level("remote", self._host, guarantee, f"its address was given; there: {level.reason}")

    def _run(self, script: Script, cancellation: Cancellation) -> Execution:
        """Run a script on the server. Cancelling only stops the waiting; the script goes on to its limit."""
        limits = script.limits
        request = {
            "code": script.code,
            "stdin": script.stdin,
            "timeout_s": limits.timeout_s,
            "memory_mib": limits.memory_mib,
            "policy": script.policy,
            "output_limit_bytes": limits.output_bytes,
            "machine_state": script.machine_state,
        }
        most_bytes = 2 * BYTES_PER_CHARACTER * limits.output_bytes + _ROOM_BYTES
        return self._ask(Execution, "run", request, limits.timeout_s, most_bytes, cancellation)

    def _run_tests(self, code: str, plan: Plan, limits: Limits) -> TestResult:
        tests, setup, entry_point = plan.given
        request = {
            "code": code,
            "tests": tests,
            "timeout_s": limits.timeout_s,
            "setup": setup,
            "entry_point": entry_point,
            "memory_mib": limits.memory_mib,
        }
        most_bytes = 2 * BYTES_PER_CHARACTER * DEFAULT_OUTPUT_BYTES + _ROOM_BYTES + len(tests) * _VERDICT_BYTES
        result = self._ask(TestResult, "run_tests", request, limits.timeout_s, most_bytes)
        if result.total != len(tests):
            raise ServerError(f"the sandbox at {self._host}: it does not have one verdict for each test")
        return result

    def _ask(
        self,
        kind: type[T],
        what: str,
        request: Mapping[str, Any],
        timeout_s: float,
        most_bytes: int,
        cancellation: Cancellation | None = None,
    ) -> T:
        """Send a request and return the answer.

        Raises:
            ServerError: the server cannot be reached, takes too long, refuses, or answers what does not fit.
        """
        http_of = http.client.HTTPSConnection if self._is_secure else http.client.HTTPConnection
        limit_s = timeout_s + QUEUE_TIMEOUT_S
        connection = http_of(self._host, self._port, timeout=limit_s)
        headers: dict[str, str | bytes] = {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {self._token}".encode(),
        }
        ended = ""

        def end(why: str) -> None:
            nonlocal ended
            ended = ended or why
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

        # The socket's own limit is for each read.
        timer = threading.Timer(limit_s, end, [f"no answer within {limit_s:g} s"])
        timer.daemon = True
        try:
            connection.connect()
            connected = connection.sock  # which the connection forgets while an answer is read
            timer.start()
            with (cancellation or Cancellation()).ends(functools.partial(end, "it was cancelled")):
                connection.request("POST", f"{self._path}/{what}", json.dumps(request).encode(), headers)
                answer = connection.getresponse()
                data = answer.read(most_bytes + 1)
            if len(data) > most_bytes:
                raise ValueError(f"it answers with more than {most_bytes} bytes")
            if not ended and answer.status != HTTPStatus.OK:
                raise ValueError(f"it answers {answer.status}: {data[:300].decode('utf-8', 'replace')}")
            return _read(kind, data)
        except (OSError, http.client.HTTPException, ValueError) as error:  # an invalid host name is a ValueError
            raise ServerError(f"the sandbox at {self._host}: {readable(ended or describe(error))}") from None
        finally:
            timer.cancel()
            connection.close()


_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {kind: TypeAdapter(kind) for kind in (Level, Execution, TestResult)}


def _read(kind: type[T], data: bytes) -> T:
    """Read a `Level`, `Execution` or `TestResult`.

    Raises:
        ValueError: it does not fit, or contradicts itself.
    """
    made: T = _ADAPTERS[kind].validate_json(data, strict=True)
    execution = made.execution if isinstance(made, TestResult) else made
    if isinstance(execution, Execution) and not all(0 <= s < math.inf for s in (execution.cpu_s, execution.wall_s)):
        raise ValueError("its seconds are none")
    if isinstance(made, TestResult):
        passed = [status == "passed" for status in made.statuses]
        counts = (made.passed, made.total, len(made.reasons))
        if list(made.per_test) != passed or counts != (sum(passed), len(passed), len(passed)):
            raise ValueError("its verdicts do not add up")
    return made


def describe(error: Exception) -> str:
    """Return what is wrong in one line; of data that does not fit, the first field and its problem."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
    return str(error) or type(error).__name__
