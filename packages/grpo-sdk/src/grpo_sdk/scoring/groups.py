"""Scores of the completions of whole prompts: the group rewards added to what each completion earns by itself."""

from __future__ import annotations

from collections.abc import Sequence

from grpo_sdk.killable.pool import WaitAll, wait_all
from grpo_sdk.scoring.judged import with_verdicts
from grpo_sdk.scoring.scorer import Scorer
from grpo_sdk.task.group_grading import GroupParts, is_compared, with_group_parts
from grpo_sdk.task.row import Row
from grpo_sdk.task.score import Score

Group = tuple[Sequence[str], Row, Sequence[Score]]
"""Completions of one prompt, their row, and the score of each by itself."""


def group_scores(scorer: Scorer, groups: Sequence[Group], wait: WaitAll = wait_all) -> list[list[Score]]:
    """Scores with the group rewards of the scorer's task, which its killable workers compute.

    A group whose rewards hang or crash abstains as a whole; it never costs another group anything.

    Args:
        scorer: Scorer of the task.
        groups: The groups.
        wait: Waits for results.
    """
    compared = [
        [text for text, score in zip(texts, scores, strict=True) if is_compared(score)] for texts, _, scores in groups
    ]
    compared_groups = [number for number, texts in enumerate(compared) if len(texts) > 1]
    answers = wait([scorer.submit_group(compared[number], groups[number][1]) for number in compared_groups])
    parts = dict(zip(compared_groups, with_verdicts(scorer.task, answers, scorer.ask, wait), strict=True))
    return [
        with_group_parts(scorer.task, scores, parts.get(number, GroupParts()))
        for number, (_, _, scores) in enumerate(groups)
    ]
