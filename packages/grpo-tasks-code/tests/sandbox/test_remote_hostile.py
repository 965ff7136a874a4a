"""Whoever reaches a remote sandbox: strangers, slow ones, web pages, and clients that ask for nonsense."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from grpo_core import UserError
from grpo_core.serving import Bounds, Certificate, clean_token
from grpo_tasks_code.sandbox import Execution, Executor, Level, TestResult
from grpo_tasks_code.sandbox.executor import Cancellation
from grpo_tasks_code.sandbox.remote import HttpExecutor, SandboxServer, client
from grpo_tasks_code.sandbox.remote import __main__ as command

TOKEN = "token"
SOON_S = 20.0
"""For what takes a fraction of a second, on a machine that is busy."""


class Fake(Executor):
    """Answers at once, fails or waits as the program says."""

    workers = 2

    def __init__(self) -> None:
        self.cancelled = threading.Event()

    @property
    def level(self) -> Level:
        return Level("L3", "fake", "none", "a test")

    def run(self, code: str, stdin: str = "", *_: Any, cancellation: Cancellation, **options: Any) -> Execution:
        if code == "fail":
            raise RuntimeError("a bug")
        if code == "wait":
            with cancellation.ends(self.cancelled.set):
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


def head(length: int | None = 2, token: str = TOKEN, path: str = "/run", more: str = "") -> bytes:
    size = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\n{size}\r\n{more}\r\n"
    ).encode()


def said(connection: socket.socket) -> bytes:
    """All that a server sends until it hangs up, which it has to."""
    data = b""
    try:
        while more := connection.recv(1 << 16):
            data += more
    except ConnectionResetError:
        pass
    return data


def request(server: SandboxServer, body: bytes = b"{}", path: str = "/level", **headers: str | None) -> tuple[int, str]:
    connection = http.client.HTTPConnection(urlsplit(server.address).netloc, timeout=SOON_S)
    given = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}  # type: ignore[misc]
    with closing(connection):
        connection.request("POST", path, body, {name: value for name, value in given.items() if value is not None})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


# --- connections


def test_hundreds_of_idle_connections_cost_no_threads_and_keep_nobody_out(server: SandboxServer) -> None:
    request(server)
    threads, memory = threading.active_count(), psutil.Process().memory_info().rss
    idle = [connected(server) for _ in range(300)]
    for number, connection in enumerate(idle):
        if number % 2:
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


def test_nor_is_the_head_of_a_second_request(server: SandboxServer) -> None:
    with connected(server) as connection:
        connection.send(head(path="/level") + b"{}")
        time.sleep(0.1)
        connection.send(b"POST /level HT")
        assert said(connection).count(b"HTTP/1.1 200") == 1


def test_two_requests_at_once_on_one_connection_are_answered(server: SandboxServer) -> None:
    with connected(server) as connection:
        connection.send((head(path="/level") + b"{}") * 2)
        assert said(connection).count(b"HTTP/1.1 200") == 2


def test_a_body_that_does_not_come_is_not_waited_for(server: SandboxServer) -> None:
    with connected(server) as connection:
        connection.send(head(50) + b"{")
        assert b"HTTP/1.1 408" in said(connection)
    with connected(server) as connection:
        connection.send(head(None) + b"1\r\n{\r\n")
        assert b"HTTP/1.1 408" in said(connection)
    assert request(server)[0] == 200


def test_a_strangers_body_is_not_read(server: SandboxServer) -> None:
    with connected(server) as connection:
        connection.send(head(90_000, token="wrong"))
        answer = said(connection)
    assert b"HTTP/1.1 401" in answer and b"the token is not that of this server" in answer


@pytest.mark.parametrize("more", ["Expect: 100-continue\r\n", ""])
def test_a_body_that_is_too_long_is_refused_before_it_is_sent(server: SandboxServer, more: str) -> None:
    for length in (100_001, 10**15):
        with connected(server) as connection:
            connection.send(head(length, more=more))
            answer = said(connection)
            assert b"HTTP/1.1 413" in answer and b"100000 bytes at most" in answer


def test_nor_is_one_without_a_length_read_to_its_end(server: SandboxServer) -> None:
    with connected(server) as connection:
        connection.send(head(None))
        answer = b""
        with pytest.raises(OSError):  # a reset or a broken pipe
            for _ in range(1000):
                connection.send(b"2710\r\n" + b" " * 10_000 + b"\r\n")
            answer = said(connection)
            raise BrokenPipeError
        assert answer == b"" or b"413" in answer


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\r\n" * 50_000,
        b"POST / HTTP/1.1\r\n" + b"X: " + b"x" * 10**6,
        b"POST / HTTP/1.1\r\n" + b"X: x\r\n" * 10**5 + b"\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
        b"POST / HTTP/9.9\r\n\r\n",
    ],
)
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
    fake = Fake()
    with serving(executor=fake, bounds=Bounds(send_s=0.3)) as server, connected(server) as connection:
        body = json.dumps({"code": "x", "output_limit_bytes": 32 << 20}).encode()  # more than sockets hold
        connection.send(head(len(body)) + body)
        time.sleep(1.5)
        assert len(said(connection)) < 32 << 20


def test_nobody_waits_for_the_program_of_a_client_that_is_gone() -> None:
    fake = Fake()
    with serving(executor=fake) as server:
        with connected(server) as connection:
            connection.send(head(16) + b'{"code": "wait"}')
            time.sleep(0.3)
        assert fake.cancelled.wait(SOON_S)


# --- who may ask


@pytest.mark.parametrize(
    ("headers", "status", "why"),
    [
        ({"Origin": "https://example.com"}, 403, "web page"),
        ({"Origin": "null"}, 403, "web page"),
        ({"Origin": "http://localhost:8700"}, 403, "web page"),
        ({"Content_Type": "text/plain"}, 415, "application/json"),
        ({"Content_Type": "application/x-www-form-urlencoded"}, 415, "application/json"),
        ({"Content_Type": None}, 415, "application/json"),
        ({"Content_Type": "Application/JSON; charset=utf-8"}, 200, ""),
        ({"Authorization": None}, 401, "token"),
        ({"Authorization": ""}, 401, "token"),
        ({"Authorization": "Bearer"}, 401, "token"),
        ({"Authorization": f"Basic {TOKEN}"}, 401, "token"),
        ({"Authorization": f"Bearer {TOKEN}x"}, 401, "token"),
        ({"Authorization": "Bearer \xff"}, 401, "token"),
        ({"X_More": "x" * 40_000}, 431, "headers may have"),
        ({"Host": "example.com"}, 200, ""),  # a proxy's; without the token nobody gets here
    ],
)
def test_who_may_ask(server: SandboxServer, headers: dict[str, str | None], status: int, why: str) -> None:
    found, text = request(server, **headers)
    assert found == status and why in text


def test_without_a_token_no_web_page_gets_in() -> None:
    with serving(token="") as server:
        for host in ("localhost", "127.0.0.1:8700", "[::1]", "LOCALHOST:80"):
            assert request(server, Host=host)[0] == 200
        for host in ("example.com", "example.com:8700", "localhost.example.com", "", "[", "127.0.0.1@example.com"):
            found, text = request(server, Host=host)
            assert found == 403 and "localhost alone" in text, host
        assert request(server, Origin="http://localhost")[0] == 403
        assert request(server, Content_Type="text/plain")[0] == 415
        assert HttpExecutor(server.address).run("x", output_limit_bytes=1).stdout == "x"


def test_pages_are_not_even_asked_for(server: SandboxServer) -> None:
    for method in (b"GET", b"OPTIONS", b"PUT"):
        with connected(server) as connection:
            connection.send(head(0).replace(b"POST", method))
            assert b"HTTP/1.1 405" in said(connection)


@pytest.mark.parametrize("token", ["schlüssel", "\N{SNOWMAN}", "a:b,c=d", "x" * 1000])
def test_tokens_of_any_characters(token: str) -> None:
    with serving(token=f"{token}\r\n") as server:
        assert HttpExecutor(server.address, f" {token}\n").level.name == "remote"
        assert "401" in HttpExecutor(server.address, token[:-1]).run("x").stderr


@pytest.mark.parametrize("token", ["a\nb", "a\tb", "a b", "a\0b"])
def test_a_token_that_no_header_carries_is_refused(token: str) -> None:
    with pytest.raises(UserError, match="the token"):
        clean_token(token)


def test_others_need_a_token() -> None:
    for host in ("0.0.0.0", "::", "example.com", "192.0.2.1"):
        with pytest.raises(UserError, match="needs a token"):
            SandboxServer(Fake(), " \n", host=host, port=0)


# --- what is asked


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"code": "pass", "memory_mib": 512.5}, "memory_mib: Input should be a valid integer"),
        ({"code": "pass", "memory_mib": True}, "memory_mib"),
        ({"code": "pass", "memory_mib": "512"}, "memory_mib"),
        ({"code": "pass", "memory_mib": None}, "memory_mib"),
        ({"code": "pass", "timeout_s": True}, "timeout_s"),
        ({"code": "pass", "timeout_s": 10**400}, "timeout_s"),
        ({"code": "pass", "timeout_s": [3]}, "timeout_s"),
        ({"code": "pass", "output_limit_bytes": 1.5}, "output_limit_bytes"),
        ({"code": "pass", "policy": "none"}, "policy"),
        ({"code": "pass", "stdin": 5}, "stdin"),
        ({"code": "pass", "cancellation": 5}, "cancellation"),
        ({"stdin": ""}, "code: Field required"),
        ([], "dictionary"),
        ("pass", "dictionary"),
        (None, "dictionary"),
    ],
)
def test_a_value_that_is_wrong_is_named(server: SandboxServer, body: object, why: str) -> None:
    found, text = request(server, json.dumps(body).encode(), "/run")
    assert found == 400 and why in text


def test_what_is_no_json_is_refused(server: SandboxServer) -> None:
    for body in (b"", b"{", b"\xff\xfe", b"[" * 90_000, b'{"code": ' + b"9" * 9_000 + b"}"):
        assert request(server, body, "/run")[0] == 400
    found, text = request(server, b"{}", "/jump")
    assert found == 404 and "run_tests" in text


def test_a_bug_ends_its_request_alone(server: SandboxServer) -> None:
    found, text = request(server, b'{"code": "fail"}', "/run")
    assert (found, text) == (500, "the server failed: RuntimeError")
    assert HttpExecutor(server.address, TOKEN).run("fail").status == "sandbox_error"
    assert request(server)[0] == 200


# --- addresses


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6")
def test_ipv6() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(str(error))
    for token in (TOKEN, ""):
        with serving(token=token, host="::1") as server:
            assert server.address.startswith("http://[::1]:")
            assert HttpExecutor(server.address, token).run("x", output_limit_bytes=1).stdout == "x"


@pytest.mark.parametrize("url", ["http://user:secret@host", "http://host?token=secret", "http://host#secret"])
def test_an_address_with_a_secret_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(UserError, match="GRPO_SANDBOX_TOKEN") as refused:
        HttpExecutor(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("url", [f"http://{'a' * 70}.example", "http://a..b", "http://[::1%25none]:9"])
def test_a_host_that_is_no_name_is_an_infrastructure_failure(url: str) -> None:
    assert HttpExecutor(url).run("x").status == "sandbox_error"


def test_a_path_of_any_characters() -> None:
    with serving() as server:
        assert HttpExecutor(f"{server.address}/é x/", TOKEN).run("x", output_limit_bytes=1).stdout == "x"


# --- TLS


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
        assert HttpExecutor(server.address, TOKEN).run("x", output_limit_bytes=1).stdout == "x"
        with connected(server) as connection:  # no handshake
            assert said(connection) == b""


def test_what_is_no_certificate_is_refused(certificate: Certificate, tmp_path: Path) -> None:
    (tmp_path / "junk.pem").write_text("junk")
    for certfile, keyfile in (
        (tmp_path / "missing.pem", None),
        (tmp_path / "junk.pem", None),
        (certificate.certfile, None),  # its key is not in it
        (certificate.certfile, tmp_path / "junk.pem"),
        (tmp_path, None),
    ):
        with pytest.raises(UserError, match="the certificate cannot be used"):
            SandboxServer(Fake(), TOKEN, port=0, certificate=Certificate(certfile, keyfile))


# --- the command


def test_the_command_says_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GRPO_SANDBOX_TOKEN", raising=False)
    (tmp_path / "empty").write_text("\n")
    with serving() as server:
        taken = str(urlsplit(server.address).port)
        for arguments, why in (
            (("--host", "0.0.0.0"), "needs a token"),
            (("--port", taken), "cannot listen on 127.0.0.1"),
            (("--port", "99999"), "cannot listen on 127.0.0.1"),
            (("--workers", "0"), "workers=0"),
            (("--token-file", str(tmp_path / "empty")), "no token in it"),
            (("--token-file", str(tmp_path / "none")), "--token-file"),
            (("--ssl-keyfile", str(tmp_path / "none")), "--ssl-keyfile needs --ssl-certfile"),
            (("--ssl-certfile", str(tmp_path / "none")), "the certificate cannot be used"),
        ):
            monkeypatch.setattr(sys, "argv", ["remote", *arguments])
            with pytest.raises(SystemExit) as ended:
                command.main()
            said_of_it = capsys.readouterr().err
            assert ended.value.code == 2 and said_of_it.startswith("error: ") and why in said_of_it


def test_the_client_needs_no_server_library() -> None:
    code = (
        "import sys; from grpo_tasks_code.sandbox.remote import HttpExecutor; HttpExecutor('http://localhost');"
        "print([name for name in ('starlette', 'uvicorn') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


# --- the client


@contextmanager
def answering(respond: Callable[[socket.socket], None]) -> Iterator[HttpExecutor]:
    """A server that reads a request's head and then does what a function does."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1 << 16)
            with suppress(OSError):  # the client left, as it should
                respond(connection)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 16):  # a socket that is closed with something unread resets the connection
                    pass

    thread = threading.Thread(target=serve)
    thread.start()
    yield HttpExecutor(f"http://127.0.0.1:{listener.getsockname()[1]}")
    thread.join(SOON_S)
    listener.close()


