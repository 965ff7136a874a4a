"""Programs on another machine, which here is a thread of this process."""

from __future__ import annotations

import asyncio
import http.server
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest

from grpo_core import UserError
from grpo_tasks_code import sandbox as public
from grpo_tasks_code.sandbox import Execution, Executor, Level, Sandbox, SandboxUnavailableError, TestResult
from grpo_tasks_code.sandbox import level as level_here
from grpo_tasks_code.sandbox.arguments import DEFAULT_OUTPUT_BYTES
from grpo_tasks_code.sandbox.host.testing import MAX_REASON_CHARS
from grpo_tasks_code.sandbox.remote import HttpExecutor, SandboxServer

TOKEN = "a-token-☃"
SLOW_MACHINE_S = 60.0


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
    execution = remote.run("print(input())\nimport sys; print('é\\0', file=sys.stderr)", "hi\n", SLOW_MACHINE_S)
    assert (execution.status, execution.stdout, execution.stderr) == ("ok", "hi\n", "é\0\n")
    assert execution.level == level_here().name
    assert remote.run("while True: pass", timeout_s=0.3).status == "timeout"
    assert remote.run("x: int = 1", timeout_s=SLOW_MACHINE_S, policy="restricted").status == "denied"
    assert remote.run("x = '\ud800'", timeout_s=SLOW_MACHINE_S).status == "syntax_error"
    assert remote.run("print('x' * 300)", timeout_s=SLOW_MACHINE_S, output_limit_bytes=10).status == "output_limit"
    assert remote.run("x" * 2_000_000).status == "denied"


def test_tests(remote: HttpExecutor) -> None:
    result = remote.run_tests(
        "def area(r): return math.pi * r ** 2",
        ["assert round(area(1), 2) == 3.14", "assert area(2) == area(1)"],
        SLOW_MACHINE_S,
        setup="import math",
    )
    assert isinstance(result, TestResult)
    assert (result.passed, result.total, list(result.statuses)) == (1, 2, ["passed", "failed"])
    check = "def check(candidate):\n    assert candidate(1) == 2"
    right = remote.run_tests("def f(n): return n + 1", [check], SLOW_MACHINE_S, entry_point="f")
    assert (right.passed, list(right.statuses), right.execution.status) == (1, ["passed"], "ok")
    assert remote.run_tests("x" * 2_000_000, ["assert f(1)"]).statuses == ["denied"]


def test_many_and_asyncio(remote: HttpExecutor) -> None:
    executions = remote.run_many([f"print({n})" for n in range(6)], timeout_s=SLOW_MACHINE_S)
    assert [each.stdout for each in executions] == [f"{n}\n" for n in range(6)]
    assert asyncio.run(remote.arun("print(7)", timeout_s=SLOW_MACHINE_S)).stdout == "7\n"


def test_the_level_is_the_providers(remote: HttpExecutor) -> None:
    assert remote.level.name == "remote"
    assert level_here().guarantee in remote.level.guarantee
    assert "the provider's" in remote.level.guarantee


def test_the_environment_names_it(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_SANDBOX_URL", address)
    monkeypatch.setenv("GRPO_SANDBOX_TOKEN", TOKEN)
    assert public.level().name == "remote"
    assert public.run("print(1)", timeout_s=SLOW_MACHINE_S).stdout == "1\n"
    assert public.run_tests("def f(n): return n", ["assert f(1) == 1"]).passed == 1


def test_a_wrong_token(address: str) -> None:
    stranger = HttpExecutor(address, "another")
    execution = stranger.run("print(1)")
    assert (execution.status, execution.stdout) == ("sandbox_error", "")
    assert "401: the token" in execution.stderr
    assert stranger.run_tests("x = 1", ["assert x"]).statuses == ["sandbox_error"]
    with pytest.raises(SandboxUnavailableError, match="token"):
        stranger.level  # noqa: B018  # raises


def test_nobody_answers() -> None:
    nowhere = HttpExecutor("http://127.0.0.1:9", TOKEN)  # the discard port, where nothing listens
    assert nowhere.run("print(1)").status == "sandbox_error"
    with pytest.raises(SandboxUnavailableError, match=r"no sandbox at 127\.0\.0\.1"):
        nowhere.level  # noqa: B018  # raises


def test_arguments_are_checked_here(remote: HttpExecutor) -> None:
    with pytest.raises(UserError, match="timeout_s"):
        remote.run("pass", timeout_s=0)
    with pytest.raises(UserError, match="test 0"):
        remote.run_tests("pass", ["assert"])
    for url in ("localhost:8700", "ftp://host", "http://", "http://host:port", "http://host:99999"):
        with pytest.raises(UserError, match="sandbox address"):
            HttpExecutor(url)
    with pytest.raises(UserError, match="needs a token"):
        SandboxServer(Sandbox(), host="0.0.0.0", port=0)


def test_a_cancelled_task_stops_waiting(remote: HttpExecutor) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await remote.arun("import time; time.sleep(2)", timeout_s=3)

    begin = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - begin < 20


GOOD = asdict(Execution("ok", "1\n", "", 0.0, 0.0, "L3"))
GOOD_TESTS = asdict(TestResult(1, 1, [True], ["passed"], [""], "L3", Execution("ok", "", "", 0.0, 0.0, "L3")))


class Liar:
    """A server that answers with whatever it was given."""

    def __init__(self, status: int, body: bytes) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(status)
                self.end_headers()
                try:
                    self.wfile.write(body)
                except OSError:  # the client has read enough
                    return

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)

    def __enter__(self) -> HttpExecutor:
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return HttpExecutor(f"http://127.0.0.1:{self.server.server_address[1]}")

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b""),
        (200, b"null"),
        (200, b"[" * 100_000),
        (200, b"not json"),
        (200, json.dumps({**GOOD, "status": "perfect"}).encode()),
        (200, json.dumps({**GOOD, "stdout": 5}).encode()),
        (200, json.dumps({**GOOD, "more": 5}).encode()),
        (200, json.dumps({key: value for key, value in GOOD.items() if key != "level"}).encode()),
        (200, json.dumps({**GOOD, "stdout": "x" * 5_000_000}).encode()),
        (500, b"\xff out of order"),
        (302, b"elsewhere"),
    ],
)
def test_an_answer_that_is_none_says_nothing_of_the_program(status: int, body: bytes) -> None:
    with Liar(status, body) as remote:
        assert remote.run("print(1)", output_limit_bytes=1000).status == "sandbox_error"


