import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from local_endpoint import Reply, Server, serving

from grpo_sdk.endpoints.base import Sampling
from grpo_sdk.endpoints.openai import Answer, OpenAIEngine
from grpo_sdk.errors import UserError
from grpo_sdk.task.marks import cut_at_stop
from grpo_sdk.task.row import Message

KEY = "sk-very-secret"
CHAT = (Message(role="user", content="2 + 2?"),)


def say(text: str | None, finish_reason: str = "stop", **message: Any) -> Callable[[dict[str, Any]], Reply]:
    """A server that answers every request so."""

    def respond(request: dict[str, Any]) -> Reply:
        is_text = request["path"] == "/v1/completions"
        place = {"text": text} if is_text else {"message": {"content": text, **message}}
        reply = {"choices": [{**place, "finish_reason": finish_reason}], "usage": {"completion_tokens": 3}}
        return 200, json.dumps(reply).encode()

    return respond


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving(say("4")) as server:
        yield server


def engine(endpoint: Server, **options: Any) -> OpenAIEngine:
    return OpenAIEngine(endpoint.url, "m", **{"backoff_s": 0.01, "max_retries": 2, **options})


def ask(
    engine: OpenAIEngine, n: int = 1, prompt: Any = CHAT, sampling: Sampling | None = None, **kw: Any
) -> list[Answer]:
    answers = dict(engine.answers([prompt] * n, sampling or Sampling(max_completion_length=5), **kw))
    return [answers[index] for index in range(n)]


# --- requests


def test_messages_go_to_chat_and_text_to_completions(endpoint: Server) -> None:
    assert ask(engine(endpoint)) == ask(engine(endpoint), prompt="\ud800") == [Answer("4", "stop", tokens=3)]
    sent = {"model": "m", "temperature": 1.0, "max_tokens": 5, "key": f"Bearer {KEY}"}
    assert endpoint.seen == [
        {**sent, "path": "/v1/chat/completions", "messages": [dict(CHAT[0])]},
        {**sent, "path": "/v1/completions", "prompt": "\ud800"},  # a lone surrogate
    ]