def drip(connection: socket.socket, data: bytes) -> None:
    for byte in data:
        connection.send(bytes([byte]))
        time.sleep(0.01)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n" + b" " * 9000,
        b"HTTP/1.0 200 OK\r\n\r\n" + b" " * 9000,
        b"HTTP/1.1 200 OK\r\n" + b"X: x\r\n" * 1000,
    ],
)
def test_an_answer_that_comes_drop_by_drop_is_not_waited_for(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "QUEUE_TIMEOUT_S", 0.2)
    begin = time.monotonic()
    with answering(lambda connection: drip(connection, data)) as remote:
        execution = remote.run("x", timeout_s=0.2)
    assert execution.status == "sandbox_error" and "no answer within 0.4 s" in execution.stderr
    assert time.monotonic() - begin < SOON_S


@pytest.mark.parametrize("change", [{"cpu_s": float("nan")}, {"wall_s": -1.0}, {"cpu_s": True}, {"wall_s": 1e400}])
def test_seconds_that_are_none_say_nothing_of_the_program(change: dict[str, float]) -> None:
    body = {"status": "ok", "stdout": "", "stderr": "", "cpu_s": 0.0, "wall_s": 0.0, "level": "L3", **change}
    data = json.dumps(body).encode()
    with answering(lambda connection: connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + data)) as remote:
        assert remote.run("x").status == "sandbox_error"


def test_a_program_that_is_cancelled_beforehand_is_not_sent(server: SandboxServer) -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    execution = HttpExecutor(server.address, TOKEN).run("wait", cancellation=cancellation)
    assert execution.status == "sandbox_error" and "cancelled" in execution.stderr


def test_what_a_server_says_is_one_line_of_text() -> None:
    with answering(lambda connection: connection.sendall(b"HTTP/1.0 500 No\r\n\r\n\x1b[31m\r\nred")) as remote:
        assert remote.run("x").stderr.endswith("it answers 500:  [31m  red")
