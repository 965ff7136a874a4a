"""A server's verdict as a completion's score."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from grpo_sdk import InfrastructureError, RemoteReply, reward

MAX_REWARD = 1e9
"""Largest absolute value that is taken for a reward."""

MAX_PARTS = 64
MAX_NAME_CHARS = 64


class Verdict(BaseModel):
    """What a server says of a completion or an episode.

    Attributes:
        reward: Its reward.
        solved: Whether it is right, where the server says that.
        turns: Turns played.
        finished: Whether the server ended the episode.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    reward: float = Field(allow_inf_nan=False, ge=-MAX_REWARD, le=MAX_REWARD)
    solved: bool | None = None
    turns: int = 1
    finished: bool = True

    def reply(self, parts: Mapping[str, float]) -> RemoteReply:
        """The verdict as the text that is scored, with what the server names beside it."""
        return RemoteReply(self.model_dump_json(), parts)


def number_of(value: Any, what: str) -> float:
    """A server's number.

    Args:
        value: What was sent.
        what: Address and name of the field, for messages.

    Raises:
        InfrastructureError: it is none, or beyond what is taken for a reward.
    """
    if isinstance(value, bool | int | float) and math.isfinite(value) and abs(value) <= MAX_REWARD:
        return float(value)
    raise InfrastructureError(f"{what} is no finite number: {value!r:.40}")


def parts_of(values: Any, what: str) -> dict[str, float]:
    """Numbers that a server names; nothing where there are none.

    Raises:
        InfrastructureError: it is something else than numbers by name.
    """
    if values is None:
        return {}
    if not isinstance(values, dict) or len(values) > MAX_PARTS or any(len(name) > MAX_NAME_CHARS for name in values):
        raise InfrastructureError(f"{what} does not hold at most {MAX_PARTS} numbers by name")
    return {name: number_of(value, f"{what}.{name[:MAX_NAME_CHARS]}") for name, value in values.items()}


def validate(text: str) -> Verdict:
    """Read the verdict."""
    return Verdict.model_validate_json(text)


@reward(0)
def earned(answer: Verdict) -> float:
    """The server's reward."""
    return answer.reward


@reward(0)
def turns(answer: Verdict) -> float:
    """Turns played."""
    return float(answer.turns)


@reward(0)
def finished(answer: Verdict) -> float:
    """Whether the server ended the episode."""
    return float(answer.finished)


def as_it_is(specs: Sequence[Any], parts: Mapping[str, float], valid: bool) -> float:
    """Compose the server's reward, whatever its scale."""
    return parts["earned"]


def is_solved(answer: Verdict, row: Any, text: str, parts: Mapping[str, float], config: Any) -> bool:
    """Whether the server says so, or its reward is at least the option `solved_at`."""
    return answer.reward >= config.solved_at if answer.solved is None else answer.solved
