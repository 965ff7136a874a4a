"""Rollouts of several turns, with the tokens that were sampled in each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from grpo_core.engines.base import Engine, Request, SampleKey, Sampling, StopRequested
from grpo_core.engines.encode import encode_continuation, encode_prompt
from grpo_core.rollouts.episodes import Answering, Play, Reply, play
from grpo_core.rollouts.prompt_group import PromptGroup, rollout_of
from grpo_core.rollouts.rollout import Rollout, Turn
from grpo_core.rollouts.task_scoring import Scoring


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutContext:
    """What rollouts are made with, the same in every step.

    Attributes:
        engine: Samples the completions.
        scoring: Scorers and opponents of the tasks.
        seed: Seed of the run; with the step it names the random numbers.
        tokenizer: Tokenizer of the policy.
        max_context: Tokens that fit the model; a conversation that leaves no room for a completion is over.
        should_stop: Whether to stop; called after every completion.
    """

    engine: Engine
    scoring: Scoring
    seed: int
    tokenizer: Any
    max_context: int | None = None
    should_stop: Callable[[], bool] = lambda: False


def episode_rollouts(
    groups: Mapping[int, PromptGroup], context: RolloutContext, sampling: Sampling, generations: int, step: int
) -> dict[int, list[Rollout]]:
    """G rollouts of each group; the groups of an episode are its sides.

    Args and errors are those of `sample_rollouts`, groups by their number.
    """
    plays: dict[tuple[int, int], Play[Turn]] = {}
    for one in groups.values():
        draw, task = one.draw, one.draw.task
        for sample in range(generations):
            if (draw.position, sample) not in plays:
                key = SampleKey(context.seed, step, draw.prompt_id, sample)
                scorer, opponent = context.scoring[draw.label]
                plays[draw.position, sample] = Play(task, scorer, draw.row, key, task.prompt(draw.row), opponent)
    play(list(plays.values()), _answering(context, sampling))
    scores = {place: one.scores() for place, one in plays.items()}
    made: dict[int, list[Rollout]] = {}
    for group, one in groups.items():
        made[group] = []
        for sample in range(generations):
            place = (one.draw.position, sample)
            turns = _turns(plays[place], one.role)
            made[group].append(rollout_of(one, group, turns, scores[place][one.role].result(), plays[place].story))
    return made


def _turns(played: Play[Turn], role: str) -> tuple[Turn, ...]:
    """What a role answered; an illegal move that a random one replaced is no decision that had consequences."""
    mine = (turn for turn in played.turns if turn.role == role)
    return tuple(replace(turn.made, trained=turn.place not in played.replaced) for turn in mine)


def _answering(context: RolloutContext, sampling: Sampling) -> Answering[Turn]:
    def answer(plays: Sequence[Play[Turn]]) -> Iterator[tuple[int, Reply[Turn]]]:
        requests: dict[int, Request] = {}
        for index, one in enumerate(plays):
            task = one.task.task
            ids = _encoded(one, context.tokenizer)
            request = Request(ids, one.turn_key, stop=task.stop, max_completion_length=task.max_completion_length)
            needed = len(ids) + request.limit(sampling)
            if context.max_context is not None and needed > context.max_context:
                why = f"{needed} tokens with the completion; the model's context is {context.max_context}"
                yield index, Reply("", None, error=why, is_full=bool(one.turns))
            else:
                requests[index] = request
        places = list(requests)
        for at, completion in context.engine.generate(list(requests.values()), sampling):
            if context.should_stop():
                raise StopRequested
            index = places[at]
            yield index, Reply(completion.text, Turn(requests[index].prompt_ids, completion, trained=True))

    return answer


def _encoded(one: Play[Turn], tokenizer: Any) -> tuple[int, ...]:
    if not one.goes_on:
        return encode_prompt(tokenizer, one.prompt)
    last = one.turns[-1]
    sampled = last.made.completion.token_ids
    return encode_continuation(tokenizer, last.made.prompt_ids, sampled, last.prompt, last.text, one.prompt)
