"""Plays episodes to their end, whoever samples: a trainer, an evaluation, or another trainer a completion at a time.

    round 1   sample  a1 b1 c1      the tasks' code, in killable workers: a goes on, b is over, c goes on
    round 2   sample  a2 c2         …

`rounds` is the schedule; `play` runs it for a whole batch, `SteppedEpisode` for a turn of one episode. What has to be
waited for is yielded, so that one implementation serves threads (`run`) and event loops (`arun`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from grpo_sdk.endpoints.base import SampleKey
from grpo_sdk.episodes.episode import Answer, Episode, Reply
from grpo_sdk.episodes.opponents import OpponentSampler, OpponentScores, Unanswered, opponent_of, play_opponents
from grpo_sdk.killable.pool import resolved
from grpo_sdk.scoring.scorer import Scorer
from grpo_sdk.task.game import read_transcript
from grpo_sdk.task.row import Message, Prompt, Row
from grpo_sdk.task.score import Invalid, Score
from grpo_sdk.task.turns import TurnState, read_turns

Result = TypeVar("Result")

Steps = Generator["Future[Any] | Callable[[], Any]", Any, Result]
"""A computation that yields what it waits for: a future, or a function that blocks."""

Rounds = Generator["Future[Any] | Callable[[], Any] | list[Episode[Answer]]", Any, None]
"""The same, which also yields episodes whose next completion is wanted, and is sent an iterator of (index, reply)."""


@dataclass(slots=True)
class Player:
    """Who plays and scores the episodes of one task against the policy.

    Attributes:
        scorer: The task's scorer, whose workers also compute what follows a completion.
        opponent: Samples what a model says that plays against the policy or answers it; None where there is none.
    """

    scorer: Scorer
    opponent: OpponentSampler | None = None

    @property
    def asks_opponent(self) -> bool:
        """Whether the opponent answers what the policy wrote, before that is scored."""
        return self.opponent is not None and not self.scorer.task.has_turns

    def ask_opponent(self, episodes: Sequence[Episode[Any]]) -> OpponentScores:
        """Score episodes of one turn, whose completions the opponent answers; see `play_opponents`."""
        assert self.opponent is not None
        texts, rows = [each.turns[-1].text for each in episodes], [each.row for each in episodes]
        return play_opponents(self.scorer, texts, rows, self.opponent, keys=[each.key for each in episodes])

    def score(self, episode: Episode[Any]) -> dict[str, Future[Score]]:
        """Queue the scoring of an episode, which may be cut off before its end, for each role that learns."""
        roles, state = episode.partner.roles(episode.row), episode.state
        if state.fault == "timeout" and episode.turns:
            return {role: self.scorer.out_of_time(episode.row, state.why) for role in roles}
        if state.fault or not episode.turns:
            why = state.why or "the opponent left nothing to play"
            failed = Score(None, why=why, fault=state.fault or "infrastructure")
            return {role: resolved(failed) for role in roles}
        return {role: self.scorer.submit(text, episode.row) for role, text in episode.scored_texts().items()}


Table = tuple[Player, Episode[Answer]]


def play(
    tables: Sequence[Table[Answer]],
    sample: Callable[[list[Episode[Answer]]], Iterator[tuple[int, Reply[Answer] | Unanswered]]],
    ended: Callable[[int], None] = lambda index: None,
) -> None:
    """Play episodes to their end, in place, and wait.

    Args:
        tables: Who plays what.
        sample: Samples the next turn of each of some episodes: yields (index, reply) as each finishes.
        ended: Called with the index of each episode that is over, in any order.
    """
    schedule = rounds(tables, ended)
    asked = run(_until_asked(schedule, None))
    while asked is not None:
        asked = run(_until_asked(schedule, sample(asked)))


def rounds(tables: Sequence[Table[Answer]], ended: Callable[[int], None] = lambda index: None) -> Rounds[Answer]:
    """Play in lock step: every episode gets its next completion before any gets the one after it.

    It begins where the episodes are, which may be in their middle. Arguments are those of `play`.
    """
    following = {
        index: player.scorer.next_turn((), episode.row)
        for index, (player, episode) in enumerate(tables)
        if not episode.has_begun
    }
    while True:
        for index, future in following.items():
            player, episode = tables[index]
            state: TurnState = yield future
            unreadable = episode.partner.unreadable
            if state.fault == "timeout" and state.moves and unreadable is not None:
                state = yield player.scorer.next_turn((*state.moves[:-1], unreadable), episode.row)
            episode.follow(state)
            if episode.is_over:
                ended(index)
        going_on = [index for index, (_, episode) in enumerate(tables) if not episode.is_over]
        if not going_on:
            return
        asked = [index for index in going_on if tables[index][1].is_policys_turn]
        opposed = {index: tables[index] for index in going_on if not tables[index][1].is_policys_turn}
        following = {}
        for at, reply in (yield [tables[index][1] for index in asked]) if asked else ():
            player, episode = tables[asked[at]]
            if isinstance(reply, Unanswered):
                episode.break_off("no completion", reply)
            else:
                episode.take(reply.text, reply.answer)
                if episode.task.has_turns:  # what follows is computed while others are still sampled
                    following[asked[at]] = player.scorer.next_turn((*episode.state.moves, reply.text), episode.row)
                else:
                    episode.follow(TurnState((reply.text,)))
            if episode.is_over:
                ended(asked[at])
        following |= yield from _opposed(opposed, ended)


def _opposed(tables: Mapping[int, Table[Any]], ended: Callable[[int], None]) -> Steps[dict[int, Future[TurnState]]]:
    """Sample a move of each model that plays against the policy, those of one player together."""
    following: dict[int, Future[TurnState]] = {}
    by_player: dict[int, list[int]] = {}
    for index, (player, _) in tables.items():
        by_player.setdefault(id(player), []).append(index)
    for indices in by_player.values():
        player, first = tables[indices[0]]
        sampler, opponent = player.opponent, opponent_of(first.task)
        assert sampler is not None and opponent is not None, f"{first.task.name}: who plays {first.state.role}?"
        episodes = [tables[index][1] for index in indices]
        prompts, keys = [each.prompt for each in episodes], [each.turn_key for each in episodes]
        answers = yield partial(sampler.sample, prompts, opponent, keys)
        for index, episode, answer in zip(indices, episodes, answers, strict=True):
            if not isinstance(answer, Unanswered):
                following[index] = player.scorer.next_turn((*episode.state.moves, answer[0]), episode.row)
                continue
            episode.break_off("the opponent did not answer", answer)
            ended(index)
    return following


def _until_asked(
    schedule: Rounds[Answer], replies: Iterator[tuple[int, Reply[Answer] | Unanswered]] | None
) -> Steps[list[Episode[Answer]] | None]:
    """Go on until completions are wanted; returns the episodes that want one, or None when all are over."""
    answer: Any = replies
    while True:
        try:
            waited = schedule.send(answer)
        except StopIteration:
            return None
        if isinstance(waited, list):
            return waited
        answer = yield waited


class SteppedEpisode:
    """One episode, a completion at a time, for whoever samples the completions: another trainer, a client.

    Args:
        player: Plays it; its scorer may be replaced between steps.
        row: The problem.
        prompt: The first prompt; not needed for a game, whose rules make it.
        key: Names the random numbers of a model that plays against the policy.

    Attributes:
        player: Plays it.
        episode: The episode so far.
    """

    def __init__(self, player: Player, row: Row, prompt: Prompt, key: SampleKey) -> None:
        self.player = player
        self.episode: Episode[None] = Episode(player.scorer.task, row, key, prompt)

    @property
    def is_over(self) -> bool:
        """Whether no turn follows."""
        return self.episode.is_over

    def begin(self) -> Steps[bool]:
        """Begin; returns whether the policy has a turn, as it has unless a game ends before."""
        yield from _until_asked(rounds([(self.player, self.episode)]), None)
        return not self.is_over

    def step(self, text: str) -> Steps[bool]:
        """Play the policy's completion; returns whether it has another turn, whose prompt is `episode.prompt`."""
        schedule = rounds([(self.player, self.episode)])
        yield from _until_asked(schedule, None)
        yield from _until_asked(schedule, iter([(0, Reply(text, None))]))
        return not self.is_over

    def scores(self) -> Steps[Mapping[str, Score]]:
        """Score an episode that is over: the score of each role that learns, of one without a name if it is no game."""
        if self.player.asks_opponent:
            answered: OpponentScores = yield partial(self.player.ask_opponent, [self.episode])
            return {"": answered.scores[0]}
        scores = {}
        for role, future in self.player.score(self.episode).items():
            scores[role] = yield future
        return scores

    @property
    def last_role(self) -> str:
        """The role of the policy's last turn; empty before it, and where the task is no game."""
        return self.episode.turns[-1].role if self.episode.turns else ""


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
    told = SteppedEpisode(Player(scorer), row, task.prompt(row), SampleKey(0, 0, row.id, 0))
    for completion in read_turns(text):
        if not run(told.step(completion)):
            break
    return told.episode.messages
