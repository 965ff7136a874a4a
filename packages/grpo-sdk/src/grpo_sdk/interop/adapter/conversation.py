"""An episode as a conversation: for trainers that exchange messages with an environment.

The messages of a turn are those that follow the completion before. In a game every turn has a whole prompt of its own.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from grpo_sdk.episodes.stepwise import Steps
from grpo_sdk.errors import UnscoredError, UserError
from grpo_sdk.interop.adapter.task_adapter import RowReference, TaskAdapter
from grpo_sdk.task.row import Prompt
from grpo_sdk.task.score import Score

Messages = list[dict[str, str]]


class Conversation:
    """One episode of a task.

    Args:
        adapter: The task.
        row: The problem.
        sample: Number of the rollout among those of the row, for the random numbers of an opponent; by default random.

    Attributes:
        messages: Whole prompt of the next turn: the conversation so far, or in a game what the player sees.
    """

    def __init__(self, adapter: TaskAdapter, row: RowReference, sample: int | None = None) -> None:
        self._adapter, self._name = adapter, f"task {adapter.task.name!r}"
        self._episode = adapter.episode(row, secrets.randbelow(2**31) if sample is None else sample)
        self.messages: Messages = []

    @property
    def is_over(self) -> bool:
        """Whether no turn follows."""
        return self._episode.is_over

    @property
    def turns(self) -> int:
        """Completions so far."""
        return len(self._episode.play.turns)

    @property
    def story(self) -> str:
        """The episode as people read it."""
        return self._episode.play.story

    def begin(self) -> Steps[Messages]:
        """Begin; returns the messages of the first turn.

        Raises:
            UnscoredError: there is no turn to play, e.g. because an opponent does not answer.
        """
        if not (yield from self._episode.begin()):
            score = yield from self.score()
            raise UnscoredError(f"{self._name}: the episode ended before its first turn: {score.why}")
        self.messages = self._adapter.messages(self._episode.play.prompt)
        return self.messages

    def reply(self, text: str) -> Steps[Messages]:
        """Play a completion; returns the messages that follow it, or none where the episode is over."""
        text = self._adapter.completion(text)
        before = self._episode.play.prompt
        if not (yield from self._episode.step(text)):
            return []
        play = self._episode.play
        if not play.goes_on:
            self.messages = self._adapter.messages(play.prompt)
            return self.messages
        following = self._adapter.messages(_following(before, text, play.prompt))
        self.messages = [*self.messages, {"role": "assistant", "content": text}, *following]
        return following

    def score(self) -> Steps[Score]:
        """Score the episode, also one that was cut off before its end; the score may have abstained."""
        scores = yield from self._episode.scores()
        return next(iter(scores.values()))

    def replay(self, texts: Sequence[str]) -> Steps[Score]:
        """Play completions that were recorded, and score; those after the end of the episode are ignored.

        Raises:
            UnscoredError: there is none.
        """
        if not texts:
            raise UnscoredError(f"{self._name}: there is no completion to score")
        if self._adapter.task.has_turns:
            yield from self.begin()
        for text in texts if self._adapter.task.has_turns else texts[-1:]:
            yield from self.reply(text)
            if self.is_over:
                break
        return (yield from self.score())


def check_replayable(adapter: TaskAdapter) -> TaskAdapter:
    """The adapter, for a trainer that scores what was recorded, in which a model's moves are not.

    Raises:
        UserError: a model plays against the policy.
    """
    if adapter.opponent is not None and adapter.task.task.game is not None:
        raise UserError(
            f"task {adapter.task.name!r}: {adapter.trainer} scores the recorded completions, and a model's moves as "
            "the opponent are not among them. Choose an opponent that needs no model, e.g. opponent=random."
        )
    return adapter


def answer_text(content: str | None, reasoning: str | None = None) -> str:
    """A completion as the model wrote it, from a message whose reasoning was split off."""
    return f"<think>{reasoning}</think>{content or ''}" if reasoning else content or ""


def _following(before: Prompt, text: str, prompt: Prompt) -> Prompt:
    """What a prompt adds to the one before and its completion."""
    if isinstance(prompt, str):
        return prompt.removeprefix(f"{before}{text}")
    return prompt[len(before) + 1 :]
