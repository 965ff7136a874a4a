"""The server: an `Executor` of this machine, for whoever has the token."""

from __future__ import annotations

import hmac
import http.server
import json
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from grpo_core import UserError
from grpo_tasks_code.sandbox.arguments import MAX_STDIN_BYTES
from grpo_tasks_code.sandbox.errors import SandboxUnavailableError
from grpo_tasks_code.sandbox.executor import Executor
from grpo_tasks_code.sandbox.remote.client import BYTES_PER_CHARACTER, QUEUE_TIMEOUT_S, TOKEN_VARIABLE

DEFAULT_PORT = 8700
MAX_TESTS_BYTES = 16 << 20
"""Of the tests of one program."""


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers POST /level, /run and /run_tests."""

    server: SandboxServer
    timeout = QUEUE_TIMEOUT_S

    def do_POST(self) -> None:
        """Answer one request."""
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode("latin-1", "replace"), self.server.token.encode()):
            self._answer(HTTPStatus.UNAUTHORIZED, "the token is not that of this sandbox")
            return
        try:
            length = int(self.headers.get("Content-Length", ""))
        except ValueError:
            self._answer(HTTPStatus.LENGTH_REQUIRED, "say how long the request is")
            return
        if not 0 <= length <= self.server.max_request_bytes:
            self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {self.server.max_request_bytes} bytes")
            return
        try:
            request = json.loads(self.rfile.read(length))
            answer = self._dispatch(request)
        except (ValueError, TypeError, RecursionError) as error:  # UserError is a ValueError
            self._answer(HTTPStatus.BAD_REQUEST, str(error) or type(error).__name__)
        except SandboxUnavailableError as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        else:
            self._answer(HTTPStatus.OK, json.dumps(answer))

    def _dispatch(self, request: Any) -> dict[str, Any]:
        executor = self.server.executor
        match self.path.rpartition("/")[2]:
            case "level":
                return asdict(executor.level)
            case "run" if set(request) <= _RUN_FIELDS:
                return asdict(executor.run(**request))
            case "run_tests" if set(request) <= _RUN_TESTS_FIELDS:
                return asdict(executor.run_tests(**request))
        raise UserError(f"{self.path!r:.100} with {request!r:.100} is no request.")

    def _answer(self, status: HTTPStatus, text: str) -> None:
        body = text.encode("utf-8", "backslashreplace")
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if status == HTTPStatus.OK else "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: requests hold what untrusted programs wrote."""


_RUN_FIELDS = {"code", "stdin", "timeout_s", "memory_mib", "policy", "output_limit_bytes", "machine_state"}
_RUN_TESTS_FIELDS = {"code", "tests", "timeout_s", "setup", "entry_point", "memory_mib"}


class SandboxServer(http.server.ThreadingHTTPServer):
    """Offers an executor over HTTP to whoever has the token.

    Args:
        executor: What runs the programs.
        token: What clients must send.
        host: Address to listen on.
        port: 0 takes a free one; see `server_address`.

    Raises:
        UserError: others could reach it, and there is no token.
    """

    daemon_threads = True
    max_request_bytes = BYTES_PER_CHARACTER * MAX_STDIN_BYTES + MAX_TESTS_BYTES

    def __init__(
        self, executor: Executor, token: str = "", *, host: str = "127.0.0.1", port: int = DEFAULT_PORT
    ) -> None:
        if not token and host not in ("127.0.0.1", "::1", "localhost"):
            raise UserError(f"a sandbox that listens on {host} needs a token: set {TOKEN_VARIABLE}.")
        self.executor, self.token = executor, token
        super().__init__((host, port), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Log nothing here either: the client has hung up."""
