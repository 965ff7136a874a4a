"""From prompts to scored rollouts: sample every completion, scoring each one as it finishes.

Tasks of one turn are sampled at once; those of several, games among them, follow in lock step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from grpo_core.engines.base import Request, SampleKey, Sampling, StopRequested
from grpo_core.engines.completion import Completion
from grpo_core.rollouts.multi_turn import RolloutContext, episode_rollouts
from grpo_core.rollouts.opponents import play_opponents
from grpo_core.rollouts.prompt_group import PromptGroup, rollout_of
from grpo_core.rollouts.rollout import Rollout, Turn
from grpo_core.task.score import Score


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
    single = {group: one for group, one in enumerate(groups) if not one.draw.task.has_turns}
    several = {group: one for group, one in enumerate(groups) if one.draw.task.has_turns}
    made: dict[int, list[Rollout]] = {}
    if single or not several:
        made |= _single_turns(single, context, sampling, generations, step)
    if several:
        made |= episode_rollouts(several, context, sampling, generations, step)
    return [rollout for group in range(len(groups)) for rollout in made[group]]


def _single_turns(
    groups: Mapping[int, PromptGroup], context: RolloutContext, sampling: Sampling, generations: int, step: int
) -> dict[int, list[Rollout]]:
    """Rollouts by group. Scores overlap with sampling; a task with an opponent waits for its whole batch."""
    scorers, opponents = context.scoring.scorers, context.scoring.opponents
    asked = [group for group in groups for _ in range(generations)]
    requests = [
        Request(
            one.prompt_ids,
            SampleKey(context.seed, step, one.draw.prompt_id, sample),
            stop=one.draw.task.task.stop,
            max_completion_length=one.draw.task.task.max_completion_length,
        )
        for one in groups.values()
        for sample in range(generations)
    ]
    completions: dict[int, Completion] = {}
    pending: dict[int, Future[Score]] = {}
    for index, completion in context.engine.generate(requests, sampling):
        if context.should_stop():
            raise StopRequested
        completions[index] = completion
        draw = groups[asked[index]].draw
        if draw.label not in opponents:
            pending[index] = scorers[draw.label].submit(completion.text, draw.row)
    scores = {index: future.result() for index, future in pending.items()}
    for label, opponent in opponents.items():
        mine = [index for index, group in enumerate(asked) if groups[group].draw.label == label]
        if not mine:
            continue
        texts = [completions[index].text for index in mine]
        rows = [groups[asked[index]].draw.row for index in mine]
        keys = [requests[index].key for index in mine]
        scores.update(zip(mine, play_opponents(scorers[label], texts, rows, opponent, keys=keys), strict=True))
    made: dict[int, list[Rollout]] = {group: [] for group in groups}
    for index, (group, request) in enumerate(zip(asked, requests, strict=True)):
        turns = (Turn(request.prompt_ids, completions[index], trained=True),)
        made[group].append(rollout_of(groups[group], group, turns, scores[index]))
    return made
