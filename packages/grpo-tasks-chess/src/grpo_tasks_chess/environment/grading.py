"""Grades of a predicted outcome: pure functions of the prediction and the true outcome."""

from __future__ import annotations

from rapidfuzz.distance import Levenshtein

from grpo_sdk import Invalid
from grpo_tasks_chess.formats import EnvironmentAnswer, read_environment

REWARD_STEPS = ((0.01, 1.0), (0.1, 0.7), (0.3, 0.4))
"""Grades of a predicted reward: (upper limit of the error, grade)."""

FAR = 0.1
"""Grade of a reward with a larger error."""

LARGEST_REWARD_ERROR = 2.0
"""Between a mate, 1.0, and an illegal move, −1.0."""


def fen_distance(predicted: str, true: str) -> float:
    """Return Levenshtein distance / length of the longer FEN: 0 if they are equal, at most 1."""
    return Levenshtein.normalized_distance(predicted, true)


def game_state_grade(predicted: EnvironmentAnswer, true: EnvironmentAnswer) -> float:
    """Return the share of the two flags that are right."""
    return ((predicted.terminated == true.terminated) + (predicted.truncated == true.truncated)) / 2


def reward_grade(predicted: float, true: float) -> float:
    """Return 1.0 for an error below 0.01, 0.7 below 0.1, 0.4 below 0.3, else 0.1."""
    error = abs(predicted - true)
    return next((worth for limit, worth in REWARD_STEPS if error < limit), FAR)


def prediction(text: str) -> EnvironmentAnswer | None:
    """Return what a completion predicts; None for one of another form."""
    try:
        return read_environment(text)
    except Invalid:
        return None
