"""Group rewards of sampled rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from grpo_core.rollouts.prompt_group import PromptGroup
from grpo_core.rollouts.rollout import Rollout
from grpo_core.rollouts.task_scoring import Scoring
from grpo_sdk.killable.pool import WaitAll, wait_all
from grpo_sdk.scoring.groups import group_scores
from grpo_sdk.scoring.scorer import Scorer
from grpo_sdk.task.score import Score


def with_group_rewards(
    rollouts: Sequence[Rollout], groups: Sequence[PromptGroup], scoring: Scoring, wait: WaitAll = wait_all
) -> list[Rollout]:
    """Rollouts whose scores include the group rewards of their tasks.

    Args:
        rollouts: Scored rollouts, group by group, equally many of each.
        groups: The groups.
        scoring: Scorers of their tasks.
        wait: Waits for results.
    """
    if not groups:
        return list(rollouts)
    size = len(rollouts) // len(groups)
    completed = list(rollouts)
    for label, scorer in scoring.scorers.items():
        if not scorer.task.task.group_specs():
            continue
        numbers = [number for number, group in enumerate(groups) if group.draw.label == label]
        members = [rollouts[number * size : (number + 1) * size] for number in numbers]
        scored = compared_scores(members, scorer, wait)
        for number, own, scores in zip(numbers, members, scored, strict=True):
            completed[number * size : (number + 1) * size] = [
                replace(rollout, score=score, status="abstained" if score.abstained else "scored")
                for rollout, score in zip(own, scores, strict=True)
            ]
    return completed


def compared_scores(groups: Sequence[Sequence[Rollout]], scorer: Scorer, wait: WaitAll = wait_all) -> list[list[Score]]:
    """The scores of the rollouts of each group, with the group rewards of their task.

    Args:
        groups: Scored rollouts, group by group.
        scorer: Scorer of their task.
        wait: Waits for results.
    """
    return group_scores(scorer, [(_texts(own), own[0].row, _scores(own)) for own in groups], wait)


def _texts(rollouts: Sequence[Rollout]) -> list[str]:
    """The texts that were scored, so that a group reward sees the answers that the other rewards see."""
    return [rollout.text if rollout.scored_text is None else rollout.scored_text for rollout in rollouts]


def _scores(rollouts: Sequence[Rollout]) -> list[Score]:
    return [rollout.score for rollout in rollouts if rollout.score is not None]
