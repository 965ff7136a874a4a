"""Rows, their prompts, and a task's options."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Literal, NotRequired, cast, get_args, get_origin

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from typing_extensions import TypedDict  # that of typing is no field of a Row before Python 3.12

from grpo_sdk.errors import UserError

Split = Literal["train", "validation", "test"]
"""Part of the rows; which one a row belongs to depends on a hash of its content."""


class Message(TypedDict):
    """One chat message.

    Attributes:
        role: `system`, `user`, `assistant` or `tool`.
        content: Its text.
        name: The tool whose result this is.
        tool_calls: Calls of the assistant, in OpenAI's form with the arguments as an object.
        reasoning_content: What the assistant thought.
    """

    role: str
    content: str
    name: NotRequired[str]
    tool_calls: NotRequired[Sequence[Mapping[str, Any]]]
    reasoning_content: NotRequired[str]


MESSAGE_KEYS = tuple(Message.__annotations__)

Prompt = str | tuple[Message, ...]
"""Plain text, or chat messages; a last message by the assistant is a prefill and no part of the completion's text."""


class Row(BaseModel):
    """One JSON-able problem; it crosses processes, Ray, HTTP and parquet as one JSON string.

    Attributes:
        id: Stable and unique within its dataset; names the prompt in sampling keys and logs.
        gold: A completion that must score the maximum, where there is one.
        difficulty: Larger is harder; evaluation reports by it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    id: str
    gold: str | None = None
    difficulty: float | None = None


MAX_ROWS = 10**7
"""Most rows of a task: all of them are held in memory."""


class TaskConfig(BaseModel):
    """Options of a task, set in its spec: `math.gsm8k?split=test&size=100`. Subclass to add more.

    Attributes:
        seed: Seed of a procedural task; it never decides the split.
        split: `train`, `validation` or `test`; disjoint by a hash of the row's content.
        size: Number of rows taken; None is all that there are.
        path: In place of the task's own data: JSONL, CSV or parquet files, a saved dataset, or `hub:owner/name`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    seed: int = 0
    split: Split = "train"
    size: int | None = Field(default=None, ge=1, le=MAX_ROWS)
    path: str | None = None

    @field_validator("*", mode="before")
    @classmethod
    def _read_literals(cls, value: Any, info: ValidationInfo) -> Any:
        """A spec gives text: `2` is the 2 of `Literal[1, 2]`, and `true` the True of another."""
        annotation = cls.model_fields[str(info.field_name)].annotation
        values = {str(each).lower(): each for each in _literals(annotation) if not isinstance(each, str)}
        if not isinstance(value, str) or not values or value in _literals(annotation):
            return value
        return values.get(value.lower(), value)


def _literals(annotation: Any) -> Iterator[Any]:
    """The values of every `Literal` in a type."""
    for inner in get_args(annotation):
        yield from (inner,) if get_origin(annotation) is Literal else _literals(inner)


def as_prompt(made: Any, who: str) -> Prompt:
    """Check what a prompt template made, and make lists of messages tuples.

    Raises:
        UserError: it is neither text nor a non-empty list of messages.
    """
    if isinstance(made, str):
        return made
    if (
        isinstance(made, Sequence)
        and made
        and all(
            isinstance(message, Mapping)
            and isinstance(message.get("role"), str)
            and isinstance(message.get("content"), str)
            for message in made
        )
    ):
        return tuple(cast("Message", {key: message[key] for key in MESSAGE_KEYS if key in message}) for message in made)
    raise UserError(f"{who} must give text or a list of messages with role and content, not {made!r:.80}.")


def prompt_json(prompt: Prompt, who: str) -> bytes:
    """A prompt as JSON.

    Raises:
        UserError: it holds half of a surrogate pair.
    """
    try:
        prompt_text(prompt).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise UserError(f"{who} gives {half!a}, half of a surrogate pair, which is no text.") from None
    return orjson.dumps(prompt)


def prompt_text(prompt: Prompt) -> str:
    """A prompt as text: chat messages in order, each with its role."""
    if isinstance(prompt, str):
        return prompt
    return "\n".join(f"{message['role']}: {said(message)}" for message in prompt)


def said(message: Message) -> str:
    """What a message says as people read it: its text, and its calls."""
    calls = [call["function"] for call in message.get("tool_calls", ())]
    written = (
        f"{call['name']}({', '.join(f'{name}={json.dumps(value)}' for name, value in call['arguments'].items())})"
        for call in calls
    )
    return "\n".join(filter(None, (message["content"], *written)))


def labelled(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """Who said what: the role of each message and its text.

    The moves of a game are counted: it has messages without a role between them, which are positions, and its result.
    """
    is_game, moves = any(not message["role"] for message in messages), count(1)
    told = []
    for message in messages:
        label = f"{message['role']} {message['name']}" if "name" in message else message["role"]
        told.append((f"{next(moves)}. {label}" if is_game and label else label, message["content"]))
    return told


def story_of(messages: Sequence[Message]) -> str:
    """Several turns as people read them; in a game, with a blank line before each move."""
    return "\n".join(f"{label}: {text}" if label else f"{text}\n" for label, text in labelled(messages)).rstrip("\n")


def first_problem(error: ValidationError) -> str:
    """The first problem of a pydantic error in one line: field, what is wrong, what was given."""
    problem = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in problem["loc"])  # empty where two fields contradict each other
    given = repr(problem.get("input"))
    what = problem["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return f"{where}{': ' if where else ''}{what} (given {given if len(given) <= 80 else given[:77] + '…'})"
