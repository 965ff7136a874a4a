"""One episode of a task, a completion at a time, for whoever samples the completions: another trainer, a client.

What has to be waited for is yielded, so that one implementation serves threads (`run`) and event loops (`arun`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from grpo_sdk.endpoints.base import SampleKey
from grpo_sdk.episodes.episodes import Play, PlayedTurn, game_opponent, retried_turn
from grpo_sdk.episodes.opponents import OpponentSampler, Unanswered, play_opponents
from grpo_sdk.scoring.scorer import Scorer
from grpo_sdk.task.game import read_transcript
from grpo_sdk.task.row import Message, Prompt, Row
from grpo_sdk.task.score import Invalid, Score
from grpo_sdk.task.turns import read_turns

Result = TypeVar("Result")

Steps = Generator["Future[Any] | Callable[[], Any]", Any, Result]
"""A computation that yields what it waits for: a future, or a function that blocks."""


def run(steps: Steps[Result]) -> Result:
    """Run steps in this thread."""
    answer: Any = None
    while True:
        try:
            waited = steps.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        answer = waited.result() if isinstance(waited, Future) else waited()


async def arun(steps: Steps[Result]) -> Result:
    """Run steps without blocking the event loop."""
    answer: Any = None
    while True:
        try:
            waited = steps.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        answer = await (asyncio.wrap_future(waited) if isinstance(waited, Future) else asyncio.to_thread(waited))


def retold(scorer: Scorer, row: Row, text: str) -> tuple[Message, ...]:
    """Who said what in a text that stands for several turns when it is scored; empty where it is one completion.

    What follows each completion is asked of the task, in its worker; a game that is not over is not told, and neither
    is an episode that another server plays.
    """
    task = scorer.task
    if task.task.game is not None:
        try:
            return scorer.next_turn(read_transcript(text)[1], row).result().messages
        except Invalid:
            return ()
    if task.task.remote is not None or not task.task.validates_all_turns:
        return ()
    episode = SteppedEpisode(scorer, row, task.prompt(row), SampleKey(0, 0, row.id, 0))
    for completion in read_turns(text):
        if not run(episode.step(completion)):
            break
    return episode.play.messages


class SteppedEpisode:
    """One episode of a task of one turn, of several, or of a game.

    Args:
        scorer: Scorer of the task; may be replaced between steps.
        row: The problem.
        prompt: The first prompt; not needed for a game, whose rules make it.
        key: Names the random numbers of a model that plays against the policy.
        opponent: Samples that model's moves; needed where there is one.

    Attributes:
        play: The rollout so far.
        is_over: Whether no turn follows.
    """

    def __init__(
        self, scorer: Scorer, row: Row, prompt: Prompt, key: SampleKey, opponent: OpponentSampler | None = None
    ) -> None:
        self.play: Play[None] = Play(scorer.task, scorer, row, key, prompt, opponent)
        self.is_over = False

    def begin(self) -> Steps[bool]:
        """Begin; returns whether the policy has a turn, as it has unless a game ends before."""
        if self.play.task.task.game is not None:
            goes_on = self.play.follow((yield self.play.scorer.next_turn((), self.play.row)))
            self.is_over = not (goes_on and (yield from self._oppose()))
        return not self.is_over

    def step(self, text: str) -> Steps[bool]:
        """Play the policy's completion; returns whether it has another turn, whose prompt is `play.prompt`."""
        play = self.play
        play.turns.append(PlayedTurn(play.role, play.prompt, text, None, len(play.moves), play.goes_on))
        goes_on = play.task.has_turns and (yield from self._follow(text)) and (yield from self._oppose())
        self.is_over = not goes_on
        return goes_on

    def scores(self) -> Steps[Mapping[str, Score]]:
        """Score an episode that is over: the score of each role that learns, of one without a name if it is no game."""
        play = self.play
        if play.task.has_turns:
            futures = play.scores()
            scores = {}
            for role, future in futures.items():
                scores[role] = yield future
            return scores
        text = play.turns[-1].text
        if (sampler := play.opponent) is None:
            return {"": (yield play.scorer.submit(text, play.row))}
        answered = yield lambda: play_opponents(play.scorer, [text], [play.row], sampler, keys=[play.key])
        return {"": answered.scores[0]}

    @property
    def last_role(self) -> str:
        """The role of the policy's last turn; empty before it, and where the task is no game."""
        return self.play.turns[-1].role if self.play.turns else ""

    def _follow(self, text: str) -> Steps[bool]:
        """Compute what follows a move; returns whether there is another turn."""
        play = self.play
        state = yield play.scorer.next_turn((*play.moves, text), play.row)
        retried = retried_turn(play, state)
        return play.follow(state if retried is None else (yield retried))

    def _oppose(self) -> Steps[bool]:
        """Let a model that plays against the policy move until the policy does; returns whether there is a turn."""
        play = self.play
        while play.seat and play.role != play.seat:
            sampler, opponent = play.opponent, game_opponent(play.task)
            assert sampler is not None
            (answer,) = yield lambda: sampler.sample([play.prompt], opponent, [play.turn_key])  # noqa: B023
            if isinstance(answer, Unanswered):
                if not (answer.is_unreadable and play.turns):  # else what the policy wrote ends the game
                    play.fault, play.why = "infrastructure", f"the opponent did not answer: {answer.why}"
                return False
            if not (yield from self._follow(answer[0])):
                return False
        return True
