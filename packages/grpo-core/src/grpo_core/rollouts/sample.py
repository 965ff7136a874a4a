"""From prompts to scored rollouts: sample every completion, and score each episode as soon as it is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from grpo_core.rollouts.rollout import PromptGroup, Rollout, Turn
from grpo_core.rollouts.task_scoring import Scoring
from grpo_sdk.endpoints.base import Arrivals, Engine, Request, SampleKey, Sampling, StopRequested, TakesArrivals
from grpo_sdk.endpoints.completion import Completion
from grpo_sdk.episodes.episode import Episode, Reply
from grpo_sdk.episodes.opponents import Unanswered
from grpo_sdk.episodes.player import Table, play, play_arriving
from grpo_sdk.killable.pool import wait_all
from grpo_sdk.task.score import Score

Result = TypeVar("Result")

ASK_EVERY_S = 0.25
"""Time between looks at scores that are waited for."""

SHOW_AFTER_S = 2.0
"""Time after which waiting is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutContext:
    """Engine, scorers and seed of rollouts, the same in every step.

    Attributes:
        engine: Samples the completions.
        scoring: Scorers and opponents of the tasks.
        seed: Seed of the run; with the step it names the random numbers.
        max_context: Tokens that fit the model; a conversation that leaves no room for a completion is over.
        should_stop: Whether to stop; called after every completion, and while scores are waited for.
        on_wait: Told how many scores there are, and how many there will be, once they take a while.
        on_idle: Told for how many seconds nothing was sampled, since every episode waited for its tools (`arrival`).
        schedule: When an episode with tools goes on: as soon as they have answered (`arrival`), or when every episode
            has had its turn (`rounds`).
    """

    engine: Engine
    scoring: Scoring
    seed: int
    max_context: int | None = None
    should_stop: Callable[[], bool] = lambda: False
    on_wait: Callable[[int, int], None] = lambda done, total: None
    on_idle: Callable[[float], None] = lambda seconds: None
    schedule: Literal["arrival", "rounds"] = "rounds"

    def until_stopped(self, completions: Iterable[tuple[int, Completion]]) -> Iterator[tuple[int, Completion]]:
        """What the engine samples, as each completion finishes.

        Raises:
            StopRequested: `should_stop` is true.
        """
        for index, completion in completions:
            if self.should_stop():
                raise StopRequested
            yield index, completion

    def wait(self, futures: Sequence[Future[Result]]) -> list[Result]:
        """Results in order. A judge may take minutes, so a stop takes the rest back.

        Raises:
            StopRequested: `should_stop` is true.
        """
        started = time.monotonic()
        while (outcome := wait(futures, timeout=ASK_EVERY_S)).not_done:
            if self.should_stop():
                for future in reversed(futures):  # first those that have begun would let others begin
                    future.cancel()
                raise StopRequested
            if time.monotonic() - started >= SHOW_AFTER_S:
                self.on_wait(len(futures) - len(outcome.not_done), len(futures))
        return wait_all(futures)


def sample_rollouts(
    groups: Sequence[PromptGroup], context: RolloutContext, sampling: Sampling, generations: int, step: int
) -> list[Rollout]:
    """Sample `generations` rollouts of each group and score them.

    Tasks of one turn are sampled in one batch; those of several turns and games follow, in a batch for each turn, then
    those with tools.

    Args:
        groups: One for each group, in order; the groups of an episode side by side.
        context: Engine, scorers and opponents.
        sampling: How completions are sampled.
        generations: G.
        step: 1 for the first.

    Returns:
        G rollouts per group, group by group.

    Raises:
        StopRequested: `context.should_stop` is true.
    """
    kinds: dict[str, dict[int, PromptGroup]] = {"single": {}, "several": {}, "tools": {}}
    for number, group in enumerate(groups):
        task = group.draw.task
        kind = "tools" if task.task.has_tools else "several" if task.has_turns else "single"
        kinds[kind][number] = group
    rollouts: dict[int, list[Rollout]] = {}
    for part in kinds.values():
        if part:
            rollouts |= _sampled(part, context, sampling, generations, step)
    return [rollout for number in range(len(groups)) for rollout in rollouts[number]]


