"""Endpoints that lie, stall and flood: each gives an answer with an error in bounded time and memory, and no text."""

import gzip
import json
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from email.utils import formatdate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from local_servers import Handler, listening

from grpo_sdk.endpoints.base import Sampling
from grpo_sdk.endpoints.openai import MAX_REPLY_BYTES, Answer, OpenAIEngine, _retry_after_s

Write = Callable[[bytes], Any]
Respond = Callable[[Write], None]

TIMEOUT_S = 0.3
TIMED_OUT = f"no answer within {TIMEOUT_S} s (tried 2 times)"

OK = b"HTTP/1.1 200 OK\r\n"
BOMB = gzip.compress(bytes(2**25))  # 32 MiB in 32 KiB
GOOD = json.dumps({"choices": [{"text": "4", "finish_reason": "stop"}]}).encode()


def reply(body: bytes, headers: bytes = b"", status: bytes = b"200 OK") -> bytes:
    # The server closes after each reply and says so: another try would take the connection that is about to end.
    head = b"HTTP/1.1 %s\r\nConnection: close\r\nContent-Length: %d\r\n%s\r\n"
    return head % (status, len(body), headers) + body


class Hostile:
    """Starts real servers that read each request and then write what a function writes, byte for byte."""

    def __init__(self, servers: ExitStack) -> None:
        self._servers = servers
        self.headers: list[str] = []

    def __call__(self, respond: Respond) -> OpenAIEngine:
        seen = self.headers

        class Raw(Handler):
            def do_POST(self) -> None:
                self.body()
                seen.extend(self.headers)
                with suppress(OSError):  # the client left, as it should
                    respond(self.wfile.write)

        url = self._servers.enter_context(listening(Raw))
        return OpenAIEngine(f"{url}/v1", "m", timeout_s=TIMEOUT_S, max_retries=1, backoff_s=0.01)


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hostile]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with ExitStack() as servers:
        yield Hostile(servers)


def ask(engine: OpenAIEngine) -> Answer:
    ((_, answer),) = engine.answers(["2 + 2 ="], Sampling(max_completion_length=5))
    return answer


THOUGHT = {"message": {"content": None, "reasoning_content": ["Two and two"]}, "finish_reason": "stop"}
REFUSED = {"message": {"refusal": "I can't help with that."}, "finish_reason": "stop"}
WITHOUT_TEXT = [json.dumps({"choices": [each]}) for each in ({}, {"text": None}, {"message": {}}, THOUGHT, REFUSED)]
OF_ANOTHER_FORM = [
    b"null", b"{}", b'{"choices": []}', b'{"choices": [null]}',
    b'{"choices": [{"text": 4}]}', b'{"choices": [{"text": "\\ud800"}]}',
    b'{"choices": [{"message": {"content": [{"type": "text", "text": "4"}]}}]}',
    b'{"choices":' * 100_000, b"[" * 1_000_000, b"\xff\xfe{", b"<html>502 Bad Gateway</html>",
]  # fmt: skip
FILTERED = b'{"choices": [{"text": "I can", "finish_reason": "content_filter"}]}'
TWO = json.dumps({"choices": json.loads(GOOD)["choices"] * 2}).encode()


@pytest.mark.parametrize(("body", "why"), [
    *((body.encode(), "a reply without text") for body in WITHOUT_TEXT),
    *((body, "a reply that is no completion") for body in OF_ANOTHER_FORM),
    (FILTERED, "the endpoint ended the completion for 'content_filter'"),
    (TWO, "the endpoint replied with 2 completions, and one was requested"),
], ids=lambda given: repr(given[:60]))  # fmt: skip
def test_a_body_that_is_not_one_text_is_no_completion(hostile: Hostile, body: bytes, why: str) -> None:
    answer = ask(hostile(lambda write: write(reply(body))))
    assert answer.text == "" and why in answer.error
    assert len(answer.error) < 500 and answer.error.isprintable()


@pytest.mark.parametrize(
    "usage", ['{"completion_tokens": -1}', '{"completion_tokens": 1' + "0" * 400 + "}", "[]", '"7"'], ids=range(4)
)
def test_a_count_that_cannot_be_is_not_believed_and_costs_no_completion(hostile: Hostile, usage: str) -> None:
    answer = ask(hostile(lambda write: write(reply(f'{{"choices": [{{"text": "4"}}], "usage": {usage}}}'.encode()))))
    assert (answer.text, answer.tokens, answer.error) == ("4", None, "")


def drip(write: Write) -> None:
    for byte in OK + b"Content-Length: 9999\r\n\r\n" + b" " * 500:
        write(bytes([byte]))
        time.sleep(0.005)


def hang(start: bytes) -> Respond:
    """Write the start of a reply, and no more."""

    def respond(write: Write) -> None:
        write(start)
        time.sleep(1)

    return respond


