"""Group rewards of sampled rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from grpo_core.rollouts.rollout import PromptGroup, Rollout
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
    size = len(rollouts) // max(1, len(groups))
    completed = list(rollouts)
    for label, scorer in scoring.scorers.items():
        if not scorer.task.task.group_specs():
            continue
        starts = [number * size for number, group in enumerate(groups) if group.draw.label == label]
        members = [rollouts[start : start + size] for start in starts]
        for start, scores in zip(starts, compared_scores(members, scorer, wait), strict=True):
            for place, score in enumerate(scores, start):
                completed[place] = replace(rollouts[place], score=score)
    return completed


def compared_scores(groups: Sequence[Sequence[Rollout]], scorer: Scorer, wait: WaitAll = wait_all) -> list[list[Score]]:
    """The scores of the rollouts of each group, with the group rewards of their task.

    They see the texts that were scored, which are the answers that the other rewards see.

    Args:
        groups: Scored rollouts, group by group.
        scorer: Scorer of their task.
        wait: Waits for results.
    """
    compared = []
    for own in groups:
        texts = [rollout.text if rollout.scored_text is None else rollout.scored_text for rollout in own]
        compared.append((texts, own[0].row, [rollout.score for rollout in own]))
    return group_scores(scorer, compared, wait)
