from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from grpo_core.engines.base import Sampling
from grpo_core.engines.openai import MAX_REPLY_BYTES, Answer, OpenAIEngine
from grpo_core.engines.stop_strings import cut_at_stop
from grpo_core.errors import UserError
from grpo_core.task.row import Message

KEY = "sk-very-secret"
CHAT = (Message(role="user", content="2 + 2?"),)


class Endpoint:
    """A real server on this machine; `respond(server, handler, request)` says what it does to request number n."""

    def __init__(self) -> None:
        self.url = ""
        self.seen: list[dict[str, Any]] = []
        self.times: list[float] = []
        self.in_flight = self.most_in_flight = 0
        self.respond: Callable[[Handler, int], None] = lambda handler, n: handler.say("4")
        self.lock = threading.Lock()

    def received(self) -> list[Any]:
        return [request["body"] for request in self.seen]


class Handler(BaseHTTPRequestHandler):
    endpoint: Endpoint

    def do_POST(self) -> None:
        endpoint = self.endpoint
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with endpoint.lock:
            number = len(endpoint.seen)
            endpoint.seen.append({"path": self.path, "headers": dict(self.headers), "body": body})
            endpoint.times.append(time.monotonic())
            endpoint.in_flight += 1
            endpoint.most_in_flight = max(endpoint.most_in_flight, endpoint.in_flight)
        try:
            endpoint.respond(self, number)
        except (BrokenPipeError, ConnectionResetError):  # the client left, as it should
            pass
        finally:
            with endpoint.lock:
                endpoint.in_flight -= 1

    def body(self) -> Any:
        return self.endpoint.seen[-1]["body"]

    def send(self, status: int, data: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def say(self, text: str | None, finish_reason: str = "stop", **message: Any) -> None:
        place = {"text": text} if self.path.endswith("/v1/completions") else {"message": {"content": text, **message}}
        reply = {"choices": [{**place, "finish_reason": finish_reason}], "usage": {"completion_tokens": 3}}
        self.send(200, json.dumps(reply).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    endpoint = Endpoint()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"endpoint": endpoint}))
    server.daemon_threads = True
    endpoint.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield endpoint
    server.shutdown()
    server.server_close()
    thread.join()


def engine(endpoint: Endpoint, **options: Any) -> OpenAIEngine:
    return OpenAIEngine(endpoint.url, "m", **{"backoff_s": 0.01, "max_retries": 2, **options})


def ask(
    engine: OpenAIEngine, n: int = 1, prompt: Any = CHAT, sampling: Sampling | None = None, **kw: Any
) -> list[Answer]:
    answers = dict(engine.answers([prompt] * n, sampling or Sampling(max_completion_length=5), **kw))
    return [answers[index] for index in range(n)]


# --- requests


def test_messages_go_to_chat_and_text_to_completions(endpoint: Endpoint) -> None:
    assert ask(engine(endpoint)) == [Answer("4", "stop", tokens=3)]
    assert ask(engine(endpoint), prompt="2 + 2 =") == [Answer("4", "stop", tokens=3)]
    chat, text = endpoint.seen
    assert chat["path"] == "/v1/chat/completions"
    assert chat["body"] == {"model": "m", "temperature": 1.0, "max_tokens": 5, "messages": [dict(CHAT[0])]}
    assert text["path"] == "/v1/completions"
    assert text["body"] == {"model": "m", "temperature": 1.0, "max_tokens": 5, "prompt": "2 + 2 ="}
    assert chat["headers"]["Authorization"] == f"Bearer {KEY}"


def test_what_was_set_is_sent(endpoint: Endpoint) -> None:
    sampling = Sampling(temperature=0.0, top_p=0.5, top_k=3, min_p=0.1, max_completion_length=7)
    ask(engine(endpoint), n=2, sampling=sampling, seeds=[11, 12])
    sent = sorted(endpoint.received(), key=lambda body: body["seed"])
    assert [body["seed"] for body in sent] == [11, 12]
    assert {name: sent[0][name] for name in ("temperature", "top_p", "top_k", "min_p", "max_tokens")} == {
        "temperature": 0.0,
        "top_p": 0.5,
        "top_k": 3,
        "min_p": 0.1,
        "max_tokens": 7,
    }


def test_a_prefill_is_continued(endpoint: Endpoint) -> None:
    ask(engine(endpoint), prompt=(*CHAT, Message(role="assistant", content="<think>")))
    (body,) = endpoint.received()
    assert body["continue_final_message"] is True
    assert body["add_generation_prompt"] is False