def endless(start: bytes, piece: bytes) -> Respond:
    def respond(write: Write) -> None:
        write(start)
        while True:
            write(piece)

    return respond


FILLER = b"X-Filler: " + b"x" * 1000 + b"\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
BROKEN = [
    b"",  # closes without a word
    b"SSH-2.0-OpenSSH_9.6\r\n",
    OK + b"Content-Length: 1000\r\n\r\n" + GOOD,  # closed in the body
    OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n" + GOOD,
    CHUNKED + b"zz\r\n",
    OK + b"X: " + b"x" * 2**20 + b"\r\n\r\n" + GOOD,
]


@pytest.mark.parametrize(("respond", "why"), [
    (drip, TIMED_OUT),
    (hang(OK + b"Content-Length: 50\r\n\r\n{"), TIMED_OUT),
    (endless(b"", b"HTTP/1.1 102 Processing\r\n\r\n"), TIMED_OUT),
    (endless(OK, FILLER), "RemoteProtocolError"),
    (endless(CHUNKED, b"10000\r\n" + b"x" * 0x10000 + b"\r\n"), f"more than {MAX_REPLY_BYTES} bytes"),
    *((data, "RemoteProtocolError") for data in BROKEN),
    # Without the header, the second try may take the connection that the server is about to close.
    (OK + b"Connection: close\r\nContent-Length: 5\r\n\r\n" + GOOD, "a reply that is no completion"),
    (reply(b"", b"Location: http://127.0.0.1:1/\r\n", b"302 Found"), "HTTP 302"),
    (reply(GOOD, b"", b"207 Multi-Status"), "HTTP 207"),
    (reply(b"\x1b[31m" * 1000, b"", b"418 \x1b[31m"), "HTTP 418|RemoteProtocolError"),
], ids=lambda given: given.__qualname__.split(".")[0] if callable(given) else repr(given)[:50])  # fmt: skip
def test_whatever_it_does_is_an_error_in_bounded_time(hostile: Hostile, respond: Respond | bytes, why: str) -> None:
    started = time.monotonic()
    answer = ask(hostile((lambda write: write(respond)) if isinstance(respond, bytes) else respond))
    assert answer.text == "" and any(each in answer.error for each in why.split("|")), answer
    assert len(answer.error) < 500 and answer.error.isprintable()
    assert time.monotonic() - started < 10  # two attempts, with room for a busy machine


@pytest.mark.parametrize("coding", [b"gzip", b"deflate", b"br", b"zstd", b"gzip, gzip", b"\xff"])
def test_a_compressed_reply_is_refused_before_it_is_unpacked(hostile: Hostile, coding: bytes) -> None:
    tracemalloc.start()
    try:
        answer = ask(hostile(lambda write: write(reply(BOMB, b"Content-Encoding: " + coding + b"\r\n"))))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "which was not asked for" in answer.error
    assert peak_bytes < 2**23


@pytest.mark.parametrize("coding", [b"", b"identity", b" Identity "])
def test_a_reply_in_no_coding_is_read(hostile: Hostile, coding: bytes) -> None:
    assert ask(hostile(lambda write: write(reply(GOOD, b"Content-Encoding: " + coding + b"\r\n")))).text == "4"


def test_cookies_are_not_kept(hostile: Hostile) -> None:
    cookies = b"".join(b"Set-Cookie: c%d=%s\r\n" % (n, b"x" * 500) for n in range(50))
    engine = hostile(lambda write: write(reply(GOOD, cookies)))
    assert [answer.text for _, answer in engine.answers(["?"] * 20, Sampling())] == ["4"] * 20
    assert "content-type" in map(str.lower, hostile.headers) and "cookie" not in map(str.lower, hostile.headers)


@pytest.mark.parametrize(("header", "waits"), [(b"1", True), (b"soon", False), (b"-5", False)])
def test_a_server_that_says_when_to_come_back_is_obeyed(hostile: Hostile, header: bytes, waits: bool) -> None:
    busy = reply(b"", b"Retry-After: " + header + b"\r\n", b"429 Too Many Requests")
    replies = iter([busy, reply(GOOD)])
    started = time.monotonic()
    assert ask(hostile(lambda write: write(next(replies)))).text == "4"
    assert (time.monotonic() - started >= 0.95) == waits


DATE = r"(Mon|Foo)?, -?[0-9]{1,2} Jan -?[0-9]{1,5} [0-9]{2}:00:00 (GMT|EST|[+-][0-9]{0,30})"


@given(st.text(max_size=60) | st.integers().map(str) | st.from_regex(DATE, fullmatch=True))
def test_any_retry_after_is_a_number_of_seconds(header: str) -> None:
    assert isinstance(_retry_after_s(header), float)
    assert 55 < _retry_after_s(formatdate(time.time() + 60, usegmt=True)) <= 60
    assert _retry_after_s("9" * 400) == 999_999_999
