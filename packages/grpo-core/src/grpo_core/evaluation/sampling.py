"""What an evaluation asks a model, what it answers, and how an endpoint is asked. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, cast, get_args

from grpo_core.evaluation.results import Certainty
from grpo_sdk.chat.json_calls import CLOSE, read_answer
from grpo_sdk.chat.text_form import in_text_form
from grpo_sdk.endpoints.base import SampleKey, Sampling
from grpo_sdk.endpoints.completion import Completion
from grpo_sdk.endpoints.openai import OfferedTools, OpenAIEngine
from grpo_sdk.episodes.opponents import endpoint_seed
from grpo_sdk.errors import UserError
from grpo_sdk.task.row import Message, Prompt
from grpo_sdk.task.tools.calls import Reading
from grpo_sdk.task.tools.tool import Tool


@dataclass(frozen=True, slots=True)
class Question:
    """One completion to sample.

    Attributes:
        prompt: Prompt of the completion.
        key: Key of its random numbers.
        stop: Strings that end the completion.
        max_completion_length: Tokens it may have, if fewer than the sampling's own limit.
        prompt_ids: Tokens of the prompt, where it goes on with what was sampled; None: it is encoded.
        conversation: Name of the conversation, as in a `Request`.
        tools: What the model may call, where an endpoint is asked.
    """

    prompt: Prompt
    key: SampleKey
    stop: tuple[str, ...] = ()
    max_completion_length: int | None = None
    prompt_ids: tuple[int, ...] | None = None
    conversation: str | None = None
    tools: tuple[Tool, ...] = ()


@dataclass(frozen=True, slots=True)
class Sampled:
    """Answer to a `Question`.

    Attributes:
        text: The completion; empty if it failed.
        length: Tokens; None where an endpoint does not count them.
        is_truncated: Whether the length limit ended it.
        prompt_ids: Tokens of the prompt; none from an endpoint.
        token_ids: Tokens of the completion; none from an endpoint.
        error: Why there is no completion, or an empty string. Never a statement about a model's skill.
        is_too_long: Whether the prompt fills the model's context.
        think_length: Tokens before `</think>`; None without this tag, and from an endpoint.
        sampled: The completion with its tokens; None from an endpoint.
        certainty: Surprisal and entropy, where the engine measured them.
        reading: What it says, from an endpoint that was asked with tools.
    """

    text: str
    length: int | None
    is_truncated: bool
    prompt_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    error: str = ""
    is_too_long: bool = False
    think_length: int | None = None
    sampled: Completion | None = field(default=None, compare=False)
    reading: Reading | None = None
    certainty: Certainty | None = None

    @property
    def completion(self) -> Completion:
        """The completion of an engine of this process."""
        assert self.sampled is not None
        return self.sampled


def answer_limit(task_limit: int | None, general_limit: int) -> int:
    """Tokens that an answer may have: the task's limit, if it has one and it is smaller, else the evaluation's."""
    return general_limit if task_limit is None else min(task_limit, general_limit)


class Sampler(Protocol):
    """Generates completions, in this process or elsewhere."""

    def sample(self, questions: Sequence[Question], sampling: Sampling) -> Iterator[tuple[int, Sampled]]:
        """Yield (index of the question, answer) as each finishes, in any order."""
        ...

    def fits(self, question: Question, sampling: Sampling) -> bool:
        """Whether there is room for an answer, as far as one can tell."""
        ...


ToolForm = Literal["native", "text"]
"""How an endpoint is told of tools: by its own `tools`, or in the text of the messages."""


def check_tool_options(tool_choice: str | None, tool_form: ToolForm, *, is_endpoint: bool) -> None:
    """Check how a model is told of tools.

    Raises:
        UserError: no such form, or what only an endpoint can be told.
    """
    if tool_form not in get_args(ToolForm):
        raise UserError(f"--tool-form {tool_form}: write native or text.")
    if not is_endpoint and (tool_choice is not None or tool_form != "native"):
        raise UserError(
            "--tool-choice and --tool-form are for --endpoint: the form of a model in this process follows from "
            "its tokenizer, and nothing makes it call a tool or keeps it from it."
        )


class EndpointSampler:
    """Samples from an OpenAI-compatible endpoint.

    Tools are told in the request, and calls read from the answer. A prompt that is text has calls and results in it.

    Args:
        engine: The endpoint.
        tool_choice: Whether the model has to call a tool; see `OfferedTools`.
        tool_form: How a prompt of messages tells of tools.
    """

    def __init__(self, engine: OpenAIEngine, *, tool_choice: str | None = None, tool_form: ToolForm = "native") -> None:
        self._engine, self._tool_choice, self._tool_form = engine, tool_choice, tool_form

    @property
    def may_call(self) -> bool:
        """Whether calls are made: with the choice `none`, what looks like one is text."""
        return self._tool_choice != "none"

    def sample(self, questions: Sequence[Question], sampling: Sampling) -> Iterator[tuple[int, Sampled]]:
        """Yield answers; see `Sampler`. What fails for good is an answer with an `error`.

        Raises:
            UserError: the endpoint refuses the key or the tools, or knows no such model or path.
        """
        # One task's questions share their stops, limit and tools.
        groups: dict[tuple[tuple[str, ...], int | None, tuple[Tool, ...]], list[int]] = {}
        for index, question in enumerate(questions):
            groups.setdefault((question.stop, question.max_completion_length, question.tools), []).append(index)
        for (stop, limit, tools), members in groups.items():
            tokens = answer_limit(limit, sampling.max_completion_length)
            limited = replace(sampling, max_completion_length=tokens)
            prompts = [questions[index].prompt for index in members]
            seeds = None if sampling.greedy else [endpoint_seed(questions[index].key) for index in members]
            offered = None
            if tools and isinstance(prompts[0], str):
                stop = (*stop, CLOSE)
            elif tools and self._tool_form == "native":
                offered = OfferedTools([tool.spec for tool in tools], self._tool_choice)
            elif tools:
                prompts = [in_text_form(cast("Sequence[Message]", each), tools) for each in prompts]
            for at, answer in self._engine.answers(prompts, limited, stop=stop, seeds=seeds, tools=offered):
                is_truncated = answer.finish_reason == "length"
                reading = None
                if tools and self.may_call:
                    reading = read_answer(answer.text, answer.calls, prompts[at], is_cut=is_truncated)
                elif tools:
                    reading = Reading(answer.text)
                yield (
                    members[at],
                    Sampled(
                        answer.text,
                        answer.tokens,
                        is_truncated,
                        error=answer.error,
                        is_too_long=answer.is_too_long,
                        reading=reading,
                    ),
                )

    def fits(self, question: Question, sampling: Sampling) -> bool:
        """Return True: the endpoint itself refuses a prompt that is too long."""
        return True
