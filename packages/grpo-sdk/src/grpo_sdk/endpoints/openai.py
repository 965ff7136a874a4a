"""OpenAI-compatible endpoints: requests with bounded replies and repetitions, and a sampler of texts.

An endpoint serves evaluation, opponents and judges only: it gives texts, not the token ids that training needs.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import os
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from http.cookiejar import CookieJar, DefaultCookiePolicy
from itertools import count, takewhile
from typing import Annotated, Any

import httpx2
from pydantic import BaseModel, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from grpo_sdk.endpoints.background import gather_or_cancel, stream_from_thread
from grpo_sdk.endpoints.base import Sampling
from grpo_sdk.endpoints.completion import FinishReason
from grpo_sdk.errors import UserError
from grpo_sdk.task.marks import cut_at_stop
from grpo_sdk.task.row import Message, Prompt

MAX_REPLY_BYTES = 4 * 2**20
"""Longest reply read: one completion of 32,000 tokens is about 0.2 MiB, escaped JSON included."""

MAX_PROMPT_TOKENS = 2**31
"""Largest count of prompt tokens that is believed."""

MAX_WAIT_S = 60.0
"""Longest pause before another attempt, whatever `Retry-After` asks for."""

BACKOFF_S = 0.5
"""Mean pause before the first repetition; it doubles with each."""

CONNECT_RETRIES = 1
"""Repetitions while nothing has ever accepted a connection; a server that is only restarted has answered before."""

MIN_FAILURES_TO_GIVE_UP = 3
"""Requests in a row that must fail for good before the rest of a batch is not tried; at least the concurrency."""

_LENGTH_FIELDS = {"api.openai.com": "max_completion_tokens"}  # which has retired what everybody else understands
_REPEATED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_WRONG_ADDRESS = frozenset({401, 402, 403, 404})
_REFUSED = frozenset({400, 413, 422})
_TOO_LONG = re.compile(
    r"context[ _](?:length|size|window)|(?:prompt|input) is too long|`inputs` (?:tokens|is too long)"
)
"""Phrases, in lower case, with which OpenAI, vLLM, SGLang, llama.cpp and TGI refuse a prompt that does not fit."""
_NO_TOOLS = re.compile(r"(?=.*\btools?(?:_choice)?\b).*(?:requir|support|permitted|unrecognized|unknown|extra)")
"""How they refuse `tools`, in lower case."""
_HOW_TO_TAKE_TOOLS = (
    "It refuses the task's tools. vLLM takes them with --enable-auto-tool-choice and --tool-call-parser, llama.cpp "
    'with --jinja; with --tool-form text (tool_form="text") a message describes them instead, and without '
    "--tool-choice (tool_choice=None) the endpoint chooses."
)
_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]")
"""What no endpoint takes in the name of a tool, and a model may write."""


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """Tools that a model may call.

    Attributes:
        specs: Each in OpenAI's form: `{"type": "function", "function": {"name", "description", "parameters"}}`.
        choice: `auto`, `none`, `required`, or the name of the tool that it must call; None leaves it to the endpoint.
    """

    specs: Sequence[Mapping[str, Any]]
    choice: str | None = None

    def fields(self) -> dict[str, Any]:
        """The fields of a request."""
        named = self.choice not in (None, "auto", "none", "required")
        choice = {"type": "function", "function": {"name": self.choice}} if named else self.choice
        return {"tools": list(self.specs), **({} if choice is None else {"tool_choice": choice})}


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of an endpoint to one request.

    Attributes:
        text: The completion; it ends right after a stop string, if one ended it. Empty if it failed.
        finish_reason: `stop`, or `length` (truncated).
        tokens: Length as the endpoint counts it, if it does.
        error: Why there is no completion, or an empty string. Never a statement about a model's skill.
        is_too_long: Whether the endpoint refused the prompt for its length.
        prompt_tokens: Length of the prompt as the endpoint counts it, if it does.
        thought: What the model thought before the text, where the endpoint sends it apart; `OpenAIEngine` puts it into
            the text.
        calls: Calls of tools as the endpoint sends them, each of which may be anything.
    """

    text: str
    finish_reason: FinishReason
    tokens: int | None = None
    error: str = ""
    is_too_long: bool = False
    prompt_tokens: int | None = None
    thought: str = ""
    calls: tuple[Any, ...] = ()


Admission = Callable[[], AbstractAsyncContextManager[object]]
"""Opens a context within which one attempt of a request is made; it may wait before."""


