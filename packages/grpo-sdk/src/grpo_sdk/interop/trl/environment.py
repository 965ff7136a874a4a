"""A task of several turns, or a game, as an environment of TRL: the model takes its turns by calling a tool.

The model sees what TRL shows it: the tool's schema where its chat template puts it, the prompt with a sentence that
names the tool, and each feedback as the tool's result. Our own trainer and `TrlTask.rollout_func` show it the turns
themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

from grpo_sdk.episodes.player import run
from grpo_sdk.errors import UnscoredError
from grpo_sdk.interop.adapter import Conversation, Messages, TaskAdapter
from grpo_sdk.task.score import Score

OVER = "That was the last turn."


class Environment:
    """One rollout at a time of a task without a tool: the completion is the answer.

    Args:
        adapter: The task.
        samples: Numbers rollouts, for the random numbers of an opponent.
    """

    def __init__(self, adapter: TaskAdapter, samples: Callable[[], int]) -> None:
        self._adapter, self._samples = adapter, samples
        self._begun: Conversation | None = None

    def reset(self, row: str, **columns: Any) -> str | None:
        """Begin a rollout; returns what is appended to the prompt."""
        self._begun = Conversation(self._adapter, row, self._samples())
        with suppress(UnscoredError):  # which its score says
            run(self._begun.begin())
        return None

    def _conversation(self) -> Conversation:  # no property: TRL reads every attribute to find the tools
        assert self._begun is not None, "TRL resets an environment before it is used"
        return self._begun

    def _score(self, text: str) -> Score:
        """The score of the rollout.

        Args:
            text: What the model wrote after its last tool call: its turn, where it has one and called no tool.
        """
        conversation = self._conversation()
        if not conversation.is_over:
            run(conversation.reply(text))
        return run(conversation.score())


class _Turns(Environment):
    _hint = ""

    def reset(self, row: str, **columns: Any) -> str | None:
        """Begin a rollout; returns what is appended to the prompt."""
        super().reset(row, **columns)
        prompt = "" if self._adapter.task.task.game is None else _text(self._conversation().messages)
        return f"{prompt}\n\n{self._hint}"

    def _take(self, text: str) -> str:
        conversation = self._conversation()
        if conversation.is_over:
            return OVER
        following = run(conversation.reply(text))
        return OVER if conversation.is_over else _text(following)


class AnswerEnvironment(_Turns):
    """A task of several turns, whose answers are calls of the tool `answer`."""

    _hint = "Give every answer by calling the tool answer, with the whole answer as its text."

    def answer(self, text: str) -> str:
        """Give an answer.

        Args:
            text: The whole answer.

        Returns:
            What is said about it.
        """
        return self._take(text)


class MoveEnvironment(_Turns):
    """A game against an opponent, whose moves are calls of the tool `move`."""

    _hint = "Make every move by calling the tool move, with what is asked for above as its text."

    def move(self, text: str) -> str:
        """Make a move.

        Args:
            text: The move, as the game asks for it.

        Returns:
            The game after the opponent's move.
        """
        return self._take(text)


def environment_factory(adapter: TaskAdapter) -> Callable[[], Environment]:
    """Return the function that makes the environments of a task."""
    task = adapter.task
    kind = Environment if not task.has_turns else AnswerEnvironment if task.task.game is None else MoveEnvironment
    return partial(kind, adapter, count().__next__)


def _text(messages: Messages) -> str:
    return "\n\n".join(message["content"] for message in messages)
