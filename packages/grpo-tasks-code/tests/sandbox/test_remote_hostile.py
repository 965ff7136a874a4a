"""Whoever reaches a remote sandbox: strangers, slow ones, web pages, and clients that ask for nonsense.

Further limits of the server, which `grpo serve` shares, are in packages/grpo-sdk/tests/serve.
"""

import http.client
import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from grpo_sdk import UserError
from grpo_sdk.serve import Bounds, Certificate
from grpo_tasks_code.sandbox import Execution, Executor, Level, TestResult
from grpo_tasks_code.sandbox.executor import Cancellation
from grpo_tasks_code.sandbox.remote import HttpExecutor
from grpo_tasks_code.sandbox.remote import __main__ as command
from grpo_tasks_code.sandbox.remote.server import SandboxServer

TOKEN = "token"
SOON_S = 20.0
"""For what takes a fraction of a second, on a machine that is busy."""


class Fake(Executor):
    """Answers at once, fails or waits as the program says."""

    workers = 2

    def __init__(self) -> None:
        self.begun, self.cancelled = threading.Event(), threading.Event()

    @property
    def level(self) -> Level:
        return Level("L3", "fake", "none", "a test")

    def run(self, code: str, stdin: str = "", *_: Any, cancellation: Cancellation, **options: Any) -> Execution:
        if code == "fail":
            raise RuntimeError("a bug")
        if code == "wait":
            with cancellation.ends(self.cancelled.set):
                self.begun.set()
                self.cancelled.wait(SOON_S)
        return Execution("ok", code * options["output_limit_bytes"], stdin, 0.0, 0.0, "L3")

    def run_tests(self, *_: Any, **options: Any) -> TestResult:
        raise NotImplementedError


@contextmanager
def serving(token: str = TOKEN, executor: Executor | None = None, **options: Any) -> Iterator[SandboxServer]:
    with SandboxServer(executor or Fake(), token, port=0, **options) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(SOON_S)
            assert not thread.is_alive()


@pytest.fixture(scope="module")
def server() -> Iterator[SandboxServer]:
    bounds = Bounds(connections=40, requests=2, body_bytes=100_000, head_s=0.3, body_s=0.3, send_s=0.3)
    with serving(bounds=bounds) as server:
        yield server


def connected(server: SandboxServer) -> socket.socket:
    parts = urlsplit(server.address)
    return socket.create_connection((parts.hostname or "", parts.port or 0), timeout=SOON_S)


def head(length: int = 2, path: str = "/run") -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


def said(connection: socket.socket) -> bytes:
    """All that a server sends until it hangs up, which it has to."""
    data = b""
    with suppress(ConnectionResetError):
        while more := connection.recv(1 << 16):
            data += more
    return data


def request(server: SandboxServer, body: bytes = b"{}", path: str = "/level", **headers: str | None) -> tuple[int, str]:
    connection = http.client.HTTPConnection(urlsplit(server.address).netloc, timeout=SOON_S)
    given = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    with closing(connection):
        connection.request("POST", path, body, {name: value for name, value in given.items() if value is not None})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def runs(server: SandboxServer, token: str = TOKEN, path: str = "") -> bool:
    return HttpExecutor(server.address + path, token).run("x", output_limit_bytes=1).stdout == "x"


def test_hundreds_of_idle_connections_cost_no_threads_and_keep_nobody_out(server: SandboxServer) -> None:
    request(server)
    threads, memory = threading.active_count(), psutil.Process().memory_info().rss
    idle = [connected(server) for _ in range(300)]
    for connection in idle[::2]:
        connection.send(b"POST /run HTTP/1.1\r\nX-Slow: ")
    begin = time.monotonic()
    assert request(server)[0] == 200
    assert time.monotonic() - begin < SOON_S / 4
    assert threading.active_count() <= threads + 1
    assert psutil.Process().memory_info().rss - memory < 32 << 20
    for connection in idle:
        assert b"200" not in said(connection)  # it was closed
        connection.close()


