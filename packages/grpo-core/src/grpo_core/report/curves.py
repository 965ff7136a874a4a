"""Means with intervals, and distributions, of a run's completions over its steps, gathered in one pass."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from grpo_core.evaluation.intervals import RATE, Bounds, mean_interval
from grpo_sdk.records.rollouts import RolloutRecord

MAX_POINTS = 60
"""Points of a curve; longer runs have means over equal numbers of steps."""

REWARD_CELLS, LENGTH_CELLS = 24, 24
"""Cells of a distribution, from its lowest to its highest value."""


@dataclass(slots=True)
class TaskTally:
    """What a task's groups did: one number per group, so that an interval counts prompts and not completions.

    Attributes:
        steps: [G] step of each group.
        reward: [G] mean reward of its scored completions; NaN where none was scored.
        solved: [G] share of them that are solved.
        parts: Reward function -> (step, mean raw value) of each group that has it.
        abstained: Step -> completions without a score.
        faults: Fault and reason -> completions.
        samples: (step, reward, tokens) of every completion.
    """

    steps: array[int] = field(default_factory=lambda: array("q"))
    reward: array[float] = field(default_factory=lambda: array("d"))
    solved: array[float] = field(default_factory=lambda: array("d"))
    parts: dict[str, tuple[array[int], array[float]]] = field(default_factory=dict)
    abstained: dict[int, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    samples: tuple[array[int], array[float], array[int]] = field(
        default_factory=lambda: (array("q"), array("d"), array("q"))
    )

    def add(self, group: Sequence[RolloutRecord]) -> None:
        """Count the completions of one prompt."""
        step = group[0].step
        scored = [record for record in group if not record.score.abstained]
        rewards = [reward_of(record) for record in scored]
        self.steps.append(step)
        self.reward.append(float(np.mean(rewards)) if rewards else math.nan)
        self.solved.append(sum(record.score.solved for record in scored) / len(scored) if scored else math.nan)
        for name in dict.fromkeys(name for record in scored for name in record.score.parts):
            values = [record.score.parts[name] for record in scored if name in record.score.parts]
            steps, means = self.parts.setdefault(name, (array("q"), array("d")))
            steps.append(step)
            means.append(float(np.mean(values)))
        self.abstained[step] = self.abstained.get(step, 0) + len(group) - len(scored)
        for record in group:
            if record.score.abstained:
                fault = f"{record.score.fault or 'not scored'}: {record.score.why}"
                self.faults[fault] = self.faults.get(fault, 0) + 1
            self.samples[0].append(step)
            self.samples[1].append(reward_of(record))
            self.samples[2].append(record.tokens)

    def as_json(self, edges: np.ndarray[Any, Any]) -> dict[str, Any]:
        """Curves over the spans between `edges`, and distributions."""
        steps, rewards, tokens = (np.asarray(column) for column in self.samples)
        known = [value for value in self.samples[1] if not math.isnan(value)]
        return {
            "reward": curve(self.steps, self.reward, edges, _extent(known)),
            "solved": curve(self.steps, self.solved, edges, RATE),
            "parts": {name: curve(steps, means, edges, _extent(means)) for name, (steps, means) in self.parts.items()},
            "abstained": [[step, count] for step, count in sorted(self.abstained.items()) if count],
            "faults": sorted(self.faults.items(), key=lambda item: -item[1])[:20],
            "reward_cells": cells(steps, rewards, edges, REWARD_CELLS),
            "length_cells": cells(steps, tokens.astype(np.float64), edges, LENGTH_CELLS),
        }


def reward_of(record: RolloutRecord) -> float:
    """Reward that the advantage was computed from; of older runs the score's value; NaN where it was not scored."""
    value = record.score.value if record.reward is None else record.reward
    return math.nan if value is None or record.score.abstained else value


def _extent(values: Sequence[float]) -> Bounds:
    """What the run earned at least and at most; a report does not load the task, which may declare more."""
    return min(values, default=-math.inf), max(values, default=math.inf)


def spans(last: int) -> np.ndarray[Any, Any]:
    """Edges of at most `MAX_POINTS` equal spans of the steps 1 to `last`; a span ends before its upper edge."""
    width = max(1, math.ceil(last / MAX_POINTS))
    return np.arange(1, last + width + 1, width)


def curve(
    steps: Sequence[int], values: Sequence[float], edges: np.ndarray[Any, Any], bounds: Bounds
) -> list[list[float | None]]:
    """Means over spans of steps with 95% intervals over the groups, within the bounds.

    Returns:
        [first step, last step, mean, low, high, groups] of each span that has a value.
    """
    at, known = np.asarray(steps), np.asarray(values, dtype=np.float64)
    at, known = at[np.isfinite(known)], known[np.isfinite(known)]
    index = np.searchsorted(edges, at, side="right") - 1
    points: list[list[float | None]] = []
    for span in np.unique(index):
        inside, n = known[index == span], int((index == span).sum())
        interval = mean_interval(inside, bounds)
        ends = [None if math.isnan(end) else round(float(end), 6) for end in (interval.low, interval.high)]
        own = at[index == span]
        points.append([int(own.min()), int(own.max()), round(interval.value, 6), *ends, n])
    return points


def cells(
    steps: np.ndarray[Any, Any], values: np.ndarray[Any, Any], edges: np.ndarray[Any, Any], count: int
) -> dict[str, Any] | None:
    """Share of completions in each cell of (span of steps) x (span of values); None where there is no value."""
    steps, values = steps[np.isfinite(values)], values[np.isfinite(values)]
    if not len(values):
        return None
    low, high = float(values.min()), float(values.max())
    if low == high:
        low, high = low - 0.5, high + 0.5
    borders = np.linspace(low, high, count + 1)
    counts, _, _ = np.histogram2d(steps, values, bins=(np.append(edges[:-1], edges[-1]), borders))
    totals = counts.sum(axis=1)
    found = [
        [int(edges[x]), int(edges[x + 1]), round(float(borders[y]), 6), round(float(borders[y + 1]), 6),
         round(float(counts[x, y] / totals[x]), 6)]
        for x, y in zip(*np.nonzero(counts), strict=True)
    ]  # fmt: skip
    index = np.searchsorted(edges, steps, side="right") - 1
    means = [
        [int(edges[span]), int(edges[span + 1]), round(float(values[index == span].mean()), 6)]
        for span in np.unique(index)
    ]
    return {"cells": found, "means": means}
