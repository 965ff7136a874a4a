"""A model that completes prompts, for what is neither training nor evaluation: a game to watch, an exact policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import count
from typing import Any

from grpo_core.engines.native import NativeEngine
from grpo_core.evaluation.candidate import EngineSampler
from grpo_core.evaluation.sampling import (
    EndpointSampler,
    Question,
    Sampled,
    Sampler,
    ToolForm,
    check_tool_options,
)
from grpo_core.evaluation.surprisal import certainty
from grpo_core.policy.load import load_policy
from grpo_core.policy.policy import Policy
from grpo_sdk.chat import ToolFormat, choose_format, encode_prompt
from grpo_sdk.endpoints.base import SampleKey, Sampling
from grpo_sdk.endpoints.openai import OpenAIEngine
from grpo_sdk.errors import InfrastructureError, UserError
from grpo_sdk.task.row import Prompt
from grpo_sdk.task.tools.calls import Reading
from grpo_sdk.task.tools.tool import Tool, tools_of


class Completer:
    """A model in this process or at an endpoint: `Completer("tiny")(["57 + 38 ="])` -> `[" 95"]`.

    Args:
        model: Embedded name, local folder, GGUF file, hub id, or an endpoint, `http://host:port/v1#model`.
        adapter: A PEFT adapter to put on it.
        device: Device of the model.
        precision: Floating-point type of the model's products.
        max_completion_length: Tokens per completion.
        temperature: 0 is greedy.
        stop: Strings that end a completion; the text keeps them.
        seed: Seed of sampling above temperature 0: the n-th call's completions depend on it, n and their place alone.
        tool_choice: At an endpoint: `auto`, `none`, `required`, or the tool that `answer` must call.
        tool_form: How an endpoint is told of tools: its own `tools` (native), or a message of the system (text).

    Raises:
        UserError: no such model, adapter or device, an adapter for an endpoint, or what is for endpoints without one.
    """

    def __init__(
        self,
        model: str,
        *,
        adapter: str | None = None,
        device: str = "auto",
        precision: str = "auto",
        max_completion_length: int = 256,
        temperature: float = 0.0,
        stop: tuple[str, ...] = (),
        seed: int = 0,
        tool_choice: str | None = None,
        tool_form: ToolForm = "native",
    ) -> None:
        is_endpoint = OpenAIEngine.is_url(model)
        check_tool_options(tool_choice, tool_form, is_endpoint=is_endpoint)
        self._sampling = Sampling(temperature, max_completion_length=max_completion_length)
        self._stop, self._seed, self._calls = stop, seed, count()
        self._policy: Policy | None = None
        if not is_endpoint:
            self._policy = load_policy(model, adapter=adapter, device=device, precision=precision)
            tokenizer = self._policy.tokenizer
            self._sampler: Sampler = EngineSampler(NativeEngine(self._policy.model.eval(), tokenizer), tokenizer)
        elif adapter is not None:
            raise UserError(f"adapter={adapter!r}: {model} is an endpoint, which has to serve the model with it.")
        else:
            self._sampler = EndpointSampler(OpenAIEngine.from_url(model), tool_choice=tool_choice, tool_form=tool_form)

    def logprobs(self, prompts: Sequence[Prompt], completions: Sequence[str]) -> list[float]:
        """Log-probability, in nats, of answering each prompt with exactly this completion and ending it there.

        At temperature 1. A stop string ends a completion by itself; any other ends with the end-of-sequence token.

        Raises:
            UserError: the model is at an endpoint, which does not tell them.
        """
        if self._policy is None:
            raise UserError("logprobs() needs a model in this process: endpoints do not tell those of a given text.")
        tokenizer = self._policy.tokenizer
        end = () if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,)
        answers = [
            (
                *tokenizer(text, add_special_tokens=False)["input_ids"],
                *(() if text.endswith(self._stop) else end),
            )
            for text in completions
        ]
        encoded = [encode_prompt(tokenizer, prompt) for prompt in prompts]
        measured = certainty(self._policy, encoded, answers)
        return [-numbers.surprisal.mean * len(answer) for numbers, answer in zip(measured, answers, strict=True)]

    def __call__(self, prompts: Sequence[Prompt]) -> list[str]:
        """The completions, in the order of the prompts.

        Raises:
            UserError: a prompt does not fit the model's context.
            InfrastructureError: an endpoint does not answer.
        """
        return [answer.text for answer in self._answers(prompts)]

    def answer(self, prompts: Sequence[Prompt], tools: Sequence[Callable[..., Any]]) -> list[Reading]:
        """What the model says to each prompt that may call tools: text, thinking, and the calls, which nobody has made.

        Args:
            prompts: All text, or all messages, in which calls and results may stand.
            tools: Functions marked with `@tool`.

        Raises:
            UserError: as above, or a function is no tool.
            InfrastructureError: as above.
        """
        described = tools_of(tuple(tools), None)
        form = None
        if self._policy is not None and prompts:
            form = choose_format(self._policy.tokenizer, described, prompts[0])
        return [
            answer.reading
            or (Reading(answer.text) if form is None else form.read(answer.prompt_ids, answer.completion))
            for answer in self._answers(prompts, described, form)
        ]

    def _answers(
        self, prompts: Sequence[Prompt], tools: tuple[Tool, ...] = (), form: ToolFormat | None = None
    ) -> list[Sampled]:
        step, stop = next(self._calls), self._stop if form is None else (*self._stop, *form.stop)
        questions = [
            Question(
                prompt,
                SampleKey(self._seed, step, str(place), 0),
                stop,
                prompt_ids=None if form is None else form.first(prompt),
                tools=tools,
            )
            for place, prompt in enumerate(prompts)
        ]
        with nullcontext() if self._policy is None else self._policy.precision():
            answers = dict(self._sampler.sample(questions, self._sampling))
        if failed := [answer.error for answer in answers.values() if answer.error]:
            raise InfrastructureError(f"{len(failed)} of {len(prompts)} prompts have no completion: {failed[0]}")
        return [answers[place] for place in range(len(prompts))]