def test_without_a_key_nothing_is_claimed(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    ask(engine(endpoint))
    assert "Authorization" not in endpoint.seen[0]["headers"]


def test_lone_surrogates_reach_the_endpoint(endpoint: Endpoint) -> None:
    ask(engine(endpoint), prompt="\ud800")
    assert endpoint.received()[0]["prompt"] == "\ud800"


# --- answers


def test_answers_carry_their_index_whatever_the_order(endpoint: Endpoint) -> None:
    def respond(handler: Handler, n: int) -> None:
        prompt = handler.endpoint.seen[n]["body"]["prompt"]
        time.sleep(0.05 if prompt == "0" else 0)
        handler.say(prompt)

    endpoint.respond = respond
    arrived = list(engine(endpoint).answers([str(i) for i in range(6)], Sampling()))
    assert {index: answer.text for index, answer in arrived} == {i: str(i) for i in range(6)}
    assert arrived[0][0] != 0  # the slow one did not hold up the others


def test_the_text_ends_right_after_the_first_complete_stop_string(endpoint: Endpoint) -> None:
    endpoint.respond = lambda handler, n: handler.say("a</x>b\nc", finish_reason="length")
    assert ask(engine(endpoint), stop=("\n", "</x>")) == [Answer("a</x>", "stop", tokens=3)]
    assert ask(engine(endpoint)) == [Answer("a</x>b\nc", "length", tokens=3)]


def test_cutting_at_stop_strings() -> None:
    assert cut_at_stop("ab\ncd", ("\n",)) == ("ab\n", True)
    assert cut_at_stop("abcd", ("bcd", "c")) == ("abc", True)  # "c" is complete before "bcd"
    assert cut_at_stop("abcd", ("x",)) == ("abcd", False)
    assert cut_at_stop("", ()) == ("", False)


def test_an_empty_text_is_a_completion_and_no_text_is_none(endpoint: Endpoint) -> None:
    endpoint.respond = lambda handler, n: handler.say("")
    assert ask(engine(endpoint)) == [Answer("", "stop", tokens=3)]
    endpoint.respond = lambda handler, n: handler.say(None)
    assert ask(engine(endpoint)) == [Answer("", "stop", error="a reply without text")]
    assert len(endpoint.seen) == 2  # not repeated: drawing until there is a text would choose among completions


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_what_a_reasoning_model_thought_is_part_of_its_completion(endpoint: Endpoint, field: str) -> None:
    endpoint.respond = lambda handler, n: handler.say("4", **{field: "2 and 2"})
    assert ask(engine(endpoint)) == [Answer("<think>2 and 2</think>4", "stop", tokens=3)]
    prefilled = (*CHAT, Message(role="assistant", content="<think>\n"))
    assert ask(engine(endpoint), prompt=prefilled) == [Answer("2 and 2</think>4", "stop", tokens=3)]
    endpoint.respond = lambda handler, n: handler.say("4", **{field: {"text": "2 and 2"}})
    assert ask(engine(endpoint)) == [Answer("4", "stop", tokens=3)]


def test_a_thought_that_the_limit_ended_is_a_truncated_completion(endpoint: Endpoint) -> None:
    endpoint.respond = lambda handler, n: handler.say(None, "length", reasoning_content="2 and")
    assert ask(engine(endpoint)) == [Answer("<think>2 and", "length", tokens=3)]
    endpoint.respond = lambda handler, n: handler.say(None, "length")  # an endpoint that keeps thoughts to itself
    assert ask(engine(endpoint)) == [Answer("", "length", tokens=3)]
    endpoint.respond = lambda handler, n: handler.say(None, reasoning_content="2 and 2")
    assert ask(engine(endpoint)) == [Answer("<think>2 and 2</think>", "stop", tokens=3)]


def test_a_filtered_answer_is_no_completion(endpoint: Endpoint) -> None:
    endpoint.respond = lambda handler, n: handler.say("I can", finish_reason="content_filter")
    (answer,) = ask(engine(endpoint))
    assert answer.text == ""
    assert "content_filter" in answer.error


def test_no_more_requests_than_allowed_are_in_flight(endpoint: Endpoint) -> None:
    def respond(handler: Handler, n: int) -> None:
        time.sleep(0.02)
        handler.say("4")

    endpoint.respond = respond
    ask(engine(endpoint, concurrency=3), n=12)
    assert endpoint.most_in_flight == 3


# --- failures


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_may_succeed_yet_is_repeated(endpoint: Endpoint, status: int) -> None:
    endpoint.respond = lambda handler, n: handler.send(status, b"busy") if n < 2 else handler.say("4")
    assert ask(engine(endpoint))[0].text == "4"
    assert len(endpoint.seen) == 3


def test_a_server_that_stays_broken_is_an_error_and_no_text(endpoint: Endpoint) -> None:
    endpoint.respond = lambda handler, n: handler.send(500, b"\x1b[31mout of memory\n")
    (answer,) = ask(engine(endpoint))
    assert answer.text == ""
    assert "HTTP 500: [31mout of memory (tried 3 times)" in answer.error  # no control characters


@pytest.mark.parametrize("header", ["1", "date"])
def test_retry_after_is_honoured(endpoint: Endpoint, header: str) -> None:
    def respond(handler: Handler, n: int) -> None:
        # An HTTP date has whole seconds: two ahead are between one and two from now.
        value = formatdate(time.time() + 2, usegmt=True) if header == "date" else header
        handler.send(429, b"", Retry_After=value) if n == 0 else handler.say("4")

    endpoint.respond = respond
    assert ask(engine(endpoint))[0].text == "4"
    assert endpoint.times[1] - endpoint.times[0] >= 0.95


@pytest.mark.parametrize("header", ["soon", "-5", "9" * 400, "Mon, 99 Foo 0000"])
def test_a_nonsense_retry_after_is_survived(endpoint: Endpoint, header: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo_core.engines.endpoint.MAX_WAIT_S", 0.05)
    endpoint.respond = lambda handler, n: handler.send(429, b"", Retry_After=header) if n == 0 else handler.say("4")
    assert ask(engine(endpoint))[0].text == "4"


@pytest.mark.parametrize("body", [b'{"choices": [{"message": {"cont', b'{"choices": []}', b"[1]", b"", b"\xff\xfe"])
def test_a_reply_that_is_no_completion_is_repeated(endpoint: Endpoint, body: bytes) -> None:
    endpoint.respond = lambda handler, n: handler.send(200, body) if n == 0 else handler.say("4")
    assert ask(engine(endpoint))[0].text == "4"


def test_a_connection_cut_in_mid_reply_is_repeated(endpoint: Endpoint) -> None:
    def respond(handler: Handler, n: int) -> None:
        if n:
            handler.say("4")
            return
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b'{"choices"')
        handler.close_connection = True

    endpoint.respond = respond
    assert ask(engine(endpoint))[0].text == "4"


def test_a_trickle_ends_at_the_time_limit(endpoint: Endpoint) -> None:
    def respond(handler: Handler, n: int) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000000")
        handler.end_headers()
        for _ in range(200):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.02)

    endpoint.respond = respond
    started = time.monotonic()
    (answer,) = ask(engine(endpoint, timeout_s=0.2, max_retries=1))
    assert "no answer within 0.2 s (tried 2 times)" in answer.error
    assert time.monotonic() - started < 2


