"""Programs on another machine, which here is a thread of this process, and answers of servers that lie."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any

import pytest

from grpo_sdk import UserError
from grpo_tasks_code import sandbox as public
from grpo_tasks_code.sandbox import Execution, Executor, Sandbox, SandboxUnavailableError, TestResult
from grpo_tasks_code.sandbox import level as level_here
from grpo_tasks_code.sandbox.arguments import DEFAULT_OUTPUT_BYTES
from grpo_tasks_code.sandbox.executor import Cancellation
from grpo_tasks_code.sandbox.host.testing import MAX_REASON_CHARS
from grpo_tasks_code.sandbox.remote import HttpExecutor, client
from grpo_tasks_code.sandbox.remote.server import SandboxServer

TOKEN = "a-token-☃"
SOON_S = 20.0
"""For what takes a fraction of a second, on a machine that is busy."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with Sandbox(workers=2) as sandbox, SandboxServer(sandbox, TOKEN, port=0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.address
        server.shutdown()
        thread.join()


@pytest.fixture
def remote(address: str) -> HttpExecutor:
    return HttpExecutor(address, TOKEN, workers=4)


def test_a_program(remote: HttpExecutor) -> None:
    execution = remote.run("print(input())\nimport sys; print('é\\0', file=sys.stderr)", "hi\n")
    assert (execution.status, execution.stdout, execution.stderr) == ("ok", "hi\n", "é\0\n")
    assert execution.level == level_here().name
    assert remote.run("while True: pass", timeout_s=0.3).status == "timeout"
    assert remote.run("x: int = 1", policy="restricted").status == "denied"
    assert remote.run("x = '\ud800'").status == "syntax_error"
    assert remote.run("print('x' * 300)", output_limit_bytes=10).status == "output_limit"
    assert asyncio.run(remote.arun("print(7)")).stdout == "7\n"
    hashes = {remote.run("print(hash('a'))", machine_state=state).stdout for state in (0, 0, 1)}
    assert len(hashes) == 2


def test_tests(remote: HttpExecutor) -> None:
    tests = ["assert round(area(1), 2) == 3.14", "assert area(2) == area(1)"]
    result = remote.run_tests("def area(r): return math.pi * r ** 2", tests, setup="import math")
    assert (result.passed, result.total, list(result.statuses)) == (1, 2, ["passed", "failed"])
    check = "def check(candidate):\n    assert candidate(1) == 2"
    right = remote.run_tests("def f(n): return n + 1", [check], entry_point="f")
    assert (right.passed, list(right.statuses), right.execution.status) == (1, ["passed"], "ok")