def test_what_was_set_is_sent(endpoint: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    options = {"temperature": 0.0, "top_p": 0.5, "top_k": 3, "min_p": 0.1}
    sampling = Sampling(**options, max_completion_length=7)
    ask(engine(endpoint), n=2, prompt="?", sampling=sampling, seeds=[11, 12])
    sent = sorted(endpoint.seen, key=lambda body: body["seed"])
    expected = {"model": "m", "prompt": "?", "path": "/v1/completions", "key": "", "max_tokens": 7, **options}
    assert sent == [expected | {"seed": 11}, expected | {"seed": 12}]


# --- answers


def test_answers_carry_their_index_whatever_the_order(endpoint: Server) -> None:
    others = threading.Event()

    def respond(request: dict[str, Any]) -> Reply:
        if request["prompt"] == "0":
            others.wait(10)
        return say(request["prompt"])(request)

    endpoint.respond = respond
    arrived = []
    for index, answer in engine(endpoint).answers([str(i) for i in range(6)], Sampling()):
        arrived.append((index, answer.text))
        if len(arrived) == 5:
            others.set()  # the slow one did not hold up the others
    assert sorted(arrived) == [(i, str(i)) for i in range(6)]
    assert arrived[-1] == (0, "0")


def test_the_text_ends_right_after_the_first_complete_stop_string(endpoint: Server) -> None:
    endpoint.respond = say("a</x>b\nc", finish_reason="length")
    assert ask(engine(endpoint), stop=("\n", "</x>")) == [Answer("a</x>", "stop", tokens=3)]
    assert ask(engine(endpoint)) == [Answer("a</x>b\nc", "length", tokens=3)]
    assert cut_at_stop("abcd", ("bcd", "c")) == ("abc", True)  # "c" is complete before "bcd"
    assert cut_at_stop("abcd", ("x",)) == ("abcd", False)
    # A stop string in thinking, which the prompt may have begun, ends nothing.
    for text in ("<think>a x b</think>5x", "a x b</think>5x", "<think>x</think>5 <think>y</think>5x", "<think>x"):
        assert cut_at_stop(f"{text}y", ("x",)) == ((text, True) if text.endswith("5x") else (f"{text}y", False))
    assert cut_at_stop("5x <think>y</think>6x", ("x",)) == ("5x", True)


def test_an_empty_text_is_a_completion_and_no_text_is_none(endpoint: Server) -> None:
    endpoint.respond = say("")
    assert ask(engine(endpoint)) == [Answer("", "stop", tokens=3)]
    endpoint.respond = say(None)
    assert ask(engine(endpoint)) == [Answer("", "stop", error="a reply without text")]
    assert len(endpoint.seen) == 2  # not repeated: drawing until there is a text would choose among completions


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize(("text", "finish_reason", "thought", "expected"), [
    ("4", "stop", "2 and 2", "<think>2 and 2</think>4"),
    ("4", "stop", {"text": "2 and 2"}, "4"),
    (None, "stop", "2 and 2", "<think>2 and 2</think>"),
    (None, "length", "2 and", "<think>2 and"),  # the limit ended it
    (None, "length", None, ""),  # an endpoint that keeps thoughts to itself
])  # fmt: skip
def test_what_a_reasoning_model_thought_is_part_of_its_completion(
    endpoint: Server, field: str, text: str | None, finish_reason: Any, thought: Any, expected: str
) -> None:
    endpoint.respond = say(text, finish_reason, **{field: thought})
    assert ask(engine(endpoint)) == [Answer(expected, finish_reason, tokens=3)]
    prefilled = (*CHAT, Message(role="assistant", content="<think>\n"))
    assert ask(engine(endpoint), prompt=prefilled)[0].text == expected.removeprefix("<think>")
    body = endpoint.seen[-1]  # which is continued
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)


def test_no_more_requests_than_allowed_are_in_flight(endpoint: Server) -> None:
    together = threading.Barrier(3, timeout=10)

    def respond(request: dict[str, Any]) -> Reply:
        together.wait()
        return say("4")(request)

    endpoint.respond = respond
    ask(engine(endpoint, concurrency=3), n=12)
    assert endpoint.most_in_flight == 3


# --- failures


@pytest.mark.parametrize("failure", [(429, b"busy"), (503, b""), (200, b'{"choices": [{"message": {"cont'), (200, b"")])
def test_what_may_succeed_yet_is_repeated(endpoint: Server, failure: Reply) -> None:
    endpoint.respond = lambda request: failure if len(endpoint.seen) < 3 else say("4")(request)
    assert ask(engine(endpoint))[0].text == "4"
    assert len(endpoint.seen) == 3


@pytest.mark.parametrize(("error", "is_too_long"), [
    ('{"error": {"message": "...", "code": "context_length_exceeded"}}', True),  # OpenAI
    ('{"message": "This model\'s maximum context length is 512 tokens. However, you requested 900"}', True),  # vLLM
    ('{"message": "The input (900 tokens) is longer than the model\'s context length (512)."}', True),  # SGLang
    ('{"error": {"type": "exceed_context_size_error", "message": "..."}}', True),  # llama.cpp
    ('{"error": "Input validation error: `inputs` is too long"}', True),
    ('{"error": "unknown argument top_k"}', False),
    ('{"error": "max_tokens is too large: 99999"}', False),
])  # fmt: skip
def test_a_prompt_refused_for_its_length_is_told_apart(endpoint: Server, error: str, is_too_long: bool) -> None:
    endpoint.respond = lambda request: (400, error.encode())
    answers = ask(engine(endpoint, concurrency=1), n=5)
    assert all(answer.is_too_long == is_too_long and "HTTP 400" in answer.error for answer in answers[:3])
    assert len(endpoint.seen) == (5 if is_too_long else 3)  # it is not down, so that the rest is tried


