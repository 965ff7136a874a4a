"""Rollouts of several turns, with the tokens that were sampled in each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from grpo_core.engines.base import Engine, Request, SampleKey, Sampling, StopRequested
from grpo_core.engines.encode import encode_continuation, encode_prompt
from grpo_core.rollouts.episodes import Answering, Play, Reply, play
from grpo_core.rollouts.opponents import OpponentSampler
from grpo_core.rollouts.prompt_group import Prompted, rollout_of
from grpo_core.rollouts.rollout import Rollout, Turn
from grpo_core.scoring import Scorer


@dataclass(frozen=True, slots=True)
class Conversing:
    """How a rollout of several turns goes on.

    Attributes:
        tokenizer: Of the policy.
        max_context: Tokens that fit the model; a conversation that leaves no room for a completion is over.
    """

    tokenizer: Any
    max_context: int | None = None


def episode_rollouts(
    prompted: Mapping[int, Prompted],
    *,
    engine: Engine,
    scorers: Mapping[str, Scorer],
    sampling: Sampling,
    generations: int,
    seed: int,
    step: int,
    opponents: Mapping[str, OpponentSampler],
    conversing: Conversing,
    should_stop: Callable[[], bool],
) -> dict[int, list[Rollout]]:
    """G rollouts of each group; the groups of an episode are its sides.

    Args and errors are those of `sample_rollouts`, groups by their number.
    """
    plays: dict[tuple[int, int], Play[Turn]] = {}
    for one in prompted.values():
        draw, task = one.draw, one.draw.task
        for sample in range(generations):
            if (draw.position, sample) not in plays:
                key = SampleKey(seed, step, draw.prompt_id, sample)
                plays[draw.position, sample] = Play(
                    task, scorers[draw.label], draw.row, key, task.prompt(draw.row), opponents.get(draw.label)
                )
    answer = _answering(engine, sampling, conversing, should_stop)
    play(list(plays.values()), answer)
    scores = {place: one.scores() for place, one in plays.items()}
    made: dict[int, list[Rollout]] = {}
    for group, one in prompted.items():
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


def _answering(
    engine: Engine, sampling: Sampling, conversing: Conversing, should_stop: Callable[[], bool]
) -> Answering[Turn]:
    def answer(plays: Sequence[Play[Turn]]) -> Iterator[tuple[int, Reply[Turn]]]:
        requests: dict[int, Request] = {}
        for index, one in enumerate(plays):
            task = one.task.task
            ids = _encoded(one, conversing.tokenizer)
            request = Request(ids, one.turn_key, stop=task.stop, max_completion_length=task.max_completion_length)
            needed = len(ids) + request.limit(sampling)
            if conversing.max_context is not None and needed > conversing.max_context:
                why = f"{needed} tokens with the completion; the model's context is {conversing.max_context}"
                yield index, Reply("", None, error=why, is_full=bool(one.turns))
            else:
                requests[index] = request
        places = list(requests)
        for at, completion in engine.generate(list(requests.values()), sampling):
            if should_stop():
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
