"""Limits of a server of tasks: hostile requests, hanging completions, full queues, the token, and its end."""

from __future__ import annotations

import http.client
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from scoring_tasks import sums
from served import SOON_S, ask, refused, send, serving
from small_games import GUESS

from grpo_core import UserError
from grpo_core.serving import tasks as served_tasks
from grpo_core.serving.bounds import Bounds
from grpo_core.serving.server import TaskServer

SUMS = "/scoring_tasks.sums"
RIGHT = {"row": "1+1", "completion": "2"}


@pytest.fixture(scope="module")
def server() -> Iterator[TaskServer]:
    with serving(sums, GUESS, bounds=Bounds(body_bytes=2_000_000, head_s=0.5, body_s=0.5), timeout_s=1.0) as server:
        yield server


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "not JSON"),
        (b"[1]", "a request is a JSON object"),
        (b"[" * 1_000_000, "not JSON"),
        (b'{"row": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001, "not JSON"),
        (b'{"row": {"id": "x", "a": NaN, "b": 1}, "completion": "2"}', "NaN is no number"),
        (b'{"row": {"id": "x", "a": ' + b"9" * 5000 + b', "b": 1}, "completion": "2"}', ""),
        (b"\xff\xfe", "not JSON"),
        ({"row": "1+1"}, "either 'completion' or 'completions'"),
        ({"completion": "2"}, "either 'row' or 'rows'"),
        ({"row": "1+1", "completion": 2}, "completion: "),
        ({"row": "1+1", "completion": "2", "complation": "2"}, "complation: "),
        ({"row": "1+1", "completions": []}, "0 completions"),
        ({"row": "1+1", "completions": ["2"] * 1025}, "1025 completions"),
        ({"rows": ["1+1"], "completions": ["2", "3"]}, "2 completions and 1 rows"),
        ({"row": 7, "completion": "2"}, "row"),
        ({"row": {"id": "x"}, "completion": "2"}, "does not fit Sum"),
        ({"row": '{"id": "x"', "completion": "2"}, "does not fit Sum"),
        ({"row": {"id": "\ud800", "a": 1, "b": 1}, "completion": "2"}, "does not fit Sum"),
        ({"row": "1+1", "split": "dev", "completion": "2"}, "split 'dev' must be"),
    ],
)
def test_a_wrong_request_is_told_what_is_wrong(server: TaskServer, body: object, why: str) -> None:
    status, reason = refused(server, f"{SUMS}/score", body)
    assert status == 400 and why in reason and "\n" not in reason and len(reason) < 400


def test_what_does_not_exist_is_told_with_what_is_near(server: TaskServer) -> None:
    status, why = refused(server, f"{SUMS}/score", {"row": "1+2", "completion": "3"})
    assert status == 404 and "no row '1+2' in any split. Did you mean " in why
    status, why = refused(server, "/scoring_tasks.sum/score", RIGHT)
    assert status == 404 and "Did you mean 'scoring_tasks.sums'?" in why
    assert refused(server, "/score", RIGHT)[0] == 404  # which of the two?
    assert refused(server, "/score", {**RIGHT, "task": "x" * 1_000_000})[0] == 404
    status, why = refused(server, f"{SUMS}/skore", {})
    assert status == 404 and "Did you mean 'score'?" in why


def test_requests_of_other_kinds_are_refused(server: TaskServer) -> None:
    assert send(server, f"{SUMS}/score", b"{}", **{"Content-Length": "2000001"})[0] == 413
    assert send(server, f"{SUMS}/score", RIGHT, **{"Content-Type": "text/plain"})[0] == 415
    assert send(server, f"{SUMS}/score", RIGHT, Origin="http://evil.example")[0] == 403
    assert send(server, f"{SUMS}/score", RIGHT, Host="evil.example")[0] == 403
    assert send(server, f"{SUMS}/score", RIGHT, Origin=server.address)[0] == 200  # a page of its own


def test_a_path_of_posts_says_so(server: TaskServer) -> None:
    for path in ("/score", f"{SUMS}/score", f"{SUMS}/tasks"):
        status, answer, headers = send(server, path)
        name = path.rpartition("/")[2]
        assert (status, headers["Allow"]) == (405, "POST")
        assert answer == {"error": f"{name} takes POST requests, with a body of JSON"}
    assert send(server, "/tasks")[0] == send(server, SUMS)[0] == 200


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        (b"f4240\r\n" + b" " * 1_000_000 + b"\r\n", 413, "a request may have 2000000 bytes at most"),
        (b"1\r\n{\r\n", 408, "a request may take 0.5 s"),
    ],
)
def test_a_body_of_unknown_length_has_the_same_limits(server: TaskServer, body: bytes, status: int, why: str) -> None:
    parts = urlsplit(server.address)
    head = (
        f"POST {SUMS}/score HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
    )
    with socket.create_connection((parts.hostname, parts.port), timeout=SOON_S) as client:
        client.sendall(head.encode() + (body * 3 if status == 413 else body))
        response = http.client.HTTPResponse(client, method="POST")
        response.begin()
        assert (response.status, response.headers["Connection"]) == (status, "close")
        assert json.loads(response.read()) == {"error": why}


HEAD = f"POST {SUMS}/score HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n".encode()


