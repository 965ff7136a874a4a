"""From prompts to scored rollouts: sample every completion, scoring each one as it finishes.

Tasks of one turn are sampled at once; those of several, games among them, follow in lock step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from grpo_core.rollouts.multi_turn import RolloutContext, episode_rollouts
from grpo_core.rollouts.prompt_group import PromptGroup, rollout_of
from grpo_core.rollouts.rollout import Rollout, Turn
from grpo_sdk.endpoints.base import Request, Sampling
from grpo_sdk.endpoints.completion import Completion
from grpo_sdk.episodes.opponents import play_opponents
from grpo_sdk.task.score import Score


def sample_rollouts(
    groups: Sequence[PromptGroup], context: RolloutContext, sampling: Sampling, generations: int, step: int
) -> list[Rollout]:
    """Sample `generations` rollouts of each group and score them.

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
    single = {number: group for number, group in enumerate(groups) if not group.draw.task.has_turns}
    several = {number: group for number, group in enumerate(groups) if group.draw.task.has_turns}
    rollouts: dict[int, list[Rollout]] = {}
    if single or not several:
        rollouts |= _single_turns(single, context, sampling, generations, step)
    if several:
        rollouts |= episode_rollouts(several, context, sampling, generations, step)
    return [rollout for number in range(len(groups)) for rollout in rollouts[number]]


def _single_turns(
    groups: Mapping[int, PromptGroup], context: RolloutContext, sampling: Sampling, generations: int, step: int
) -> dict[int, list[Rollout]]:
    """Rollouts by group. Scores overlap with sampling; a task with an opponent waits for its whole batch."""
    scorers, opponents = context.scoring.scorers, context.scoring.opponents
    draws = [group.draw for group in groups.values() for _ in range(generations)]
    requests = [
        Request(
            group.prompt_ids,
            context.key(group, sample, step),
            stop=group.draw.task.task.stop,
            max_completion_length=group.draw.task.task.max_completion_length,
        )
        for group in groups.values()
        for sample in range(generations)
    ]
    completions: dict[int, Completion] = {}
    pending: dict[int, Future[Score]] = {}
    for index, completion in context.generate(requests, sampling):
        completions[index] = completion
        draw = draws[index]
        if draw.label not in opponents:
            pending[index] = scorers[draw.label].submit(completion.text, draw.row)
    scores = dict(zip(pending, context.wait(list(pending.values())), strict=True))
    predictions: dict[int, tuple[str, ...] | None] = {}
    for label, opponent in opponents.items():
        indices = [index for index, draw in enumerate(draws) if draw.label == label]
        if not indices:
            continue
        texts = [completions[index].text for index in indices]
        rows = [draws[index].row for index in indices]
        keys = [requests[index].key for index in indices]
        played = play_opponents(scorers[label], texts, rows, opponent, keys=keys)
        scores.update(zip(indices, played.scores, strict=True))
        predictions.update(zip(indices, played.predictions, strict=True))
    numbers = [number for number in groups for _ in range(generations)]
    rollouts: dict[int, list[Rollout]] = {number: [] for number in groups}
    for index, (number, request) in enumerate(zip(numbers, requests, strict=True)):
        text, turns = completions[index].text, (Turn(request.prompt_ids, completions[index], trained=True),)
        answers = predictions.get(index)
        rollouts[number].append(
            rollout_of(groups[number], number, turns, scores[index], scored_text=text, predictions=answers)
        )
    return rollouts
