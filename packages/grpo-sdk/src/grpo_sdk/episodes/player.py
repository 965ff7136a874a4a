"""Plays episodes to their end, whoever samples: a trainer, an evaluation, or another trainer a completion at a time.

    round 1   sample  a1 b1 c1      the tasks' code, in killable workers: a goes on, b is over, c goes on
    round 2   sample  a2 c2         …

`rounds` is the schedule; `play` runs it for a whole batch, `SteppedEpisode` for a turn of one episode. What has to be
waited for is yielded, so that one implementation serves threads (`run`) and event loops (`arun`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property, partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from grpo_sdk.endpoints.base import Arrivals, Request, SampleKey
from grpo_sdk.endpoints.completion import Completion
from grpo_sdk.episodes.encoder import EpisodeEncoder
from grpo_sdk.episodes.episode import Answer, Episode, Reply, tool_story
from grpo_sdk.episodes.opponents import OpponentSampler, OpponentScores, Unanswered, opponent_of, play_opponents
from grpo_sdk.errors import GrpoError
from grpo_sdk.killable.pool import resolved
from grpo_sdk.scoring.scorer import Scorer
from grpo_sdk.scoring.tool_workers import ToolSession
from grpo_sdk.task.game import read_transcript
from grpo_sdk.task.row import Message, Prompt, Row
from grpo_sdk.task.score import Invalid, Score
from grpo_sdk.task.tools.calls import Reading, read_tool_turns
from grpo_sdk.task.turns import TurnState, read_turns

Result = TypeVar("Result")

Steps = Generator["Future[Any] | Callable[[], Any]", Any, Result]
"""A computation that yields what it waits for: a future, or a function that blocks."""

Rounds = Generator["Future[Any] | Callable[[], Any] | list[int]", Any, None]
"""The same, which also yields indices of episodes whose next completion is wanted, and is sent an iterator of
(index, reply)."""


@dataclass
class Player:
    """Who plays and scores the episodes of one task against the policy.

    Attributes:
        scorer: The task's scorer, whose workers also compute what follows a completion.
        opponent: Samples what a model says that plays against the policy or answers it; None where there is none.
        tokenizer: Tokenizer of the policy, where this process samples with tokens.
    """

    scorer: Scorer
    opponent: OpponentSampler | None = None
    tokenizer: Any = None

    @cached_property
    def encoder(self) -> EpisodeEncoder:
        """What encodes the task's episodes for the policy."""
        return EpisodeEncoder(self.scorer.task, self.tokenizer)

    @property
    def asks_opponent(self) -> bool:
        """Whether the opponent answers what the policy wrote, before that is scored."""
        return self.opponent is not None and not self.scorer.task.has_turns

    def ask_opponent(self, episodes: Sequence[Episode[Any]]) -> OpponentScores:
        """Score episodes of one turn, whose completions the opponent answers; see `play_opponents`."""
        assert self.opponent is not None
        texts, rows = [each.turns[-1].text for each in episodes], [each.row for each in episodes]
        return play_opponents(self.scorer, texts, rows, self.opponent, keys=[each.key for each in episodes])

    def begin(self, episode: Episode[Any]) -> Future[TurnState]:
        """Queue what begins an episode that its partner begins."""
        return self._tools(episode).begin() if self._has_tools else self.scorer.next_turn((), episode.row)

    def follow(self, episode: Episode[Any], text: str, reading: Reading | None = None) -> Future[TurnState]:
        """Queue what follows the next move: a completion, or what a model says that plays against the policy."""
        if not self._has_tools:
            return self.scorer.next_turn((*episode.state.moves, text), episode.row)
        assert reading is not None, "who samples for a task with tools reads the calls"
        return self._tools(episode).answer(episode.state.moves, text, reading, episode.prompt)

    @property
    def _has_tools(self) -> bool:
        return self.scorer.task.task.has_tools

    def _tools(self, episode: Episode[Any]) -> ToolSession:
        if episode.tools is None:
            episode.tools = self.scorer.session(episode.row)
        return episode.tools

    def score(self, episode: Episode[Any]) -> dict[str, Future[Score]]:
        """Queue the scoring of an episode, which may be cut off before its end, for each role that learns."""
        roles, state = episode.partner.roles(episode.row), episode.state
        if state.fault == "timeout" and episode.turns:
            return {role: self.scorer.out_of_time(episode.row, state.why) for role in roles}
        if state.fault or not episode.turns:
            why = state.why or "the opponent left nothing to play"
            failed = Score(None, why=why, fault=state.fault or "infrastructure")
            return {role: resolved(failed) for role in roles}
        texts = episode.scored_texts()
        if episode.tools is not None:
            return {role: episode.tools.score(text) for role, text in texts.items()}
        return {role: self.scorer.submit(text, episode.row) for role, text in texts.items()}


