"""Values of inspect-ai's scores as numbers, as `value_to_float` of inspect-ai makes them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from inspect_ai._util.registry import registry_info, registry_unqualified_name
from inspect_ai.scorer import CORRECT, INCORRECT, NOANSWER, PARTIAL, Score, value_to_float

from grpo_sdk import UserError
from grpo_tasks_gym.foreign.source import MAX_REWARDS, NoVerdict

LETTERS = (CORRECT, INCORRECT, PARTIAL, NOANSWER)
WORDS = ("yes", "no", "true", "false")
"""Texts that `value_to_float` knows; for any other that is no number it logs a warning, and gives 0."""

_to_float = value_to_float()


def parts_of(scorer: Any, score: Score | None) -> list[tuple[str, str]]:
    """(key of the scorer's value, name of the reward) of each; a plain value has an empty key.

    Args:
        scorer: The scorer.
        score: A score that it gave, where there is one: of a value with keys it tells them.
    """
    name = registry_unqualified_name(scorer)
    value: Any = None if score is None else score.value
    keys: list[str] = []
    if isinstance(value, Mapping):
        keys = list(value)
    elif _is_list(value):
        keys = [str(place) for place in range(len(value))]
    else:
        metrics = registry_info(scorer).metadata.get("metrics")
        if value is None and isinstance(metrics, Mapping):
            keys = [key for key in metrics if "*" not in key and "?" not in key]
    if len(keys) > MAX_REWARDS:
        raise UserError(f"scorer {name} gives {len(keys)} values; at most {MAX_REWARDS} can be rewards.")
    return [(key, f"{name}_{key}") for key in keys] or [("", name)]


def numbers(scores: Sequence[Score | None], parts: Sequence[Mapping[str, str]]) -> dict[str, float]:
    """Value of every reward.

    Args:
        scores: Score of each scorer.
        parts: Of each scorer, the reward of each key of its value.

    Raises:
        NoVerdict: a scorer gave none, or none that is a number.
    """
    values: dict[str, float] = {}
    for score, names in zip(scores, parts, strict=True):
        scorer = " and ".join(names.values())
        if score is None:
            raise NoVerdict(f"scorer {scorer} gave no score")
        for key, value in _by_key(score, scorer, names).items():
            values[names[key]] = _number(value, names[key], score)
    return values


def _by_key(score: Score, scorer: str, names: Mapping[str, str]) -> dict[str, Any]:
    value: Any = score.value
    if isinstance(value, Mapping):
        by_key = dict(value)
    elif _is_list(value):
        by_key = {str(place): item for place, item in enumerate(value)}
    else:
        by_key = {"": value}
    if isinstance(value, float) and math.isnan(value):
        raise NoVerdict(_unscored(scorer, score))
    if set(by_key) != set(names):
        given, known = (", ".join(key or "one value" for key in keys) for keys in (by_key, names))
        raise NoVerdict(f"scorer {scorer} gave {given or 'nothing'}, where its first score had {known}")
    return by_key


def _number(value: Any, name: str, score: Score) -> float:
    if value is None:
        raise NoVerdict(_unscored(name, score))
    if isinstance(value, str) and value not in LETTERS and value.lower() not in WORDS and not _is_numeric(value):
        raise NoVerdict(f"scorer {name} gave {value!r:.60}, which is no number")
    number: float = _to_float(value)
    if not math.isfinite(number):
        raise NoVerdict(_unscored(name, score))
    return number


def _is_numeric(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _unscored(name: str, score: Score) -> str:
    why = score.reason or score.explanation or ""
    return f"scorer {name} left it unscored{f': {why:.200}' if why else ''}"
