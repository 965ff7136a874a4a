"""Calls of tools: as the policy wrote them, and answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


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
    """

    name: str
    arguments: Mapping[str, Any]
    result: str
    ok: bool
    seconds: float = 0.0