Table = tuple[Player, Episode[Answer]]


def play(
    tables: Sequence[Table[Answer]],
    sample: Callable[[list[int]], Iterator[tuple[int, Reply[Answer] | Unanswered]]],
    ended: Callable[[int], None] = lambda index: None,
) -> None:
    """Play episodes to their end, in place, and wait.

    Args:
        tables: Who plays what.
        sample: Samples the next turn of the episodes with these indices: yields (index, reply) as each finishes.
        ended: Called with the index of each episode that is over, in any order.
    """
    schedule = rounds(tables, ended)
    asked = run(_until_asked(schedule, None))
    while asked is not None:
        asked = run(_until_asked(schedule, sample(asked)))


def rounds(tables: Sequence[Table[Answer]], ended: Callable[[int], None] = lambda index: None) -> Rounds:
    """Play in lock step: every episode gets its next completion before any gets the one after it.

    It begins where the episodes are, which may be in their middle. Arguments are those of `play`.
    """
    following = {
        index: player.begin(episode) for index, (player, episode) in enumerate(tables) if not episode.has_begun
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
        for index, reply in (yield asked) if asked else ():
            player, episode = tables[index]
            if isinstance(reply, Unanswered):
                episode.break_off("no completion", reply)
            else:
                episode.take(reply)
                if episode.task.has_turns:  # what follows is computed while others are still sampled
                    following[index] = player.follow(episode, reply.text, reply.reading)
                else:
                    episode.follow(TurnState((reply.text,)))
            if episode.is_over:
                ended(index)
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
                following[index] = player.follow(episode, answer[0])
                continue
            episode.break_off("the opponent did not answer", answer)
            ended(index)
    return following


def _until_asked(
    schedule: Rounds, replies: Iterator[tuple[int, Reply[Answer] | Unanswered]] | None
) -> Steps[list[int] | None]:
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


def play_arriving(
    tables: Sequence[Table[Answer]],
    generate: Callable[[Arrivals], Iterator[tuple[int, Completion]]],
    request: Callable[[int], Request | Unanswered],
    reply: Callable[[int, tuple[int, ...], Completion], Reply[Answer]],
    ended: Callable[[int], None] = lambda index: None,
) -> float:
    """Play episodes with tools to their end, in place: each goes on as soon as its tools have answered.

    Returns the seconds in which nothing was sampled, since every episode waited for its tools.

    Args:
        tables: Who plays what.
        generate: Samples requests as they come; see `TakesArrivals`.
        request: Makes the request for an episode's next completion, by its index.
        reply: Makes the reply of index, prompt and completion.
        ended: Called with the index of each episode that is over, in any order.
    """
    arriving = _Arriving(tables, request, ended)
    for index, completion in generate(arriving):
        arriving.answered(index, reply(index, arriving.sampled.pop(index), completion))
    return arriving.idle_s


class _Arriving:
    """The requests of episodes, each of which comes when its tools have answered.

    Args:
        tables: As for `play_arriving`.
        request: As there.
        ended: As there.

    Attributes:
        sampled: Prompts of the requests that have no completion yet.
        idle_s: Seconds in which there was none.
    """

    def __init__(
        self,
        tables: Sequence[Table[Any]],
        request: Callable[[int], Request | Unanswered],
        ended: Callable[[int], None],
    ) -> None:
        self._tables, self._request, self._ended = tables, request, ended
        self.sampled: dict[int, tuple[int, ...]] = {}
        self.idle_s = 0.0
        self._states: SimpleQueue[tuple[int, Future[TurnState]]] = SimpleQueue()
        self._awaited = 0
        self._ready = []
        for index, (player, episode) in enumerate(tables):
            if episode.has_begun:
                self._ready.append(index)
            else:
                self._await(index, player.begin(episode))

    def take(self, *, wait: bool) -> list[tuple[int, Request]] | None:
        """See `Arrivals`."""
        requests: list[tuple[int, Request]] = []
        ready, self._ready = self._ready, []
        for index in ready:
            requests += self._requested(index)
        while self._awaited:
            started = time.perf_counter()
            try:
                index, future = self._states.get(block=wait and not requests)
            except Empty:
                break
            self.idle_s += time.perf_counter() - started
            self._awaited -= 1
            self._tables[index][1].follow(future.result())
            requests += self._requested(index)
        return requests if requests or self._awaited or self.sampled else None

    def answered(self, index: int, reply: Reply[Any]) -> None:
        """Go on with a completion."""
        player, episode = self._tables[index]
        episode.take(reply)
        self._await(index, player.follow(episode, reply.text, reply.reading))

    def _await(self, index: int, state: Future[TurnState]) -> None:
        self._awaited += 1
        state.add_done_callback(lambda future: self._states.put((index, future)))

    def _requested(self, index: int) -> list[tuple[int, Request]]:
        episode = self._tables[index][1]
        if not episode.is_over:
            request = self._request(index)
            if isinstance(request, Request):
                self.sampled[index] = request.prompt_ids
                return [(index, request)]
            episode.break_off("no completion", request)
        self._ended(index)
        return []


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
        self.episode: Episode[Any] = Episode(player.scorer.task, row, key, prompt)

    @property
    def is_over(self) -> bool:
        """Whether no turn follows."""
        return self.episode.is_over

    def begin(self) -> Steps[bool]:
        """Begin; returns whether the policy has a turn, as it has unless a game ends before."""
        yield from _until_asked(rounds([(self.player, self.episode)]), None)
        return not self.is_over

    def step(self, text: str, reading: Reading | None = None, answer: Any = None) -> Steps[bool]:
        """Play the policy's completion; returns whether it has another turn, whose prompt is `episode.prompt`.

        Args:
            text: The completion.
            reading: What it says, in a task with tools.
            answer: The completion as its sampler represents it.
        """
        schedule = rounds([(self.player, self.episode)])
        yield from _until_asked(schedule, None)
        yield from _until_asked(schedule, iter([(0, Reply(text, answer, reading))]))
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
    if task.task.has_tools:
        turns, has_results = read_tool_turns(text)
        if not has_results:
            *_, state = scorer.session(row).play(turns)
            turns = state.moves
        return tool_story(turns)
    if task.task.remote is not None or not task.task.validates_all_turns:
        return ()
    told = SteppedEpisode(Player(scorer), row, task.prompt(row), SampleKey(0, 0, row.id, 0))
    for completion in read_turns(text):
        if not run(told.step(completion)):
            break
    return told.episode.messages


def first_prompt(scorer: Scorer, row: Row) -> Prompt:
    """The first prompt of a row's episodes: what its task makes, and what `reset()` of an environment adds.

    Raises:
        GrpoError: `reset()` failed.
    """
    if scorer.task.task.environment is None:
        return scorer.task.prompt(row)
    state = next(scorer.session(row).play(()))
    if state.prompt is None:
        raise GrpoError(f"row {row.id!r}: {state.why}")
    return state.prompt