def test_a_dead_endpoint_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed_again:
        port = closed_again.getsockname()[1]
    dead = OpenAIEngine(f"http://127.0.0.1:{port}", "m", concurrency=2, max_retries=1000, backoff_s=0.01)
    answers = ask(dead, n=30)
    assert "ConnectError" in answers[0].error and answers[0].error.endswith("(tried 2 times)")
    assert all(answer.error for answer in answers)
    assert sum("not tried, since 3 requests in a row failed" in answer.error for answer in answers) >= 25


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_wrong_key_or_model_ends_it_at_once(endpoint: Server, status: int) -> None:
    endpoint.respond = lambda request: (status, f"no such key: {KEY}".encode())
    with pytest.raises(UserError, match=rf"model 'm': HTTP {status}.*OPENAI_API_KEY, which is set") as refused:
        ask(engine(endpoint, concurrency=1), n=20)
    assert KEY not in str(refused.value)
    assert len(endpoint.seen) < 20


# --- the key


def test_the_key_is_in_no_error(endpoint: Server, caplog: pytest.LogCaptureFixture, monkeypatch: Any) -> None:
    endpoint.respond = lambda request: (500, f"\x1b[31m{KEY} failed\n".encode())
    with caplog.at_level(logging.DEBUG):
        subject = engine(endpoint)
        (answer,) = ask(subject)
    assert answer.text == ""
    assert "HTTP 500: [31m(the key) failed (tried 3 times)" in answer.error  # no control characters
    assert KEY not in answer.error + repr(subject) + repr(vars(subject)) + caplog.text
    monkeypatch.setenv("OPENAI_API_KEY", "sk-\nsecret")  # which no header can carry
    with pytest.raises(UserError, match="OPENAI_API_KEY") as refused:
        ask(engine(endpoint))
    assert "secret" not in str(refused.value)


# --- addresses


@pytest.mark.parametrize(
    "url", ["localhost:8000/v1#m", "ftp://host/v1#m", "http:///v1#m", "http://host/v1", "http://host:x/v1#m", "", "#m"]
)
def test_the_model_follows_a_hash_sign_and_what_is_no_address_is_refused(url: str) -> None:
    subject = OpenAIEngine.from_url("http://localhost:8000/v1/#org/model")
    assert (subject.base_url, subject.model) == ("http://localhost:8000/v1", "org/model")
    with pytest.raises(UserError, match="endpoint"):
        OpenAIEngine.from_url(url)


@pytest.mark.parametrize("url", ["http://user:secret@host/v1#m", "https://host/v1?key=secret#m"])
def test_an_address_with_a_secret_is_refused_without_showing_it_and_so_are_numbers_out_of_range(url: str) -> None:
    with pytest.raises(UserError, match="OPENAI_API_KEY") as refused:
        OpenAIEngine.from_url(url)
    assert "secret" not in str(refused.value)
    for bad in ({"concurrency": 0}, {"max_retries": -1}, {"timeout_s": 0.0}):
        with pytest.raises(UserError, match=next(iter(bad))):
            OpenAIEngine("http://host/v1", "m", **bad)  # type: ignore[arg-type] # options of it


# --- life


def test_leaving_early_stops_asking(endpoint: Server) -> None:
    left = threading.Event()

    def respond(request: dict[str, Any]) -> Reply:
        if len(endpoint.seen) > 1:
            left.wait(5)
        return say("4")(request)

    endpoint.respond = respond
    answers = engine(endpoint, concurrency=1).answers([CHAT] * 50, Sampling())
    next(answers)
    started = time.monotonic()
    answers.close()
    assert time.monotonic() - started < 3
    left.set()
    assert len(endpoint.seen) <= 2
    assert not [thread for thread in threading.enumerate() if thread.name == "background"]


def test_it_works_inside_a_running_event_loop(endpoint: Server) -> None:
    async def notebook() -> list[Answer]:
        return ask(engine(endpoint))

    assert asyncio.run(notebook())[0].text == "4"
