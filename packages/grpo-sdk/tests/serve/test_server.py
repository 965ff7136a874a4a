"""Limits of a server of tasks: hostile requests, hanging completions, full queues, the token, and its end."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from scoring_tasks import sums
from served import SOON_S, ask, refused, send, serving
from small_games import GUESS

from grpo_sdk import UserError
from grpo_sdk.serve import Bounds
from grpo_sdk.serve import tasks as served_tasks
from grpo_sdk.serve.server import TaskServer

SUMS = "/scoring_tasks.sums"
RIGHT = {"row": "1+1", "completion": "2"}


@pytest.fixture(scope="module")
def server() -> Iterator[TaskServer]:
    with serving(sums, GUESS, bounds=Bounds(body_bytes=2_000_000, head_s=0.5, body_s=0.5), timeout_s=1.0) as server:
        yield server


@pytest.mark.parametrize(("body", "why"), [
    (b"", "not JSON"),
    (b"[1]", "a request is a JSON object"),
    (b"[" * 1_000_000, "not JSON"),
    (b'{"row": {"id": "x", "a": NaN, "b": 1}, "completion": "2"}', "NaN is no number"),
    (b'{"row": {"id": "x", "a": ' + b"9" * 5000 + b', "b": 1}, "completion": "2"}', ""),
    ({"row": "1+1"}, "either 'completion' or 'completions'"),
    ({"completion": "2"}, "either 'row' or 'rows'"),
    ({"row": "1+1", "completion": 2}, "completion: "),
    ({"row": "1+1", "completion": "2", "complation": "2"}, "complation: "),
    ({"row": "1+1", "completions": []}, "0 completions"),
    ({"row": "1+1", "completions": ["2"] * 1025}, "1025 completions"),
    ({"rows": ["1+1"], "completions": ["2", "3"]}, "2 completions and 1 rows"),
    ({"row": '{"id": "x"', "completion": "2"}, "does not fit Sum"),
    ({"row": {"id": "\ud800", "a": 1, "b": 1}, "completion": "2"}, "does not fit Sum"),
    ({"row": "1+1", "split": "dev", "completion": "2"}, "split 'dev' must be"),
])  # fmt: skip
def test_a_wrong_request_is_told_what_is_wrong(server: TaskServer, body: object, why: str) -> None:
    status, reason = refused(server, f"{SUMS}/score", body)
    assert status == 400 and why in reason and "\n" not in reason and len(reason) < 400


@pytest.mark.parametrize(("path", "body", "why"), [
    (f"{SUMS}/score", {"row": "1+2", "completion": "3"}, "no row '1+2' in any split. Did you mean "),
    ("/scoring_tasks.sum/score", RIGHT, "Did you mean 'scoring_tasks.sums'?"),
    ("/score", RIGHT, ""),  # which of the two?
    ("/score", {**RIGHT, "task": "x" * 1_000_000}, ""),
    (f"{SUMS}/skore", {}, "Did you mean 'score'?"),
])  # fmt: skip
def test_what_does_not_exist_is_told_with_what_is_near(server: TaskServer, path: str, body: object, why: str) -> None:
    status, reason = refused(server, path, body)
    assert status == 404 and why in reason


@pytest.mark.parametrize(("header", "value", "status"), [
    ("Content-Length", "2000001", 413),
    ("Content-Type", "text/plain", 415),
    ("Origin", "http://evil.example", 403),
    ("Host", "evil.example", 403),
])  # fmt: skip
def test_requests_of_other_kinds_are_refused(server: TaskServer, header: str, value: str, status: int) -> None:
    assert send(server, f"{SUMS}/score", RIGHT, **{header: value})[0] == status
    assert send(server, f"{SUMS}/score", RIGHT, Origin=server.address)[0] == 200  # a page of its own


@pytest.mark.parametrize("path", ["/score", f"{SUMS}/score", f"{SUMS}/tasks"])
def test_a_path_of_posts_says_so(server: TaskServer, path: str) -> None:
    status, answer, headers = send(server, path)
    assert (status, headers["Allow"]) == (405, "POST") and "takes POST requests" in answer["error"]


HEAD = f"POST {SUMS}/score HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n".encode()
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
HANGING = HEAD + b'Content-Length: 36\r\n\r\n{"row": "1+1", "completion": "spin"}'


def connection(server: TaskServer) -> socket.socket:
    address = urlsplit(server.address)
    return socket.create_connection((address.hostname, address.port), timeout=SOON_S)


def answer_to(server: TaskServer, *parts: bytes, ends: bool = True) -> bytes:
    """All that the server sends to a client that sends all of its parts first, and then may end its side."""
    with connection(server) as client:
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
        [CHUNKED, *[b"3d0900\r\n" + b" " * 4_000_000 + b"\r\n"] * 10],
    ],
    ids=["known length", "chunked"],
)
def test_a_client_that_still_sends_gets_the_whole_refusal(server: TaskServer, parts: list[bytes], ends: bool) -> None:
    answer = answer_to(server, HEAD, *parts, ends=ends)
    assert answer.startswith(b"HTTP/1.1 413 ") and b"2000000 bytes at most" in answer and b"close" in answer


@pytest.mark.parametrize(("request_", "ends", "status", "said"), [
    (HEAD + CHUNKED + b"1\r\n{\r\n", False, b"408", b"a request may take 0.5 s"),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", True, b"200", b"healthy"),
    (HANGING, True, b"400", b"hangs up"),
    (HEAD + b"Content-Length: 35\r\n\r\n{", True, b"400", b"hangs up"),
    (b"GET /hea", True, b"400", b"hangs up"),
    (b"", True, b"", b""),
    (b"POST /score HT", False, b"", b""),  # cut off
    (HEAD + b"Content-Length: 9\r\n\r\n{", False, b"408", b""),
])  # fmt: skip
def test_a_client_that_is_slow_or_ends_its_side_is_told_why(server, request_, ends, status, said):
    answer = answer_to(server, request_, ends=ends)
    assert answer[9:12] == status and said in answer
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
    with serving(sums, bounds=Bounds(requests=1, waiting=1), timeout_s=2.5) as server:
        ask(server, "/score", RIGHT)
        bodies = [{"row": "1+1", "completion": "spin"}, RIGHT]
        threads = [threading.Thread(target=ask, args=(server, "/score", body)) for body in bodies]
        for thread in threads:
            thread.start()
            time.sleep(0.3)
        status, _, headers = send(server, "/score", RIGHT)
        assert (status, headers["Retry-After"]) == (429, "1")
        for thread in threads:
            thread.join()
        assert ask(server, "/score", RIGHT)["solved"]


def test_what_a_client_no_longer_waits_for_is_not_scored() -> None:
    with serving(sums, timeout_s=1.5) as server:
        ask(server, "/score", RIGHT)
        body = json.dumps({"row": "1+1", "completions": ["spin", *map(str, range(900))]}).encode()
        with connection(server) as gone:
            gone.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
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