@pytest.mark.parametrize(
    "change",
    [
        {"passed": 2},
        {"passed": 0},
        {"per_test": [False]},
        {"per_test": [], "statuses": [], "reasons": [], "passed": 0, "total": 0},
        {"statuses": ["perfect"]},
        {"statuses": [["passed"]]},
        {"reasons": [None]},
        {"execution": {}},
        {"execution": None},
    ],
)
def test_verdicts_that_are_none_say_nothing_of_the_program(change: dict[str, Any]) -> None:
    with Liar(200, json.dumps({**GOOD_TESTS, **change}).encode()) as remote:
        assert remote.run_tests("x = 1", ["assert x == 1"]).statuses == ["sandbox_error"]
    with Liar(200, json.dumps(GOOD_TESTS).encode()) as remote:
        assert remote.run_tests("x = 1", ["assert x == 1"]).statuses == ["passed"]


def ask(address: str, path: str, body: bytes, **headers: str) -> int:
    import http.client

    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=30)
    always = {"Authorization": f"Bearer {TOKEN}".encode(), "Content-Type": "application/json"}
    connection.request("POST", path, body, {**always, **headers})
    status = connection.getresponse().status
    connection.close()
    return status


def test_no_program_makes_an_answer_too_long() -> None:
    # As much as a program can bring about: both outputs full of what JSON escapes, and the longest reasons.
    count, noise = 1000, "\0" * DEFAULT_OUTPUT_BYTES
    execution = Execution("runtime_error", noise, noise, 1.0, 1.0, "L3")
    reasons = ["\N{GRINNING FACE}" * MAX_REASON_CHARS] * count
    longest = TestResult(0, count, [False] * count, ["runtime_error"] * count, reasons, "L3", execution)
    with Liar(200, json.dumps(asdict(longest)).encode()) as remote:
        result = remote.run_tests("f = 1", [f"assert f({n}) == 1" for n in range(count)])
    assert set(result.statuses) == {"runtime_error"}
    assert result.reasons[-1] == reasons[-1]


def test_requests_that_are_none_are_refused(address: str) -> None:
    assert ask(address, "/level", b"{}") == 200
    assert ask(address, "/prefix/level", b"{}") == 200  # behind a proxy
    assert ask(address, "/run", b'{"code": "pass"}') == 200
    assert ask(address, "/", b"{}") == ask(address, "/stop", b"{}") == ask(address, "/run/", b"[]") == 404
    for path, body in {
        "/run": b"",
        "/run?": b"not json",
        "/level": b"[]",
        "//run": b'{"code": 5}',
        "/a/run": b'{"code": "pass", "cancellation": 1}',
        "/b/run": b'{"code": "pass", "timeout_s": "x"}',
        "/run_tests": b'{"code": "pass", "tests": [5]}',
        "/a/run_tests": b'{"code": "pass"}',
        "/c/run": b"[" * 100_000,
    }.items():
        assert ask(address, path, body) == 400, (path, body[:50])
    assert ask(address, "/run", b'{"code": "pass"}', Authorization="Bearer \xff") == 401
    assert ask(address, "/run", b"{}", **{"Content-Length": "-5"}) == 400
    assert ask(address, "/run", b"{}", **{"Content-Length": "99999999999"}) == 413


def test_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-m", "grpo_tasks_code.sandbox.remote", "--port", "0", "--workers", "1"]
    environment = {**os.environ, "GRPO_SANDBOX_TOKEN": TOKEN}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline().startswith(level_here().name)
            address = process.stderr.readline().split()[-1]
            assert HttpExecutor(address, TOKEN).run("print(1)", timeout_s=SLOW_MACHINE_S).stdout == "1\n"
        finally:
            process.terminate()


class Recorder(Executor):
    """A provider of somebody else's: what is not written here, `Executor` has."""

    workers = 2

    @property
    def level(self) -> Level:
        return Level("remote", "recorder", "none", "a test")

    def run(self, code: str, stdin: str = "", *args: Any, **options: Any) -> Execution:
        return Execution("ok", code, stdin, 0.0, 0.0, "remote")

    def run_tests(self, code: str, tests: Any, *args: Any, **options: Any) -> TestResult:
        raise NotImplementedError


def test_an_executor_of_ones_own() -> None:
    recorder = Recorder()
    assert [each.stdout for each in recorder.run_many(["a", "b", "c"], workers=3)] == ["a", "b", "c"]
    assert asyncio.run(recorder.arun("d", "in")).stderr == "in"
