"""HTTP client of a sandbox server, as an `Executor`."""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from http import HTTPStatus
from typing import Any, TypeVar, cast, get_args
from urllib.parse import quote, urlsplit

from grpo_core import UserError
from grpo_tasks_code.sandbox.arguments import DEFAULT_OUTPUT_BYTES, MAX_WORKERS, check_whole
from grpo_tasks_code.sandbox.errors import SandboxUnavailableError, ServerError
from grpo_tasks_code.sandbox.execution import Execution, Level, Status, TestResult, TestStatus, all_text
from grpo_tasks_code.sandbox.executor import Cancellation
from grpo_tasks_code.sandbox.host.checked import CheckedExecutor, Script, TestedProgram
from grpo_tasks_code.sandbox.host.testing import MAX_REASON_CHARS

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


class BadAnswerError(ValueError):
    """The server's answer does not follow the protocol."""


_FAILURES = (OSError, http.client.HTTPException, BadAnswerError, UnicodeError)  # the last: an invalid host name


class HttpExecutor(CheckedExecutor):
    """Client of a sandbox server.

    Args:
        url: Address, `http://host:port` or `https://…`, optionally with a path; `http://[::1]:8700` is valid too.
        token: Token of the server; surrounding white space is removed.
        workers: Number of requests at once.

    Raises:
        UserError: an invalid address, or a token that no header carries.
    """

    def __init__(self, url: str, token: str = "", *, workers: int = DEFAULT_WORKERS) -> None:
        check_whole("workers", workers, 1, MAX_WORKERS)
        try:
            parts = urlsplit(url)
            self._port = parts.port
        except ValueError as error:
            raise UserError(f"sandbox address {url!r}: {error}.") from None
        if parts.username is not None or parts.query or parts.fragment:  # and do not repeat what may be a secret
            raise UserError(
                f"sandbox address of {parts.hostname}: write http://host:port and put the token into {TOKEN_VARIABLE}."
            )
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UserError(f"sandbox address {url!r}: write http://host:port.")
        self._is_secure, self._host = parts.scheme == "https", parts.hostname
        self._path = quote(parts.path.rstrip("/"), safe="/%")
        self._token = token.strip()
        if not self._token.isprintable():
            raise UserError(f"the token in {TOKEN_VARIABLE} has control characters in it.")
        self.workers = workers

    @property
    def level(self) -> Level:
        """Isolation level as the server reports it.

        Raises:
            SandboxUnavailableError: the server cannot be reached, or refuses.
        """
        try:
            level = _made(Level, self._ask("level", {}, 0.0, _ROOM_BYTES))
        except _FAILURES as error:
            raise SandboxUnavailableError(
                f"no sandbox at {self._host}: {_describe(error)}. Start one there with "
                f"python -m grpo_tasks_code.sandbox.remote, or unset {URL_VARIABLE}."
            ) from None
        guarantee = f"the provider's; it says {level.name} {level.title}: {level.guarantee}"
        return Level("remote", self._host, guarantee, f"its address was given; there: {level.reason}")

    @property
    def _level_name(self) -> str:
        return "remote"

    def _run(self, script: Script, cancellation: Cancellation) -> Execution:
        """Run a script on the server. Cancelling only stops the waiting; the script goes on to its limit."""
        limits = script.limits
        request = {
            "code": _text_of(script.program),
            "stdin": _text_of(script.stdin),
            "timeout_s": limits.timeout_s,
            "memory_mib": limits.memory_mib,
            "policy": script.policy,
            "output_limit_bytes": limits.output_bytes,
            "machine_state": script.machine_state,
        }
        most_bytes = 2 * BYTES_PER_CHARACTER * limits.output_bytes + _ROOM_BYTES
        with self._failures():
            answer = self._ask("run", request, limits.timeout_s, most_bytes, cancellation)
            return _made(Execution, answer)

    def _run_tests(self, program: TestedProgram) -> TestResult:
        limits, tests = program.limits, program.tests
        request = {
            "code": _text_of(program.program),
            "tests": tests,
            "timeout_s": limits.timeout_s,
            "setup": program.setup,
            "entry_point": program.entry_point,
            "memory_mib": limits.memory_mib,
        }
        most_bytes = 2 * BYTES_PER_CHARACTER * DEFAULT_OUTPUT_BYTES + _ROOM_BYTES + len(tests) * _VERDICT_BYTES
        with self._failures():
            result = _made(TestResult, self._ask("run_tests", request, limits.timeout_s, most_bytes))
            if not len(tests) == result.total == len(result.per_test) == len(result.statuses) == len(result.reasons):
                raise BadAnswerError("it does not have one verdict for each test")
            return result

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        """Raise failures of the server or the network as `ServerError`."""
        try:
            yield
        except _FAILURES as error:
            raise ServerError(f"the sandbox at {self._host}: {_describe(error)}") from None

    def _ask(
        self,
        what: str,
        request: Mapping[str, Any],
        timeout_s: float,
        most_bytes: int,
        cancellation: Cancellation | None = None,
    ) -> Any:
        """Send a request and return the answer's JSON.

        Raises:
            OSError: the server cannot be reached, or takes too long.
            HTTPException: the server does not speak HTTP.
            BadAnswerError: the server refuses, or its answer is too long or not JSON.
        """
        kind = http.client.HTTPSConnection if self._is_secure else http.client.HTTPConnection
        limit_s = timeout_s + QUEUE_TIMEOUT_S
        connection = kind(self._host, self._port, timeout=limit_s)
        headers: dict[str, str | bytes] = {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {self._token}".encode(),
        }
        opened: list[socket.socket] = []  # the connection forgets its own while an answer is read
        is_unwanted = threading.Event()

        def hang_up() -> None:
            is_unwanted.set()
            with contextlib.suppress(OSError):
                for connected in opened:
                    connected.shutdown(socket.SHUT_RDWR)

        with (cancellation or Cancellation()).ends(hang_up), _after(limit_s, hang_up) as is_over:
            try:
                connection.connect()
                opened.append(connection.sock)
                if is_unwanted.is_set():  # since before there was a socket
                    raise ConnectionAbortedError("it was cancelled")
                connection.request("POST", f"{self._path}/{what}", json.dumps(request).encode(), headers)
                answer = connection.getresponse()
                data = answer.read(most_bytes + 1)
            except _FAILURES:
                if not is_over.is_set():
                    raise
            finally:
                connection.close()
        if is_over.is_set():
            raise TimeoutError(f"no answer within {limit_s:g} s")
        if len(data) > most_bytes:
            raise BadAnswerError(f"it answers with more than {most_bytes} bytes")
        if answer.status != HTTPStatus.OK:
            reason = "".join(char if char.isprintable() else " " for char in data[:300].decode("utf-8", "replace"))
            raise BadAnswerError(f"it answers {answer.status}: {reason}")
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            raise BadAnswerError("it does not answer with JSON") from None


