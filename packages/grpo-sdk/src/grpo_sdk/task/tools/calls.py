"""Calls of tools: as the policy wrote them, answered, and as the text that is scored."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from grpo_sdk.task.row import Message, first_problem

MAX_WRITTEN_CHARS = 200
"""Longest call in who said what; the results and the scored text have all of it."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as the policy wrote it.

    Attributes:
        name: The tool that it names; empty where it names none.
        arguments: Its arguments by name; None where what was written is no call.
        problem: Why it is none, as the policy is told.
        are_texts: Whether the values are the texts that were written, which the tool's schema converts.
    """

    name: str
    arguments: Mapping[str, Any] | None
    problem: str = ""
    are_texts: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """What a completion says.

    Attributes:
        text: Its text without thinking and calls.
        thinking: What it thought.
        calls: Its calls, in order.
        problem: Why the turn is invalid, e.g. a call that the length limit cut off.
    """

    text: str
    thinking: str = ""
    calls: tuple[ToolCall, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """A call that was answered; rewards get those of an episode by the name `calls`.

    Attributes:
        name: The tool that was called, or the name of none.
        arguments: The arguments as they were written.
        result: What the policy was told.
        ok: Whether the tool ran and returned; not where the call or its arguments are wrong, or it raised `ToolError`.
        seconds: How long the tool ran.
        ran: Whether the tool was called and answered, so that it is called again where the episode is repeated.
        are_texts: Whether the values of the arguments are texts; see `ToolCall`.
        ends: Whether the episode ended with it, which the environment said.
    """

    name: str
    arguments: Mapping[str, Any]
    result: str
    ok: bool
    seconds: float = 0.0
    ran: bool = True
    are_texts: bool = False
    ends: bool = False

    @property
    def asked(self) -> ToolCall:
        """The call as it was made."""
        return ToolCall(self.name, self.arguments, are_texts=self.are_texts)

    @property
    def written(self) -> str:
        """The call as people read it: `look_up(item="apple")`, cut where it is long."""
        arguments = ", ".join(f"{name}={json.dumps(value)}" for name, value in self.arguments.items())
        text = f"{self.name or 'no tool'}({arguments})"
        return text if len(text) <= MAX_WRITTEN_CHARS else f"{text[:MAX_WRITTEN_CHARS]}…"


@dataclass(frozen=True, slots=True)
class ToolTurn:
    """A turn of the policy in an episode with tools.

    Attributes:
        text: The completion.
        calls: Its calls, answered.
        problem: Why the turn is invalid, which ends the episode.
    """

    text: str
    calls: tuple[Call, ...] = ()
    problem: str = ""

    def results(self) -> tuple[Message, ...]:
        """The messages that follow it."""
        return tuple(Message(role="tool", content=call.result, name=call.name) for call in self.calls)


def call_facts(calls: Sequence[Call]) -> dict[str, float]:
    """What every score of an episode with tools has among its parts, unless the task has rewards of these names.

    Returns:
        `n_calls`, and `valid_calls`: the share of calls that a tool has answered, where there are any.
    """
    ran = sum(call.ran for call in calls)
    return {"n_calls": float(len(calls)), **({"valid_calls": ran / len(calls)} if calls else {})}


def spoken(reading: Reading, text: str) -> Message:
    """The assistant's message of a completion.

    Args:
        reading: What it says.
        text: The completion, for one without calls and thinking.
    """
    if not reading.calls and not reading.thinking:
        return Message(role="assistant", content=text)
    message = Message(role="assistant", content=reading.text)
    if reading.calls:
        message["tool_calls"] = [
            {"type": "function", "function": {"name": call.name, "arguments": dict(call.arguments or {})}}
            for call in reading.calls
        ]
    if reading.thinking:
        message["reasoning_content"] = reading.thinking
    return message


class _Call(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(strict=True)
    arguments: dict[str, Any] = {}
    result: str | None = Field(None, strict=True)
    ok: bool = Field(True, strict=True)
    ran: bool = Field(True, strict=True)
    are_texts: bool = Field(False, strict=True)
    ends: bool = Field(False, strict=True)

    @model_validator(mode="after")
    def _ran_if_ok(self) -> _Call:
        if self.ok and not self.ran:
            raise ValueError("a call that did not run is not ok")
        return self


class _Turn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str = Field(strict=True)
    calls: tuple[_Call, ...] = ()
    problem: str = Field("", strict=True)


class _Turns(BaseModel):
    model_config = ConfigDict(extra="forbid")

    turns: tuple[_Turn, ...] = Field(min_length=1)


def _loads(text: str) -> Any:
    """JSON, which has no NaN and no infinity."""

    def refused(name: str) -> None:
        raise ValueError(f"{name} is no number of JSON")

    return json.loads(text, parse_constant=refused)


def turns_problem(text: str) -> str:
    """Why a text that begins as an episode with tools is none; empty where it is one, and of every other text."""
    if not re.match(r"\s*\{\s*\"turns\"", text):
        return ""
    try:
        _Turns.model_validate(_loads(text))
    except ValidationError as error:
        return first_problem(error)
    except (ValueError, RecursionError) as error:
        return f"no JSON: {error}"
    return ""


def write_tool_turns(turns: Sequence[ToolTurn], *, with_results: bool = True) -> str:
    """An episode with tools as the text that is scored: JSON in ASCII, so that any completion survives.

    Args:
        turns: Its turns.
        with_results: Whether the results are written; else they are those that the tools give when it is scored.
    """
    plain = [
        {
            "text": turn.text,
            **({"calls": [_plain(call, with_results) for call in turn.calls]} if turn.calls else {}),
            **({"problem": turn.problem} if turn.problem else {}),
        }
        for turn in turns
    ]
    return json.dumps({"turns": plain})


def _plain(call: Call, with_results: bool) -> dict[str, Any]:
    asked = {"name": call.name, "arguments": dict(call.arguments), **({"are_texts": True} if call.are_texts else {})}
    if not with_results:
        return asked
    said = {name: value for name, value in (("ok", call.ok), ("ran", call.ran)) if not value}
    return {**asked, "result": call.result, **said, **({"ends": True} if call.ends else {})}


def read_tool_turns(text: str) -> tuple[tuple[ToolTurn, ...], bool]:
    """The turns of a scored text; one that `write_tool_turns` has not written is a single completion without calls.

    A gold that an author writes may leave out the results, which are then those that the tools give.

    Returns:
        (turns, whether the calls have results).
    """
    try:
        found = _Turns.model_validate(_loads(text)).turns  # pydantic's reader refuses lone surrogates
    except (ValueError, RecursionError):
        return (ToolTurn(text),), True
    calls = [call for turn in found for call in turn.calls]
    turns = tuple(ToolTurn(turn.text, tuple(map(_read, turn.calls)), turn.problem) for turn in found)
    return turns, all(call.result is not None for call in calls)


def _read(call: _Call) -> Call:
    return Call(**{**dict(call), "result": call.result or ""})
