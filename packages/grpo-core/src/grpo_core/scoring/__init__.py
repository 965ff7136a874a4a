"""Scores from killable worker processes, and what to do when too many are missing."""

from grpo_core.scoring.abstention import ScorerStats, check_abstentions, reason_head
from grpo_core.scoring.groups import group_scores
from grpo_core.scoring.scorer import MAX_TEXT_CHARS, Scorer, score, shared_scorer

__all__ = [
    "MAX_TEXT_CHARS",
    "Scorer",
    "ScorerStats",
    "check_abstentions",
    "group_scores",
    "reason_head",
    "score",
    "shared_scorer",
]
