"""Rollouts of several turns, with the tokens that were sampled in each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from grpo_core.engines.base import Engine, Request, SampleKey, Sampling, StopRequested
from grpo_core.engines.completion import Completion
from grpo_core.engines.encode import encode_continuation, encode_prompt
from grpo_core.rollouts.episodes import Answering, Play, Reply, play
from grpo_core.rollouts.prompt_group import PromptGroup, rollout_of
from grpo_core.rollouts.rollout import Rollout, Turn
from grpo_core.rollouts.task_scoring import Scoring


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutContext:
    """Engine, scorers and keys of rollouts, the same in every step.

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
    scores = {place: played.scores() for place, played in plays.items()}

    def rollout(number: int, group: PromptGroup, sample: int) -> Rollout:
        place = (group.draw.position, sample)
        played, score = plays[place], scores[place][group.role].result()
        scored_text = played.scored_texts().get(group.role)
        return rollout_of(group, number, _turns(played, group.role), score, played.story, scored_text=scored_text)

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