@contextlib.contextmanager
def _after(seconds: float, function: Callable[[], None]) -> Iterator[threading.Event]:
    """Call a function and set the event if the block takes longer; a socket's own timeout is per read."""
    is_over = threading.Event()

    def end() -> None:
        is_over.set()
        function()

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield is_over
    finally:
        timer.cancel()


_TYPES: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("name", "title", "guarantee", "reason", "stdout", "stderr", "level", "status"), str),
    **dict.fromkeys(("cpu_s", "wall_s"), (int, float)),
    **dict.fromkeys(("passed", "total"), int),
    **dict.fromkeys(("per_test", "statuses", "reasons"), list),
    "execution": dict,
}
"""Types of the fields in answers."""


def _made(kind: type[T], data: Any) -> T:
    """Build a `Level`, `Execution` or `TestResult` from JSON.

    Raises:
        BadAnswerError: the JSON does not fit.
    """
    names = [field.name for field in fields(cast("Any", kind))]
    if not isinstance(data, dict) or sorted(data) != sorted(names):
        raise BadAnswerError(f"it does not answer with the fields of a {kind.__name__}")
    for name, value in data.items():
        if not isinstance(value, _TYPES[name]) or isinstance(value, bool):
            raise BadAnswerError(f"{name} is a {type(value).__name__}")
        if isinstance(value, float) and not 0 <= value < math.inf:
            raise BadAnswerError(f"{name} is {value}")
    if kind is Execution and data["status"] not in get_args(Status):
        raise BadAnswerError(f"{data['status']!r:.100} is no status of a program")
    if kind is TestResult:
        is_verdict = set(data["statuses"]) <= set(get_args(TestStatus)) if all_text(data["statuses"]) else False
        if not is_verdict or data["per_test"] != [status == "passed" for status in data["statuses"]]:
            raise BadAnswerError("its verdicts are none")
        if data["passed"] != sum(data["per_test"]) or not all_text(data["reasons"]):
            raise BadAnswerError("its verdicts do not add up")
        data = {**data, "execution": _made(Execution, data["execution"])}
    return kind(**data)


def _text_of(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _describe(error: Exception) -> str:
    return str(error) or type(error).__name__
