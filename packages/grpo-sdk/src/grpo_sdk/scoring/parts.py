"""The parts of a score under the same names in every sample, as other trainers' logs need them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.score import Score


def all_parts(task: BoundTask, score: Score) -> dict[str, float]:
    """Every part of a score; 0 for a reward that was not computed, e.g. because the completion is invalid."""
    return {name: score.parts.get(name, 0.0) for name in part_names(task)}


def part_names(task: BoundTask) -> tuple[str, ...]:
    """Names of a task's rewards, those that compare the completions of a prompt last."""
    return tuple(spec.name for spec in (*task.rewards, *task.task.group_specs()))


def log_values(task: BoundTask, score: Score) -> dict[str, float]:
    """What a trainer logs of a score: `solved`, `valid` and every part."""
    return {"solved": float(score.solved), "valid": float(score.valid)} | all_parts(task, score)


class PartColumns:
    """The reward functions of several tasks as K columns, for baselines that see each function by itself.

    Penalties and group rewards are among them; those of weight 0 only record a fact, and are not. Functions that share
    a name share a column, each with the weight that it has in its own task.

    Args:
        tasks: Tasks by label.
    """

    def __init__(self, tasks: Mapping[str, BoundTask]) -> None:
        self._weights = {
            label: {spec.name: spec.weight for spec in (*task.rewards, *task.task.group_specs()) if spec.weight}
            for label, task in tasks.items()
        }
        self._names = tuple(dict.fromkeys(name for weights in self._weights.values() for name in weights))

    def values(self, labels: Sequence[str], scores: Sequence[Score]) -> list[list[float]]:
        """[N][K] raw values; NaN where a completion was not scored or its task has no such function."""
        return [
            [
                score.parts.get(name, math.nan) if name in self._weights[label] and not score.abstained else math.nan
                for name in self._names
            ]
            for label, score in zip(labels, scores, strict=True)
        ]

    def weights(self, labels: Sequence[str]) -> list[list[float]]:
        """[N][K] weights in each completion's task; 0 where it has no such function."""
        return [[self._weights[label].get(name, 0.0) for name in self._names] for label in labels]