def test_a_head_that_comes_drop_by_drop_is_not_waited_for(server: SandboxServer) -> None:
    with connected(server) as connection:
        begin = time.monotonic()
        with pytest.raises(OSError):  # a reset or a broken pipe
            for byte in head() * 100:
                connection.send(bytes([byte]))
                time.sleep(0.02)
        assert time.monotonic() - begin < SOON_S


def test_requests_on_one_connection(server: SandboxServer) -> None:
    with connected(server) as connection:
        connection.send((head(path="/level") + b"{}") * 2)
        time.sleep(0.1)
        connection.send(b"POST /level HT")  # whose head does not come
        assert said(connection).count(b"HTTP/1.1 200") == 2


@pytest.mark.parametrize("data", [
    b"\x16\x03\x01\x02\x00\x01",
    b"GET / HTTP/1.1\r\n\r\n",
    b"\r\n" * 50_000,
    b"POST / HTTP/1.1\r\n" + b"X: " + b"x" * 10**6,
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
    head(10**15),
    head(50) + b"{",  # the rest does not come
])  # fmt: skip
def test_what_is_no_request_ends_its_connection(
    server: SandboxServer, data: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with connected(server) as connection:
        with suppress(OSError):  # it has seen enough
            connection.sendall(data)
        assert b"HTTP/1.1 200" not in said(connection)
    assert request(server)[0] == 200
    assert capfd.readouterr().err == ""  # strangers fill no log


def test_a_client_that_does_not_read_its_answer_is_left() -> None:
    with serving(bounds=Bounds(send_s=0.3)) as server, connected(server) as connection:
        body = json.dumps({"code": "x", "output_limit_bytes": 32 << 20}).encode()  # more than sockets hold
        connection.send(head(len(body)) + body)
        time.sleep(1.5)
        assert len(said(connection)) < 32 << 20


def test_nobody_waits_for_the_program_of_a_client_that_is_gone() -> None:
    fake = Fake()
    with serving(executor=fake) as server:
        with connected(server) as connection:
            connection.send(head(16) + b'{"code": "wait"}')
            assert fake.begun.wait(SOON_S)
        assert fake.cancelled.wait(SOON_S)


@pytest.mark.parametrize(("headers", "status", "why"), [
    ({"Origin": "null"}, 403, "web page"),
    ({"Content_Type": None}, 415, "application/json"),
    ({"Content_Type": "Application/JSON; charset=utf-8"}, 200, ""),
    ({"Authorization": None}, 401, "token"),
    ({"Authorization": f"Basic {TOKEN}"}, 401, "token"),
    ({"Authorization": "Bearer \xff"}, 401, "token"),
    ({"X_More": "x" * 40_000}, 431, "headers may have"),
    ({"Host": "example.com"}, 200, ""),  # a proxy's; without the token nobody gets here
])  # fmt: skip
def test_who_may_ask(server: SandboxServer, headers: dict[str, str | None], status: int, why: str) -> None:
    found, text = request(server, **headers)
    assert found == status and why in text


def test_without_a_token_no_web_page_gets_in() -> None:
    with serving(token="") as server:
        for host in ("localhost", "127.0.0.1:8700", "[::1]", "LOCALHOST:80"):
            assert request(server, Host=host)[0] == 200
        for host in ("example.com:8700", "localhost.example.com", "", "[", "127.0.0.1@example.com"):
            found, text = request(server, Host=host)
            assert found == 403 and "localhost alone" in text, host
        assert runs(server, token="")


@pytest.mark.parametrize(("host", "token", "why"), [
    *((host, " \n", "needs a token") for host in ("0.0.0.0", "::", "example.com")),
    *(("localhost", token, "the token") for token in ("a\nb", "a\tb", "a b", "a\0b")),  # which no header carries
])  # fmt: skip
def test_a_server_that_anybody_could_use_does_not_start(host: str, token: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        SandboxServer(Fake(), token, host=host, port=0)


@pytest.mark.parametrize("token", ["schlüssel", "\N{SNOWMAN}", "a:b,c=d", "x" * 1000])
def test_tokens_of_any_characters(token: str) -> None:
    with serving(token=f"{token}\r\n") as server:
        assert runs(server, f" {token}\n", "/é x/") and not runs(server, token[:-1])


@pytest.mark.parametrize(("path", "body", "status", "why"), [
    ("/run", {"code": "pass", "memory_mib": True}, 400, "memory_mib"),
    ("/run", {"code": "pass", "timeout_s": 10**400}, 400, "timeout_s"),
    ("/run", {"code": "pass", "cancellation": 5}, 400, "cancellation"),
    ("//run", {"stdin": ""}, 400, "code: Field required"),
    ("/run", None, 400, "dictionary"),
    ("/run_tests", {"code": "pass", "tests": [5]}, 400, "tests.0"),
    ("/run", b"\xff\xfe", 400, ""),
    ("/run", b"[" * 90_000, 400, ""),
    ("/jump", {}, 404, "run_tests"),
    ("/run", {"code": "fail"}, 500, "the server failed: RuntimeError"),  # a bug ends its request alone
    ("/prefix/level", {}, 200, "fake"),  # behind a proxy
])  # fmt: skip
def test_a_value_that_is_wrong_is_named(server: SandboxServer, path: str, body: object, status: int, why: str) -> None:
    found, text = request(server, body if isinstance(body, bytes) else json.dumps(body).encode(), path)
    assert found == status and why in text


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6")
def test_ipv6() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(str(error))
    for token in (TOKEN, ""):
        with serving(token=token, host="::1") as server:
            assert server.address.startswith("http://[::1]:") and runs(server, token)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    folder = tmp_path_factory.mktemp("certificate")
    certfile, keyfile = folder / "cert.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    subject = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(keyfile), "-out", str(certfile)]
    subprocess.run([*command.split(), *subject], check=True, capture_output=True)
    return Certificate(certfile, keyfile)


def test_tls(certificate: Certificate, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(certificate=certificate, bounds=Bounds(head_s=0.5)) as server:
        assert server.address.startswith("https://")
        assert "CERTIFICATE_VERIFY_FAILED" in HttpExecutor(server.address, TOKEN).run("x").stderr
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate.certfile))
        assert runs(server)
        with connected(server) as connection:  # no handshake
            assert said(connection) == b""


def test_what_is_no_certificate_is_refused(certificate: Certificate, tmp_path: Path) -> None:
    (tmp_path / "junk.pem").write_text("junk")
    for certfile, keyfile in (
        (tmp_path / "missing.pem", None),
        (certificate.certfile, None),  # its key is not in it
        (certificate.certfile, tmp_path / "junk.pem"),
        (tmp_path, None),
    ):
        with pytest.raises(UserError, match="the certificate cannot be used"):
            SandboxServer(Fake(), TOKEN, port=0, certificate=Certificate(certfile, keyfile))


@pytest.mark.parametrize(("arguments", "why"), [
    ("--host 0.0.0.0", "needs a token"),
    ("--port {taken}", "cannot listen on 127.0.0.1"),
    ("--workers 0", "workers=0"),
    ("--token-file {folder}/empty", "no token in it"),
    ("--token-file {folder}/none", "--token-file"),
    ("--ssl-keyfile {folder}/none", "--ssl-keyfile needs --ssl-certfile"),
    ("--ssl-certfile {folder}/none", "the certificate cannot be used"),
])  # fmt: skip
def test_the_command_says_what_is_wrong(
    server: SandboxServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, arguments: str, why: str
) -> None:
    monkeypatch.delenv("GRPO_SANDBOX_TOKEN", raising=False)
    (tmp_path / "empty").write_text("\n")
    filled = arguments.format(taken=urlsplit(server.address).port, folder=tmp_path)
    monkeypatch.setattr(sys, "argv", ["remote", *filled.split()])
    with pytest.raises(SystemExit) as ended:
        command.main()
    told = capsys.readouterr().err
    assert ended.value.code == 2 and told.startswith("error: ") and why in told
