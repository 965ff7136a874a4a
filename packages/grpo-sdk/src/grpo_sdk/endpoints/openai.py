"""Any OpenAI-compatible endpoint as a sampler of texts.

It serves evaluation and opponents only: an endpoint gives texts, not the token ids that training needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from grpo_sdk.endpoints.background import gather_or_cancel, stream_from_thread
from grpo_sdk.endpoints.base import Sampling
from grpo_sdk.endpoints.endpoint import BACKOFF_S, MAX_REPLY_BYTES, Answer, EndpointClient, failed_answer
from grpo_sdk.task.marks import cut_at_stop
from grpo_sdk.task.row import Prompt

__all__ = ["MAX_REPLY_BYTES", "Answer", "OpenAIEngine"]

MIN_FAILURES_TO_GIVE_UP = 3
"""Requests in a row that must fail for good before the rest of a batch is not tried; at least the concurrency."""


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
        self._client = EndpointClient(
            base_url,
            model,
            concurrency=concurrency,
            timeout_s=timeout_s,
            max_retries=max_retries,
            api_key_env=api_key_env,
            backoff_s=backoff_s,
        )
        self.base_url, self.model = self._client.base_url, model
        self._concurrency = concurrency

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

    def answers(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        stop: Sequence[str] = (),
        seeds: Sequence[int] | None = None,
    ) -> Iterator[tuple[int, Answer]]:
        """Ask one completion for each prompt; yield (index, answer) as each arrives, in any order.

        What fails for good is an answer with an `error`. When several in a row do, the rest is not tried.

        Args:
            prompts: Text, or messages; a last message by the assistant is a prefill (vLLM and SGLang continue it).
            sampling: Sampling settings.
            stop: Strings that end a completion.
            seeds: One per prompt, for endpoints that honour them.

        Raises:
            UserError: the endpoint refuses the key (401, 403) or knows no such model or path (404).
        """
        bodies = [
            self._client.body(prompt, sampling, None if seeds is None else seeds[index])
            for index, prompt in enumerate(prompts)
        ]
        key = self._client.key()

        async def ask_all(put: Callable[[tuple[int, Answer]], None]) -> None:
            slots, given_up = asyncio.Semaphore(self._concurrency), _GivenUp(self._concurrency)
            async with self._client.session(key) as client:

                async def ask(index: int) -> None:
                    async with slots:
                        answer = given_up.answer or await self._client.ask(client, *bodies[index], key)
                        answer = _cut(_with_thought(answer, prompts[index]), stop)
                        given_up.see(answer)
                        put((index, answer))

                await gather_or_cancel(ask(index) for index in range(len(bodies)))

        yield from stream_from_thread(ask_all)


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
    return replace(answer, text=text, finish_reason="stop") if stopped else answer
