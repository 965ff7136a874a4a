"""Rollouts of several turns, with the tokens that were sampled in each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from grpo_core.rollouts.prompt_group import PromptGroup, rollout_of
from grpo_core.rollouts.rollout import Rollout, Turn
from grpo_core.rollouts.task_scoring import Scoring
from grpo_sdk.endpoints.base import Engine, Request, SampleKey, Sampling, StopRequested
from grpo_sdk.endpoints.completion import Completion
from grpo_sdk.endpoints.encode import encode_continuation, encode_prompt
from grpo_sdk.episodes.episodes import Answering, Play, Reply, play
from grpo_sdk.killable.pool import wait_all

Result = TypeVar("Result")

ASK_EVERY_S = 0.25
"""Time between looks at scores that are waited for."""

SHOW_AFTER_S = 2.0
"""Time after which waiting is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutContext:
    """Engine, scorers and keys of rollouts, the same in every step.

    Attributes:
        engine: Samples the completions.
        scoring: Scorers and opponents of the tasks.
        seed: Seed of the run; with the step it names the random numbers.
        tokenizer: Tokenizer of the policy.
        max_context: Tokens that fit the model; a conversation that leaves no room for a completion is over.
        should_stop: Whether to stop; called after every completion, and while scores are waited for.
        on_wait: Told how many scores there are, and how many there will be, once they take a while.
    """

    engine: Engine
    scoring: Scoring
    seed: int
    tokenizer: Any
    max_context: int | None = None
    should_stop: Callable[[], bool] = lambda: False
    on_wait: Callable[[int, int], None] = lambda done, total: None

    def key(self, group: PromptGroup, sample: int, step: int) -> SampleKey:
        """Name the random numbers of a rollout's first turn."""
        return SampleKey(self.seed, step, group.draw.prompt_id, sample)

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        """Sample completions; yields (index, completion) as each finishes.

        Raises:
            StopRequested: `should_stop` is true.
        """
        for index, completion in self.engine.generate(requests, sampling):
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
                for future in outcome.not_done:
                    future.cancel()
                raise StopRequested
            if time.monotonic() - started >= SHOW_AFTER_S:
                self.on_wait(len(futures) - len(outcome.not_done), len(futures))
        return wait_all(futures)


def episode_rollouts(
    groups: Mapping[int, PromptGroup], context: RolloutContext, sampling: Sampling, generations: int, step: int
) -> dict[int, list[Rollout]]:
    """Sample G rollouts of each group; the groups of an episode are its sides.

    Args and errors are those of `sample_rollouts`, groups by their number.
    """
    plays: dict[tuple[int, int], Play[Turn]] = {}
    for group in groups.values():
        draw, task = group.draw, group.draw.task
        for sample in range(generations):
            if (draw.position, sample) not in plays:
                key = context.key(group, sample, step)
                scorer, opponent = context.scoring[draw.label]
                plays[draw.position, sample] = Play(task, scorer, draw.row, key, task.prompt(draw.row), opponent)
    play(list(plays.values()), _answering(context, sampling))
    scores = {(place, role): future for place, each in plays.items() for role, future in each.scores().items()}
    results = dict(zip(scores, context.wait(list(scores.values())), strict=True))

    def rollout(number: int, group: PromptGroup, sample: int) -> Rollout:
        place = (group.draw.position, sample)
        played, score = plays[place], results[place, group.role]
        scored_text = played.scored_texts().get(group.role)
        return rollout_of(group, number, _turns(played, group.role), score, played.messages, scored_text=scored_text)

    return {
        number: [rollout(number, group, sample) for sample in range(generations)] for number, group in groups.items()
    }


def _turns(played: Play[Turn], role: str) -> tuple[Turn, ...]:
    """The turns of a role; an illegal move that a random one replaced is no decision that had consequences."""
    return tuple(
        replace(turn.answer, trained=turn.place not in played.replaced) for turn in played.turns if turn.role == role
    )


def _answering(context: RolloutContext, sampling: Sampling) -> Answering[Turn]:
    def answer(plays: Sequence[Play[Turn]]) -> Iterator[tuple[int, Reply[Turn]]]:
        requests: dict[int, Request] = {}
        for index, played in enumerate(plays):
            task = played.task.task
            ids = _encoded(played, context.tokenizer)
            request = Request(ids, played.turn_key, stop=task.stop, max_completion_length=task.max_completion_length)
            needed = len(ids) + request.limit(sampling)
            if context.max_context is not None and needed > context.max_context:
                why = f"{needed} tokens with the completion; the model's context is {context.max_context}"
                yield index, Reply("", None, error=why, is_full=bool(played.turns))
            else:
                requests[index] = request
        indices = list(requests)
        for position, completion in context.generate(list(requests.values()), sampling):
            index = indices[position]
            yield index, Reply(completion.text, Turn(requests[index].prompt_ids, completion, trained=True))

    return answer


def _encoded(played: Play[Turn], tokenizer: Any) -> tuple[int, ...]:
    if not played.goes_on:
        return encode_prompt(tokenizer, played.prompt)
    last = played.turns[-1]
    sampled = last.answer.completion.token_ids
    return encode_continuation(tokenizer, last.answer.prompt_ids, sampled, last.prompt, last.text, played.prompt)