class OpenAIEngine:
    """Asks an OpenAI-compatible endpoint (OpenAI, vLLM, llama.cpp, Ollama, SGLang …).

    Messages go to `/chat/completions`, text to `/completions`. Rate limits, server errors and broken connections are
    repeated with exponential pauses and jitter; where nothing has ever answered, only `CONNECT_RETRIES` times. Stop
    strings are matched here, not sent: endpoints remove them from the text and most do not say which it was, while our
    completions keep theirs.

    Args:
        base_url: Everything before `/chat/completions`, e.g. `http://localhost:8000/v1`.
        model: Name of the model at the endpoint.
        concurrency: Requests in flight.
        timeout_s: Limit of one attempt, from connecting to the last byte.
        max_retries: Repetitions of a request that may succeed yet.
        api_key_env: Environment variable that holds the key, if one is needed. It is read when asking and kept nowhere.
        backoff_s: Mean pause before the first repetition.

    Raises:
        UserError: the URL is no plain http(s) address, or a number is out of range.

    Attributes:
        base_url: Address without the path of a request.
        model: Name of the model at the endpoint.
        has_answered: Whether the endpoint has accepted a connection and answered it.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        concurrency: int = 8,
        timeout_s: float = 60.0,
        max_retries: int = 5,
        api_key_env: str = "OPENAI_API_KEY",
        backoff_s: float = BACKOFF_S,
    ) -> None:
        try:
            url = httpx2.URL(base_url)
        except httpx2.InvalidURL as error:
            raise UserError(f"endpoint: {error}; give http://host:port/v1#model.") from None
        if url.userinfo or url.query or url.fragment:  # and do not repeat what may be a secret
            raise UserError(
                f"endpoint {url.scheme}://{url.host}/… holds a user, a query or a second '#'; "
                f"a key belongs into the environment variable {api_key_env}."
            )
        if url.scheme not in ("http", "https") or not url.host:
            raise UserError(f"endpoint {base_url!r} is no address; give http://host:port/v1#model.")
        if not model:
            raise UserError(f"endpoint {base_url!r} names no model; give {base_url}#model.")
        if concurrency < 1 or max_retries < 0 or not timeout_s > 0:
            raise UserError(
                f"endpoint: concurrency={concurrency} must be at least 1, max_retries={max_retries} at least 0, and "
                f"timeout_s={timeout_s} above 0."
            )
        self.base_url, self.model = base_url.rstrip("/"), model
        self._length_field = _LENGTH_FIELDS.get(url.host, "max_tokens")
        self._concurrency, self._timeout_s, self._max_retries = concurrency, timeout_s, max_retries
        self._api_key_env, self._backoff_s = api_key_env, backoff_s
        self.has_answered = False
        self._has_taken_tools = False
        self._thought_field = ""  # what the endpoint calls a thought that it sends apart

    @staticmethod
    def is_url(name: str) -> bool:
        """Whether the name of a model or engine is the address of an endpoint."""
        return name.startswith(("http://", "https://"))

    @classmethod
    def from_url(cls, url: str, **options: Any) -> OpenAIEngine:
        """Make one from `http://host:port/v1#model`; options as for the constructor."""
        base_url, _, model = url.partition("#")
        return cls(base_url, model, **options)

    def __repr__(self) -> str:
        return f"OpenAIEngine({self.base_url!r}, {self.model!r})"

    def key(self) -> str:
        """The key in the environment; empty where there is none.

        Raises:
            UserError: no HTTP header can carry it.
        """
        key = os.environ.get(self._api_key_env, "").strip()
        if not (key.isascii() and key.isprintable()):
            raise UserError(f"the key in {self._api_key_env} has characters that no HTTP header can carry.")
        return key

    def session(self, key: str) -> httpx2.AsyncClient:
        """The client for a batch of requests."""
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        cookies = CookieJar(DefaultCookiePolicy(allowed_domains=[]))  # none are kept or sent back
        limits = httpx2.Limits(max_connections=self._concurrency)
        return httpx2.AsyncClient(headers=headers, cookies=cookies, timeout=None, limits=limits)

    def body(
        self, prompt: Prompt, sampling: Sampling, seed: int | None = None, tools: OfferedTools | None = None
    ) -> tuple[str, bytes]:
        """Path and content of a request for one completion; see `answers`."""
        fields: dict[str, Any] = {
            "model": self.model,
            "temperature": sampling.temperature,
            self._length_field: sampling.max_completion_length,
        }
        # Only what was set is sent: endpoints differ in what they know beyond these.
        fields |= {"top_p": sampling.top_p} if sampling.top_p < 1 else {}
        fields |= {"top_k": sampling.top_k} if sampling.top_k else {}
        fields |= {"min_p": sampling.min_p} if sampling.min_p else {}
        fields |= {"seed": seed} if seed is not None else {}
        if isinstance(prompt, str):
            path, fields["prompt"] = "/completions", prompt
        else:
            path, fields["messages"] = "/chat/completions", sent_messages(prompt, self._thought_field)
            fields |= {} if tools is None else tools.fields()
            if prompt[-1]["role"] == "assistant":
                fields |= {"continue_final_message": True, "add_generation_prompt": False}
        return path, json.dumps(fields).encode()  # not orjson: texts may hold lone surrogates, which this escapes

    async def ask(
        self,
        client: httpx2.AsyncClient,
        path: str,
        body: bytes,
        key: str,
        admit: Admission = nullcontext,
        *,
        has_tools: bool = False,
    ) -> Answer:
        """Make a request, and repeat it where it may succeed yet; what fails for good is an answer with an `error`.

        Args:
            client: That of `session`.
            path: Path of the request.
            body: Its content.
            key: The key, which no message repeats.
            admit: Opens the context of each attempt; waiting in it does not count against the attempt's time.
            has_tools: Whether the request offers tools.

        Raises:
            UserError: the endpoint refuses the key (401, 403), wants to be paid (402), knows no such model or path
                (404), or takes no tools.
        """
        retries = self._max_retries
        for attempt in count():
            try:
                async with admit(), asyncio.timeout(self._timeout_s):
                    return await self._post(client, path, body, key, has_tools=has_tools)
            except TimeoutError:
                why, asked_s = f"no answer within {self._timeout_s:g} s", 0.0
            except (httpx2.TransportError, httpx2.DecodingError) as error:
                why, asked_s = f"{type(error).__name__}: {excerpt(str(error), key)}", 0.0
                if isinstance(error, httpx2.ConnectError) and not self.has_answered:
                    retries = min(retries, CONNECT_RETRIES)
            except _TryAgain as error:
                why, asked_s = str(error), error.retry_after_s
            if attempt >= retries:
                break
            pause_s = self._backoff_s * 2**attempt * random.uniform(0.5, 1.5)  # jitter: requests failed together
            await asyncio.sleep(min(max(pause_s, asked_s), MAX_WAIT_S))
        return failed_answer(f"{self.base_url}: {why} (tried {attempt + 1} times)")

    async def _post(self, client: httpx2.AsyncClient, path: str, body: bytes, key: str, *, has_tools: bool) -> Answer:
        data = bytearray()
        async with client.stream("POST", self.base_url + path, content=body) as response:
            self.has_answered = True
            status, coding = response.status_code, response.headers.get("Content-Encoding", "").strip()
            # 64 KiB may unpack to gigabytes before its size could be checked.
            if coding.lower() not in ("", "identity"):
                return failed_answer(f"{self.base_url}: a reply in {excerpt(coding, key)}, which was not asked for")
            async for chunk in response.aiter_raw():
                data += chunk
                if len(data) > MAX_REPLY_BYTES:
                    return failed_answer(f"{self.base_url}: a reply of more than {MAX_REPLY_BYTES} bytes")
        if status == httpx2.codes.OK:
            self._has_taken_tools |= has_tools
            return self._parse(bytes(data), key, has_tools=has_tools)
        why = f"HTTP {status}: {excerpt(data.decode('utf-8', 'replace'), key)}"
        # Later on, it is what a conversation holds that is refused. llama.cpp says 500.
        if has_tools and not self._has_taken_tools and status not in _WRONG_ADDRESS and _NO_TOOLS.search(why.lower()):
            raise UserError(f"endpoint {self.base_url}{path}, model {self.model!r}: {why}. {_HOW_TO_TAKE_TOOLS}")
        if status in _REPEATED:
            raise _TryAgain(why, _retry_after_s(response.headers.get("Retry-After", "")))
        if status in _WRONG_ADDRESS:
            hint = f"The key comes from {self._api_key_env}, which is {'set' if key else 'not set'}."
            raise UserError(f"endpoint {self.base_url}{path}, model {self.model!r}: {why}. {hint}")
        is_too_long = status in _REFUSED and _TOO_LONG.search(why.lower()) is not None
        return Answer("", "stop", error=f"{self.base_url}: {why}", is_too_long=is_too_long)

    def _parse(self, data: bytes, key: str, *, has_tools: bool) -> Answer:
        try:
            reply = _Reply.model_validate_json(data)
        except ValidationError as error:
            # A cut-off reply may come whole the next time.
            why = f"{error.errors(include_url=False)[0]['msg']}: {excerpt(data.decode('utf-8', 'replace'), key, 100)}"
            raise _TryAgain(f"a reply that is no completion: {why}") from None
        if len(reply.choices) > 1:
            return failed_answer(f"the endpoint replied with {len(reply.choices)} completions, and one was requested")
        (choice,) = reply.choices
        message = choice.message or _Message(content=choice.text)
        calls = message.tool_calls or [] if has_tools else []
        if not isinstance(calls, list):
            return failed_answer("a reply whose tool_calls are no list")
        if has_tools and message.function_call is not None:
            return failed_answer("a reply with function_call, which was before tool_calls; take --tool-form text")
        if choice.finish_reason not in (None, "stop", "length", *(("tool_calls",) if has_tools else ())):
            return failed_answer(f"the endpoint ended the completion for {excerpt(repr(choice.finish_reason), '')}")
        finish: FinishReason = "length" if choice.finish_reason == "length" else "stop"
        field, thought = message.thought
        self._thought_field = field or self._thought_field
        text, usage = message.content, reply.usage or _Usage()
        if text is None and finish != "length" and not thought and not calls:
            # An empty text is a completion, also where all tokens went into a thought; none at all says nothing.
            return failed_answer("a reply without text")
        tokens, prompt_tokens = usage.completion_tokens, usage.prompt_tokens
        return Answer(text or "", finish, tokens, prompt_tokens=prompt_tokens, thought=thought, calls=tuple(calls))

    def answers(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        stop: Sequence[str] = (),
        seeds: Sequence[int] | None = None,
        tools: OfferedTools | None = None,
    ) -> Iterator[tuple[int, Answer]]:
        """Ask one completion for each prompt; yield (index, answer) as each arrives, in any order.

        What fails for good is an answer with an `error`. When several in a row do, the rest is not tried.

        Args:
            prompts: Text, or messages; a last message by the assistant is a prefill (vLLM and SGLang continue it).
            sampling: Sampling settings.
            stop: Strings that end a completion.
            seeds: One per prompt, for endpoints that honour them.
            tools: What the model may call; a prompt that is text is completed without.

        Raises:
            UserError: the endpoint refuses the key (401, 403), knows no such model or path (404), or takes no tools.
        """
        bodies = [
            self.body(prompt, sampling, None if seeds is None else seeds[index], tools)
            for index, prompt in enumerate(prompts)
        ]
        key = self.key()

        async def ask_all(put: Callable[[tuple[int, Answer]], None]) -> None:
            slots, given_up = asyncio.Semaphore(self._concurrency), _GivenUp(self._concurrency)
            async with self.session(key) as client:

                async def ask(index: int) -> None:
                    async with slots:
                        has_tools = tools is not None and not isinstance(prompts[index], str)
                        answer = given_up.answer or await self.ask(client, *bodies[index], key, has_tools=has_tools)
                        answer = _cut(_with_thought(answer, prompts[index]), stop)
                        given_up.see(answer)
                        put((index, answer))

                await gather_or_cancel(ask(index) for index in range(len(bodies)))

        yield from stream_from_thread(ask_all)


class _TryAgain(Exception):
    def __init__(self, why: str, retry_after_s: float = 0.0) -> None:
        super().__init__(why)
        self.retry_after_s = retry_after_s


class _Message(BaseModel):
    content: str | None = None
    reasoning_content: Any = None  # vLLM, SGLang, llama.cpp, DeepSeek
    reasoning: Any = None  # OpenRouter, Ollama, newer vLLM
    tool_calls: Any = None
    function_call: Any = None

    @property
    def thought(self) -> tuple[str, str]:
        """The field that holds a thought, and the thought."""
        found = {name: getattr(self, name) for name in ("reasoning_content", "reasoning")}
        return next(((name, each) for name, each in found.items() if isinstance(each, str) and each), ("", ""))


class _Choice(BaseModel):
    text: str | None = None
    message: _Message | None = None
    finish_reason: str | None = None


class _Usage(BaseModel):
    completion_tokens: int | None = Field(default=None, ge=0, le=MAX_REPLY_BYTES)
    prompt_tokens: int | None = Field(default=None, ge=0, le=MAX_PROMPT_TOKENS)


def _readable(usage: Any, read: ValidatorFunctionWrapHandler) -> _Usage | None:
    try:
        return read(usage)  # type: ignore[no-any-return]
    except ValidationError:
        return None  # a wrong count is no reason to lose a completion


class _Reply(BaseModel):
    choices: list[_Choice] = Field(min_length=1)
    usage: Annotated[_Usage | None, WrapValidator(_readable)] = None


def sent_messages(messages: Sequence[Message], thought_field: str) -> list[dict[str, Any]]:
    """Messages as endpoints take them: calls and results have ids, and arguments are text.

    Ids are ours, the same for the same conversation, of nine letters and digits, as Mistral wants them: endpoints may
    give none, or one twice. No endpoint takes a call without a result: one beside calls that have some was not run, and
    is left out; those of an example in a prompt, of which none has one, get an empty one. A thought goes back as it
    came: in its field, or in the text.

    Args:
        messages: The conversation.
        thought_field: Field of the endpoint's thoughts; empty where it sends none apart.
    """
    sent: list[dict[str, Any]] = []
    number, waiting = count(), iter(())
    for place, message in enumerate(messages):
        each: dict[str, Any] = {**message}
        thought, calls = each.pop("reasoning_content", ""), each.pop("tool_calls", ())
        if thought:
            text = f"<think>{thought}</think>{each['content']}"
            each |= {thought_field: thought} if thought_field else {"content": text}
        results = len(list(takewhile(lambda other: other["role"] == "tool", messages[place + 1 :])))
        if calls:
            each["tool_calls"] = [_sent_call(call["function"], next(number)) for call in calls[: results or None]]
            waiting = iter(each["tool_calls"])
        if each["role"] == "tool" and (call := next(waiting, None)):
            each |= _answers(call)
        sent.append(each)
        if calls and not results:
            sent += ({"role": "tool", "content": "", **_answers(call)} for call in each["tool_calls"])
    return sent


def _answers(call: Mapping[str, Any]) -> dict[str, str]:
    return {"tool_call_id": call["id"], "name": call["function"]["name"]}


def _sent_call(function: Mapping[str, Any], number: int) -> dict[str, Any]:
    name = _NO_NAME.sub("_", function["name"])[:64] or "unnamed"
    arguments = json.dumps(function["arguments"], ensure_ascii=False)
    return {"id": f"call{number:05d}", "type": "function", "function": {"name": name, "arguments": arguments}}


def failed_answer(error: str) -> Answer:
    """An answer that holds only the reason why there is none."""
    return Answer("", "stop", error=error)


def _retry_after_s(header: str) -> float:
    """Seconds that a `Retry-After` asks for: a number, or a date; 0 if it is neither."""
    if header.isascii() and header.isdigit():
        return float(header[:9])
    try:
        return email.utils.parsedate_to_datetime(header).timestamp() - time.time()
    except (ValueError, OverflowError):
        return 0.0


def excerpt(text: str, key: str, limit: int = 200) -> str:
    """The beginning of a text on one line, without control characters and without the key that it may repeat.

    Args:
        text: What the server said.
        key: The secret to be hidden; empty for none.
        limit: Most characters.
    """
    text = text.replace(key, "(the key)") if key else text
    line = "".join(char if char.isprintable() else " " for char in text[: 4 * limit])
    return " ".join(line.split())[:limit] or "(nothing)"


class _GivenUp:
    """Ends a batch early when the endpoint is down, instead of waiting out every request's repetitions."""

    def __init__(self, concurrency: int) -> None:
        self._limit = max(concurrency, MIN_FAILURES_TO_GIVE_UP)
        self._in_a_row = 0
        self.answer: Answer | None = None

    def see(self, answer: Answer) -> None:
        self._in_a_row = self._in_a_row + 1 if answer.error and not answer.is_too_long else 0
        if self._in_a_row == self._limit:
            self.answer = failed_answer(f"not tried, since {self._limit} requests in a row failed: {answer.error}")


def _with_thought(answer: Answer, prompt: Prompt) -> Answer:
    """Put the thought back before the text, as the model wrote both; one that the length limit ended stays open."""
    if not answer.thought:
        return answer
    prefill = "" if isinstance(prompt, str) or prompt[-1]["role"] != "assistant" else prompt[-1]["content"]
    opening = "" if prefill.rstrip().endswith("<think>") else "<think>"
    closing = "" if answer.finish_reason == "length" and not answer.text else "</think>"
    return replace(answer, text=f"{opening}{answer.thought}{closing}{answer.text}", thought="")


def _cut(answer: Answer, stop: Sequence[str]) -> Answer:
    text, stopped = cut_at_stop(answer.text, stop)
    return replace(answer, text=text, finish_reason="stop", calls=()) if stopped else answer
