"""Rewards of the tasks whose answer is one integer: 0.1 for an integer, 0.2 for a near one, 1.0 for the right one."""

from __future__ import annotations

from typing import Protocol

from grpo_sdk import reward


class HasResult(Protocol):
    """A row whose right answer is `result`."""

    @property
    def result(self) -> int:
        """The right answer."""


@reward(0.1)
def integer(answer: int) -> float:
    """1: an integer was given."""
    return 1.0


@reward(0.1)
def near(answer: int, row: HasResult) -> float:
    """1 when |answer − result| is 0 or a power of ten that the result has a digit for: one digit is one step off."""
    places = (10**place for place in range(len(str(abs(row.result)))))
    return float(abs(answer - row.result) in (0, *places))


@reward(0.8)
def exact(answer: int, row: HasResult) -> float:
    """1 when the answer is the result."""
    return float(answer == row.result)


REWARDS = (integer, near, exact)
