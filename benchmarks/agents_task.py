"""The task of `agents.py`: a tool that takes a given time and answers in a given number of words.

A random model calls nothing, so in the benchmark `Calls` says what each completion calls, on both sides.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

from grpo_sdk import Environment, Message, Row, Task, TaskConfig, reward, tool

TOOL = "look_up"
MOST_TURNS = 64
ONE_IN = 8
"""Of so many calls one is slow."""


class Question(Row):
    """A number in words of equal length."""

    text: str


def load(config: TaskConfig) -> Iterable[Question]:
    """Sixty-four prompts."""
    for index in range(64):
        yield Question(id=str(index), text=f"What do the books say about number {index:02d}?")


def prompt(row: Question) -> tuple[Message, ...]:
    """The question, of the user."""
    return (Message(role="user", content=row.text),)


def look_up(seconds: float, words: int) -> str:
    """What the tool does on both sides."""
    time.sleep(seconds)
    return " word" * words


class Books(Environment):
    """An episode, which counts its calls."""

    def reset(self, row: Row) -> None:
        """Begin."""
        self.calls = 0

    @tool(timeout_s=60)
    def look_up(self, seconds: float, words: int) -> str:
        """Look the number up.

        Args:
            seconds: Time that it takes.
            words: Length of the result.
        """
        self.calls += 1
        return look_up(seconds, words)


class TrlBooks:
    """The same, as TRL's `environment_factory` makes it."""

    def reset(self, **row: Any) -> None:
        """Begin."""
        self.calls = 0

    def look_up(self, seconds: float, words: int) -> str:
        """Look the number up.

        Args:
            seconds: Time that it takes.
            words: Length of the result.
        """
        self.calls += 1
        return look_up(seconds, words)


def validate(text: str) -> str:
    """Everything is valid."""
    return text


def hash_of(text: str) -> float:
    """A number in [0, 1) that the text decides, so that every group teaches something."""
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=1).digest()[0] / 256


@reward()
def hashed(text: str) -> float:
    """The hash of the last completion."""
    return hash_of(text)


books = Task("books", load, prompt, validate, (hashed,), environment=Books, max_turns=MOST_TURNS)


class Calls:
    """Which call a completion makes: one in every turn but the last, the same for any text.

    Args:
        turns: Turns of an episode.
        sampled: Tokens of every completion.
        words: Length of a result.
        seconds: Time of a call.
        slow_seconds: That of one call in eight, at another turn in each episode.
        is_spread: Whether a call takes any time between these two instead.
        mark: Token that stands once in each result.

    Attributes:
        times: Seconds of the calls of each episode, by the tokens that it begins with.
        tokens: Of whole episodes, their prompt included.
        begun: Tokens that tell an episode: how many its prompt and its first completion have.
    """

    def __init__(
        self,
        *,
        turns: int,
        sampled: int,
        words: int,
        seconds: float,
        slow_seconds: float,
        mark: int,
        is_spread: bool = False,
    ) -> None:
        self._turns, self._sampled, self._words, self._mark = turns, sampled, words, mark
        self._seconds, self._slow_seconds, self.is_spread = seconds, slow_seconds, is_spread
        self.times: dict[tuple[int, ...], list[float]] = {}
        self.tokens: list[int] = []
        self._numbers: dict[tuple[int, ...], int] = {}
        self.begun = 0

    def call(self, prompt_ids: Sequence[int], completion_ids: Sequence[int]) -> dict[str, Any] | None:
        """Arguments of the call, or None where the episode ends.

        Raises:
            SystemExit: the completion is shorter, so that the sides do unequal work.
        """
        if len(completion_ids) != self._sampled:
            raise SystemExit(f"a completion has {len(completion_ids)} tokens, not {self._sampled}")
        ids, turn = (*prompt_ids, *completion_ids), list(prompt_ids).count(self._mark)
        if turn == 0:
            self.begun = len(ids)
            self._numbers[ids] = len(self._numbers)
        first = ids[: self.begun]
        if turn == self._turns - 1:
            self.tokens.append(len(ids))
            return None
        seconds = self._slow_seconds if turn == self._numbers[first] % ONE_IN else self._seconds
        if self.is_spread:
            seconds = Random(f"{self._numbers[first]}/{turn}").uniform(self._seconds, self._slow_seconds)
        self.times.setdefault(first, []).append(seconds)
        return {"seconds": seconds, "words": self._words}