def answer_to(server: TaskServer, *parts: bytes, ends: bool = True) -> bytes:
    """All that the server sends to a client that sends all of its parts first, and then may end its side."""
    address = urlsplit(server.address)
    with socket.create_connection((address.hostname, address.port), timeout=SOON_S) as client:
        for part in parts:
            client.sendall(part)
        if ends:
            client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(1 << 16), b""))


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize(
    "parts",
    [
        [b"Content-Length: 40000000\r\n\r\n", *[b" " * 4_000_000] * 10],
        [b"Transfer-Encoding: chunked\r\n\r\n", *[b"3d0900\r\n" + b" " * 4_000_000 + b"\r\n"] * 10],
    ],
    ids=["known length", "chunked"],
)
def test_a_client_that_still_sends_gets_the_whole_refusal(server: TaskServer, parts: list[bytes], ends: bool) -> None:
    answer = answer_to(server, HEAD, *parts, ends=ends)
    assert answer.startswith(b"HTTP/1.1 413 ") and b"2000000 bytes at most" in answer


@pytest.mark.parametrize(
    ("request_", "status", "said"),
    [
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", b"200", b"healthy"),
        (HEAD + b'Content-Length: 36\r\n\r\n{"row": "1+1", "completion": "spin"}', b"400", b"hangs up"),
        (HEAD + b"Content-Length: 35\r\n\r\n{", b"400", b"hangs up"),
        (b"GET /hea", b"400", b"hangs up"),
        (b"", b"", b""),
    ],
)
def test_a_client_that_ends_its_side_is_told_why(
    server: TaskServer, request_: bytes, status: bytes, said: bytes
) -> None:
    answer = answer_to(server, request_)
    assert answer[9:12] == status and said in answer


def test_slow_clients_are_cut_off(server: TaskServer) -> None:
    parts = urlsplit(server.address)
    for start in (b"POST /score HT", b"POST /score HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
                  b"Content-Type: application/json\r\n\r\n{"):  # fmt: skip
        with socket.create_connection((parts.hostname, parts.port), timeout=SOON_S) as slow:
            slow.sendall(start)
            while slow.recv(1 << 16):
                pass
    assert ask(server, f"{SUMS}/score", RIGHT)["solved"]


def test_hanging_completions_cost_others_no_more_than_a_worker() -> None:
    with serving(sums, workers=2, timeout_s=1.5) as server:
        ask(server, "/score", RIGHT)
        hanging = threading.Thread(target=ask, args=(server, "/score", {"row": "1+1", "completion": "spin"}))
        hanging.start()
        time.sleep(0.3)
        started = time.monotonic()
        while hanging.is_alive():
            assert ask(server, "/score", RIGHT)["solved"]
        assert time.monotonic() - started > 0.5  # the others went on meanwhile
        hanging.join()


def test_a_full_queue_refuses_and_says_when_to_come_again() -> None:
    with serving(sums, bounds=Bounds(requests=1, waiting=1), timeout_s=3.0) as server:
        ask(server, "/score", RIGHT)
        bodies = [{"row": "1+1", "completion": "spin"}, RIGHT]
        threads = [threading.Thread(target=ask, args=(server, "/score", body)) for body in bodies]
        for thread in threads:
            thread.start()
            time.sleep(0.5)
        status, _, headers = send(server, "/score", RIGHT)
        assert (status, headers["Retry-After"]) == (429, "1")
        for thread in threads:
            thread.join()
        assert ask(server, "/score", RIGHT)["solved"]


def test_what_a_client_no_longer_waits_for_is_not_scored() -> None:
    with serving(sums, timeout_s=2.0) as server:
        ask(server, "/score", RIGHT)
        parts = urlsplit(server.address)
        body = b'{"row": "1+1", "completions": ["spin", ' + b", ".join(b'"%d"' % n for n in range(900)) + b"]}"
        with socket.create_connection((parts.hostname, parts.port), timeout=SOON_S) as gone:
            head = "POST /score HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            gone.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            time.sleep(0.5)
        started = time.monotonic()
        ask(server, "/score", RIGHT)
        assert time.monotonic() - started < 30
        assert server.tasks.stats["scoring_tasks.sums"].scored < 100


def test_the_token() -> None:
    with serving(sums, token="secret") as server:
        assert send(server, "/score", RIGHT)[0] == 401
        assert send(server, "/metrics")[0] == 401
        assert send(server, "/health")[0] == 200  # for what watches over it
        assert send(server, "/score", RIGHT, Authorization="Bearer secret", Host="anywhere.example")[0] == 200
    with pytest.raises(UserError, match="needs a token"):
        TaskServer([sums], host="0.0.0.0", port=0)


def test_workers_of_tasks_that_are_not_used_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_tasks, "MAX_SCORERS", 1)
    with serving(sums, GUESS) as server:
        assert ask(server, f"{SUMS}/score", RIGHT)["solved"]
        row = ask(server, "/small_games.guess/task", {"split": "train", "index": 0})["task"]["id"]
        assert ask(server, "/small_games.guess/score", {"row": row, "completion": row})["solved"]
        assert list(server.tasks.stats) == ["small_games.guess"]
        assert ask(server, f"{SUMS}/score", RIGHT)["solved"]


def test_a_server_needs_no_torch(tmp_path: Path) -> None:
    import subprocess

    code = "import sys, grpo_core.serving.server, grpo_core.cli.serve; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=SOON_S).returncode == 0