def _sampled(
    groups: Mapping[int, PromptGroup], context: RolloutContext, sampling: Sampling, generations: int, step: int
) -> dict[int, list[Rollout]]:
    """Rollouts by the number of their group; several groups are the sides of one episode."""
    players = {label: context.scoring[label] for label in {group.draw.label for group in groups.values()}}
    tables: dict[tuple[str, int], Table[Turn]] = {}
    for group in groups.values():
        draw, task = group.draw, group.draw.task
        if (draw.prompt_id, 0) in tables:
            continue
        prompt = task.prompt(draw.row) if task.has_turns and task.task.game is None else ""
        for sample in range(generations):
            key = SampleKey(context.seed, step, draw.prompt_id, sample)
            tables[draw.prompt_id, sample] = players[draw.label], Episode(task, draw.row, key, prompt)
    scored = _played(list(tables.values()), groups, context, sampling)
    outcomes = dict(zip(tables, scored, strict=True))

    def rollout(number: int, group: PromptGroup, sample: int) -> Rollout:
        _, episode = tables[group.draw.prompt_id, sample]
        scores, predictions = outcomes[group.draw.prompt_id, sample]
        return Rollout(
            spec=group.draw.task.spec,
            row=group.draw.row,
            group=number,
            role=group.role,
            turns=_turns(episode, group.role),
            score=scores[group.role],
            messages=tuple(episode.messages),
            scored_text=episode.scored_texts().get(group.role),
            predictions=None if predictions is None else tuple(predictions),
        )

    return {
        number: [rollout(number, group, sample) for sample in range(generations)] for number, group in groups.items()
    }


Outcome = tuple[Mapping[str, Score], Sequence[str] | None]
"""Role -> score of an episode, and the opponent's answers to its completion; None where none was asked."""


def _played(
    tables: Sequence[Table[Turn]], groups: Mapping[int, PromptGroup], context: RolloutContext, sampling: Sampling
) -> list[Outcome]:
    """Play the episodes in place, and score them; a task whose answers go to an opponent waits for its whole batch."""
    engine = context.engine
    first_ids = {group.draw.prompt_id: group.prompt_ids for group in groups.values()}
    pending: dict[tuple[int, str], Future[Score]] = {}
    asking: dict[int, list[int]] = {}

    def request_of(index: int) -> Request | Unanswered:
        player, episode = tables[index]
        has_turns = episode.task.has_turns
        ids = player.encoder.prompt_ids(episode) if has_turns else first_ids[episode.key.prompt_id]
        request = player.encoder.request(episode, ids)
        needed = len(ids) + request.limit(sampling)
        if has_turns and context.max_context is not None and needed > context.max_context:
            why = f"{needed} tokens with the completion; the model's context is {context.max_context}"
            return Unanswered(why, is_unreadable=True)
        return request

    def reply(index: int, ids: tuple[int, ...], completion: Completion) -> Reply[Turn]:
        return tables[index][0].encoder.reply(ids, completion, Turn(ids, completion))

    def sample(asked: Sequence[int]) -> Iterator[tuple[int, Reply[Turn] | Unanswered]]:
        found = {index: request_of(index) for index in asked}
        requests = {index: each for index, each in found.items() if isinstance(each, Request)}
        yield from ((index, each) for index, each in found.items() if isinstance(each, Unanswered))
        indices = list(requests)
        for position, completion in context.until_stopped(engine.generate(list(requests.values()), sampling)):
            index = indices[position]
            yield index, reply(index, requests[index].prompt_ids, completion)

    def ended(index: int) -> None:
        player, episode = tables[index]
        if player.asks_opponent:
            asking.setdefault(id(player), []).append(index)
        else:
            pending.update({(index, role): future for role, future in player.score(episode).items()})

    has_tools = all(group.draw.task.task.has_tools for group in groups.values())
    if has_tools and context.schedule == "arrival" and isinstance(engine, TakesArrivals):

        def sample_arriving(arrivals: Arrivals) -> Iterator[tuple[int, Completion]]:
            return context.until_stopped(engine.generate_arriving(arrivals, sampling))

        context.on_idle(play_arriving(tables, sample_arriving, request_of, reply, ended))
    else:
        play(tables, sample, ended)
    scores: list[dict[str, Score]] = [{} for _ in tables]
    predictions: list[Sequence[str] | None] = [None] * len(tables)
    for (index, role), score in zip(pending, context.wait(list(pending.values())), strict=True):
        scores[index][role] = score
    for indices in asking.values():
        answered = tables[indices[0]][0].ask_opponent([tables[index][1] for index in sorted(indices)])
        for index, score, said in zip(sorted(indices), answered.scores, answered.predictions, strict=True):
            scores[index][""], predictions[index] = score, said
    return list(zip(scores, predictions, strict=True))


def _turns(episode: Episode[Turn], role: str) -> tuple[Turn, ...]:
    """The turns of a role; an illegal move that a random one replaced is no decision that had consequences."""
    replaced = episode.state.replaced
    return tuple(
        replace(turn.answer, trained=False) if turn.place in replaced else turn.answer
        for turn in episode.turns
        if turn.role == role
    )