def test_the_environment_names_it_and_the_level_is_the_providers(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    guarantee = level_here().guarantee
    monkeypatch.setenv("GRPO_SANDBOX_URL", address)
    monkeypatch.setenv("GRPO_SANDBOX_TOKEN", TOKEN)
    level = public.level()
    assert level.name == "remote" and "the provider's" in level.guarantee and guarantee in level.guarantee
    assert public.run_tests("def f(n): return n", ["assert f(1) == 1"]).passed == 1


@pytest.mark.parametrize(("token", "why"), [("another", "401: the token"), (None, "refused")])
def test_a_server_that_refuses_or_is_gone(address: str, token: str | None, why: str) -> None:
    # Nothing listens at the discard port.
    stranger = HttpExecutor("http://127.0.0.1:9", TOKEN) if token is None else HttpExecutor(address, token)
    execution = stranger.run("print(1)")
    assert (execution.status, execution.stdout) == ("sandbox_error", "") and why in execution.stderr
    assert stranger.run_tests("x = 1", ["assert x"]).statuses == ["sandbox_error"]
    with pytest.raises(SandboxUnavailableError, match=rf"no .*sandbox at 127\.0\.0\.1.*{why}"):
        stranger.level  # noqa: B018  # raises


def test_arguments_are_checked_here() -> None:
    nowhere = HttpExecutor("http://127.0.0.1:9")
    with pytest.raises(UserError, match="timeout_s"):
        nowhere.run("pass", timeout_s=0)
    with pytest.raises(UserError, match="test 0"):
        nowhere.run_tests("pass", ["assert"])
    assert nowhere.run("x" * 2_000_000).status == "denied"
    for url in ("localhost:8700", "ftp://host", "http://", "http://host:port", "http://host:99999"):
        with pytest.raises(UserError, match="sandbox address"):
            HttpExecutor(url)
    for url in ("http://user:secret@host", "http://host?token=secret", "http://host#secret"):
        with pytest.raises(UserError, match="GRPO_SANDBOX_TOKEN") as refused:
            HttpExecutor(url)
        assert "secret" not in str(refused.value)
    for host in (f"{'a' * 70}.example", "a..b", "[::1%25none]:9"):  # which is no name
        assert HttpExecutor(f"http://{host}").run("x").status == "sandbox_error"


def test_a_cancelled_program_is_not_waited_for(remote: HttpExecutor) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await remote.arun("import time; time.sleep(2)", timeout_s=3)

    begin = time.monotonic()
    asyncio.run(main())
    cancellation = Cancellation()
    cancellation.cancel()  # before it is sent
    execution = remote.run("while True: pass", timeout_s=900, cancellation=cancellation)
    assert execution.status == "sandbox_error" and "cancelled" in execution.stderr
    assert time.monotonic() - begin < SOON_S


@contextmanager
def answering(respond: bytes | Callable[[socket.socket], None]) -> Iterator[HttpExecutor]:
    """A server that reads a request, and then sends an answer or does what a function does."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):  # the client left, as it should
            connection.recv(1 << 16)
            if callable(respond):
                respond(connection)
            else:
                connection.sendall(respond)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):  # a socket that is closed with something unread resets the connection
                pass

    thread = threading.Thread(target=serve)
    thread.start()
    yield HttpExecutor(f"http://127.0.0.1:{listener.getsockname()[1]}")
    thread.join(SOON_S)
    listener.close()


OK = b"HTTP/1.0 200 OK\r\n\r\n"
GOOD = asdict(Execution("ok", "1\n", "", 0.0, 0.0, "L3"))
GOOD_TESTS = asdict(TestResult(1, 1, [True], ["passed"], [""], "L3", Execution("ok", "", "", 0.0, 0.0, "L3")))


@pytest.mark.parametrize(("answer", "why"), [
    (OK, "JSON"),
    (OK + b"null", "object"),
    (OK + b"[" * 100_000, "JSON"),
    *(
        (OK + json.dumps({**GOOD, **change}).encode(), next(iter(change)))
        for change in ({"status": "perfect"}, {"stdout": 5}, {"level": None}, {"cpu_s": True}, {"cpu_s": "1"})
    ),
    *(
        (OK + json.dumps({**GOOD, **change}).encode(), "seconds")
        for change in ({"cpu_s": float("nan")}, {"wall_s": -1.0}, {"wall_s": 1e400})
    ),
    (OK + b'{"status": "ok"}', "stdout"),
    (OK + json.dumps({**GOOD, "stdout": "x" * 5_000_000}).encode(), "more than"),
    (b"HTTP/1.0 500 No\r\n\r\n\x1b[31m\r\nred\xff", r"it answers 500: \x1b[31m\r\nred"),
    (b"HTTP/1.0 302 No\r\nLocation: http://localhost\r\n\r\nelsewhere", "302"),
    (b"SSH-2.0\r\n", "SSH"),
])  # fmt: skip
def test_an_answer_that_is_none_says_nothing_of_the_program(answer: bytes, why: str) -> None:
    with answering(answer) as remote:
        execution = remote.run("print(1)", output_limit_bytes=1000)
    assert execution.status == "sandbox_error" and why in execution.stderr and "\n" not in execution.stderr


@pytest.mark.parametrize("change", [
    {},
    {"passed": 2},
    {"per_test": [False]},
    {"per_test": [], "statuses": [], "reasons": [], "passed": 0, "total": 0},
    {"statuses": ["perfect"]},
    {"execution": {**GOOD, "cpu_s": -1.0}},
])  # fmt: skip
def test_verdicts_that_are_none_say_nothing_of_the_program(change: dict[str, Any]) -> None:
    with answering(OK + json.dumps({**GOOD_TESTS, **change}).encode()) as remote:
        assert remote.run_tests("x = 1", ["assert x == 1"]).statuses == ["sandbox_error" if change else "passed"]


def test_no_program_makes_an_answer_too_long() -> None:
    # As much as a program can bring about: both outputs full of what JSON escapes, and the longest reasons.
    count, noise = 1000, "\0" * DEFAULT_OUTPUT_BYTES
    execution = Execution("runtime_error", noise, noise, 1.0, 1.0, "L3")
    reasons = ["\N{GRINNING FACE}" * MAX_REASON_CHARS] * count
    longest = TestResult(0, count, [False] * count, ["runtime_error"] * count, reasons, "L3", execution)
    with answering(OK + json.dumps(asdict(longest)).encode()) as remote:
        result = remote.run_tests("f = 1", [f"assert f({n}) == 1" for n in range(count)])
    assert set(result.statuses) == {"runtime_error"}
    assert result.reasons[-1] == reasons[-1]


@pytest.mark.parametrize("data", [
    b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n" + b" " * 9000,
    b"HTTP/1.0 200 OK\r\n\r\n" + b" " * 9000,
    b"HTTP/1.1 200 OK\r\n" + b"X: x\r\n" * 1000,
])  # fmt: skip
def test_an_answer_that_comes_drop_by_drop_is_not_waited_for(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def drip(connection: socket.socket) -> None:
        for byte in data:
            connection.send(bytes([byte]))
            time.sleep(0.01)

    monkeypatch.setattr(client, "QUEUE_TIMEOUT_S", 0.2)
    begin = time.monotonic()
    with answering(drip) as remote:
        execution = remote.run("x", timeout_s=0.2)
    assert execution.status == "sandbox_error" and "no answer within 0.4 s" in execution.stderr
    assert time.monotonic() - begin < SOON_S


def test_the_command_serves_and_the_client_needs_no_server_library() -> None:
    command = [sys.executable, "-m", "grpo_tasks_code.sandbox.remote", "--port", "0", "--workers", "1"]
    environment = {**os.environ, "GRPO_SANDBOX_TOKEN": TOKEN}
    uses = (
        "import sys\nfrom grpo_tasks_code.sandbox import run\nprint(run('print(1)').level)\n"
        "print({'starlette', 'uvicorn'} & {*sys.modules})"
    )
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline().startswith(level_here().name)
            environment["GRPO_SANDBOX_URL"] = process.stderr.readline().split()[-1]
            client = subprocess.run([sys.executable, "-c", uses], capture_output=True, text=True, env=environment)
            assert client.stdout == f"{level_here().name}\nset()\n", client.stderr
        finally:
            process.terminate()


def test_an_executor_of_ones_own_has_what_it_does_not_write() -> None:
    class Recorder(Executor):
        workers = 2

        def run(self, code: str, stdin: str = "", *args: Any, **options: Any) -> Execution:
            return Execution("ok", code, stdin, 0.0, 0.0, "remote")

    recorder = Recorder()
    assert [each.stdout for each in recorder.run_many(["a", "b", "c"], workers=3)] == ["a", "b", "c"]
    assert asyncio.run(recorder.arun("d", "in")).stderr == "in"
