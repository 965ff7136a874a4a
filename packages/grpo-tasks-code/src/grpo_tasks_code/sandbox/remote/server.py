"""HTTP server that offers an `Executor` to clients with the token."""

from __future__ import annotations

import asyncio
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from http import HTTPStatus

from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from grpo_sdk import UserError
from grpo_sdk.serve import JSON, BoundedServer, Bounds, Certificate
from grpo_tasks_code.sandbox import arguments
from grpo_tasks_code.sandbox.errors import SandboxUnavailableError
from grpo_tasks_code.sandbox.executor import Cancellation, Executor
from grpo_tasks_code.sandbox.remote.client import BYTES_PER_CHARACTER, describe
from grpo_tasks_code.sandbox.results import Execution, Level, Policy, TestResult

DEFAULT_PORT = 8700
MAX_TESTS_BYTES = 16 << 20
"""Size limit of the tests of one program."""
MAX_REQUEST_BYTES = BYTES_PER_CHARACTER * arguments.MAX_STDIN_BYTES + MAX_TESTS_BYTES

logger = logging.getLogger(__name__)


class _Level(BaseModel, strict=True, extra="forbid"):
    def answer(self, executor: Executor, cancellation: Cancellation) -> Level:
        return executor.level


class _Run(BaseModel, strict=True, extra="forbid"):
    code: str
    stdin: str = ""
    timeout_s: float = arguments.DEFAULT_TIMEOUT_S
    memory_mib: int = arguments.DEFAULT_MEMORY_MIB
    policy: Policy | None = None
    output_limit_bytes: int = arguments.DEFAULT_OUTPUT_BYTES
    machine_state: int = 0

    def answer(self, executor: Executor, cancellation: Cancellation) -> Execution:
        return executor.run(**dict(self), cancellation=cancellation)


class _RunTests(BaseModel, strict=True, extra="forbid"):
    code: str
    tests: list[str]
    timeout_s: float = arguments.DEFAULT_TESTS_TIMEOUT_S
    setup: str = ""
    entry_point: str | None = None
    memory_mib: int = arguments.DEFAULT_MEMORY_MIB

    def answer(self, executor: Executor, cancellation: Cancellation) -> TestResult:
        return executor.run_tests(**dict(self))


_Request = _Level | _Run | _RunTests
_REQUESTS: dict[str, type[_Request]] = {"level": _Level, "run": _Run, "run_tests": _RunTests}


class SandboxServer(BoundedServer):
    """Offers an executor over HTTP to clients with the token.

    Args:
        executor: Executor that runs the programs.
        token: Token that clients must send.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one, see `address`.
        bounds: Resource limits of clients; by default twice as many requests as the executor has workers.
        certificate: TLS certificate, for https.

    Raises:
        UserError: see `BoundedServer`.
    """

    def __init__(
        self,
        executor: Executor,
        token: str = "",
        *,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        bounds: Bounds | None = None,
        certificate: Certificate | None = None,
    ) -> None:
        self.executor = executor
        self._threads = ThreadPoolExecutor(executor.workers, thread_name_prefix="sandbox-server")
        app = Starlette(routes=[Route("/{path:path}", self._respond, methods=["POST"])])
        bounds = bounds or Bounds(requests=2 * executor.workers, body_bytes=MAX_REQUEST_BYTES)
        super().__init__(app, token, host=host, port=port, bounds=bounds, certificate=certificate)

    def close(self) -> None:
        """Stop listening; queued requests are dropped."""
        super().close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _respond(self, request: Request) -> Response:
        kind = _REQUESTS.get(request.path_params["path"].rpartition("/")[2])  # a proxy may have put a path before it
        if kind is None:
            return _refusal(HTTPStatus.NOT_FOUND, f"only {', '.join(_REQUESTS)} are answered")
        try:
            body = await request.body()
        except ClientDisconnect:
            return Response()  # nobody receives it
        cancellation = Cancellation()
        loop = asyncio.get_running_loop()
        answer = loop.run_in_executor(self._threads, _answer, kind, body, self.executor, cancellation)
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                cancellation.cancel()  # nobody waits for it
            return await answer
        finally:
            gone.cancel()
            cancellation.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _answer(kind: type[_Request], body: bytes, executor: Executor, cancellation: Cancellation) -> Response:
    """Answer a request; in a thread, since reading JSON and running programs take time."""
    try:
        request = kind.model_validate(json.loads(body))  # not model_validate_json: it takes no lone surrogates
        return Response(json.dumps(asdict(request.answer(executor, cancellation))), media_type=JSON)
    except (UserError, ValueError, RecursionError) as error:  # the last two: no JSON, or not the fields of a request
        return _refusal(HTTPStatus.BAD_REQUEST, describe(error))
    except SandboxUnavailableError as error:
        return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
    except Exception as error:  # a bug, here or of a provider: the server goes on for the others
        logger.exception("a request failed")
        return _refusal(HTTPStatus.INTERNAL_SERVER_ERROR, f"the server failed: {type(error).__name__}")


def _refusal(status: HTTPStatus, why: str) -> Response:
    return PlainTextResponse(why.encode("utf-8", "backslashreplace"), status)