def test_an_endless_reply_is_not_read_to_its_end(endpoint: Endpoint) -> None:
    def respond(handler: Handler, n: int) -> None:
        handler.send_response(200)
        handler.end_headers()
        for _ in range(4 * MAX_REPLY_BYTES // 2**16):
            handler.wfile.write(b"x" * 2**16)

    endpoint.respond = respond
    (answer,) = ask(engine(endpoint))
    assert f"more than {MAX_REPLY_BYTES} bytes" in answer.error
    assert len(endpoint.seen) == 1


def test_a_refused_prompt_does_not_harm_the_others(endpoint: Endpoint) -> None:
    def respond(handler: Handler, n: int) -> None:
        refused = handler.endpoint.seen[n]["body"]["prompt"] == "1"
        handler.send(400, b'{"error": "too long"}') if refused else handler.say("4")

    endpoint.respond = respond
    answers = dict(engine(endpoint).answers(["0", "1", "2"], Sampling()))
    assert [answers[index].text for index in range(3)] == ["4", "", "4"]
    assert "HTTP 400" in answers[1].error
    assert len(endpoint.seen) == 3  # asking again would not help


@pytest.mark.parametrize(
    "error",
    [
        '{"error": {"message": "...", "code": "context_length_exceeded"}}',  # OpenAI
        '{"message": "This model\'s maximum context length is 512 tokens. However, you requested 900"}',  # vLLM
        '{"message": "The input (900 tokens) is longer than the model\'s context length (512 tokens)."}',  # SGLang
        '{"error": {"type": "exceed_context_size_error", "message": "..."}}',  # llama.cpp
        '{"error": "Input validation error: `inputs` is too long"}',
    ],
)
def test_a_prompt_refused_for_its_length_is_told_apart(endpoint: Endpoint, error: str) -> None:
    endpoint.respond = lambda handler, n: handler.send(400, error.encode())
    answers = ask(engine(endpoint, concurrency=1), n=5)
    assert all(answer.is_too_long and "HTTP 400" in answer.error for answer in answers)
    assert len(endpoint.seen) == 5  # it is not down, so that the rest is tried


@pytest.mark.parametrize("error", ["unknown argument top_k", "max_tokens is too large: 99999"])
def test_a_request_that_is_wrong_is_not_a_prompt_that_is_too_long(endpoint: Endpoint, error: str) -> None:
    endpoint.respond = lambda handler, n: handler.send(400, json.dumps({"error": error}).encode())
    assert not ask(engine(endpoint))[0].is_too_long


def test_a_dead_endpoint_is_given_up_early() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed_again:
        port = closed_again.getsockname()[1]
    dead = OpenAIEngine(f"http://127.0.0.1:{port}", "m", concurrency=2, max_retries=1, backoff_s=0.01)
    answers = ask(dead, n=30)
    assert all(answer.error for answer in answers)
    assert "ConnectError" in answers[0].error
    assert sum("not tried, since 3 requests in a row failed" in answer.error for answer in answers) >= 25


def test_an_endpoint_that_never_accepted_a_connection_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed_again:
        port = closed_again.getsockname()[1]
    dead = OpenAIEngine(f"http://127.0.0.1:{port}", "m", max_retries=1000, backoff_s=0.01)
    answers = ask(dead, n=2)
    assert [answer.error.endswith("(tried 2 times)") for answer in answers] == [True, True]


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_wrong_key_or_model_ends_it_at_once(endpoint: Endpoint, status: int) -> None:
    endpoint.respond = lambda handler, n: handler.send(status, f"no such key: {KEY}".encode())
    with pytest.raises(UserError, match=rf"model 'm': HTTP {status}.*OPENAI_API_KEY, which is set") as refused:
        ask(engine(endpoint, concurrency=1), n=20)
    assert KEY not in str(refused.value)
    assert len(endpoint.seen) < 20


# --- the key


def test_the_key_is_in_no_text_about_it(endpoint: Endpoint, caplog: pytest.LogCaptureFixture) -> None:
    endpoint.respond = lambda handler, n: handler.send(500, f"{KEY} failed".encode())
    with caplog.at_level(logging.DEBUG):
        subject = engine(endpoint)
        (answer,) = ask(subject)
    assert "(the key) failed" in answer.error
    assert KEY not in answer.error + repr(subject) + repr(vars(subject)) + caplog.text


def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-\nsecret")
    with pytest.raises(UserError, match="OPENAI_API_KEY") as refused:
        ask(engine(endpoint))
    assert "secret" not in str(refused.value)


# --- addresses


def test_the_model_follows_a_hash_sign() -> None:
    subject = OpenAIEngine.from_url("http://localhost:8000/v1/#org/model")
    assert (subject.base_url, subject.model) == ("http://localhost:8000/v1", "org/model")


@pytest.mark.parametrize(
    "url", ["localhost:8000/v1#m", "ftp://host/v1#m", "http:///v1#m", "http://host/v1", "http://host:x/v1#m", "", "#m"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(UserError, match="endpoint"):
        OpenAIEngine.from_url(url)


@pytest.mark.parametrize("url", ["http://user:secret@host/v1#m", "https://host/v1?key=secret#m"])
def test_an_address_with_a_secret_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(UserError, match="OPENAI_API_KEY") as refused:
        OpenAIEngine.from_url(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("bad", [{"concurrency": 0}, {"max_retries": -1}, {"timeout_s": 0.0}])
def test_numbers_out_of_range_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        OpenAIEngine("http://host/v1", "m", **bad)


# --- life


def test_leaving_early_stops_asking(endpoint: Endpoint) -> None:
    def respond(handler: Handler, n: int) -> None:
        time.sleep(0 if n == 0 else 0.3)
        handler.say("4")

    endpoint.respond = respond
    answers = engine(endpoint, concurrency=1).answers([CHAT] * 50, Sampling())
    next(answers)
    started = time.monotonic()
    answers.close()
    assert time.monotonic() - started < 1
    assert len(endpoint.seen) <= 2
    assert not [thread for thread in threading.enumerate() if thread.name == "background"]


def test_it_works_inside_a_running_event_loop(endpoint: Endpoint) -> None:
    import asyncio

    async def notebook() -> list[Answer]:
        return ask(engine(endpoint))

    assert asyncio.run(notebook())[0].text == "4"
