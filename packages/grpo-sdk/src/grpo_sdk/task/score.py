"""The score of a completion, or the reason why it has none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

Fault = Literal["", "reward", "timeout", "infrastructure"]
"""Why a completion has no score: the task's code failed, its time ran out, or the machine failed; "" if it has one."""


TOOLS = "tools()"
"""Name of the tools' duration, which is that of no reward."""

MAX_WHY_CHARS = 300
"""Bound on `Score.why`: a reason may quote a hostile completion."""


class Invalid(Exception):
    """Raised by a validator: the completion holds no answer. Any other exception is the task's bug and abstains."""


@dataclass(frozen=True, slots=True)
class Score:
    """Score of one completion.

    Attributes:
        value: The composed reward; None when the completion could not be scored (masked, counted, never 0).
        parts: Raw value of every reward, by its name.
        valid: Whether the validator found an answer.
        solved: Exact success; see `Task.solved`.
        why: One line: the validator's reason, the parts below their maximum, or the fault.
        fault: Why there is no value: the reward's own `reward` crash, a `timeout`, or `infrastructure`.
        seconds: Duration of `validate`, of every reward by its name and of all calls of `tools`; empty where it was
            not measured. Equal scores may differ in it.
    """

    value: float | None
    parts: dict[str, float] = field(default_factory=dict)
    valid: bool = False
    solved: bool = False
    why: str = ""
    fault: Fault = ""
    seconds: dict[str, float] = field(default_factory=dict, compare=False, repr=False)

    @property
    def abstained(self) -> bool:
        """Whether there is no value."""
        return self.value is None

    def as_json(self) -> dict[str, Any]:
        """The score as plain values, without its duration: equal for equal scores."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "seconds"}


def tool_seconds(scores: Iterable[Score]) -> list[float]:
    """How long the tools of each episode ran that has tools."""
    return [score.seconds[TOOLS] for score in scores if TOOLS in score.seconds]


def one_line(text: str) -> str:
    """Text in one line, short enough for `Score.why`."""
    return " ".join(text[: 4 * MAX_WHY_CHARS].split())[:MAX_WHY_CHARS]
