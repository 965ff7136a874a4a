"""The metric by which the runs of a sweep are compared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from grpo_core.evaluation.intervals import RATE, UNBOUNDED, Bounds, bounds_in
from grpo_core.launch.sweep.definition import Goal
from grpo_core.tracking.evaluations import evaluation_metrics
from grpo_core.tracking.runs import is_number, read_summary
from grpo_sdk.errors import UserError, near_match
from grpo_sdk.intervals import Interval
from grpo_sdk.records.jsonl import TRAIN_LOG, read_jsonl, read_last

DEFAULT = "solved_rate"

MORE = frozenset({
    "solved_rate", "mean_reward", "reward", "delta", "reward_delta", "valid_rate", "tokens_per_s", "samples_per_s",
    "ci_low", "ci_high", "mean",
})  # fmt: skip
"""Last words of metrics that are better when they are higher; so is every pass@K."""

LESS = frozenset({
    "seconds", "peak_memory_mib", "generate_mib", "update_mib", "abstained", "truncated_frac", "frac_reward_zero_std",
    "kl", "tokens",
})  # fmt: skip
"""Last words of metrics that are better when they are lower."""

_SUMMARY = ("seconds", "tokens", "peak_memory_mib")
"""Numbers of summary.json that are compared like metrics."""


def bounds_of(metric: str, path: Path | None) -> Bounds:
    """The smallest and the largest possible value of a metric: of a share, of a task's reward, or infinite.

    Args:
        metric: Whole name of the metric.
        path: Folder of a finished run, whose summary has the bounds of the reward; None where no run has finished.
    """
    folder, _, last = metric.rpartition("/")
    if last.endswith(("_rate", "_frac")) or last.startswith("pass@"):
        return RATE
    if last == "mean_reward" and path is not None and (summary := read_summary(path)):
        return bounds_in(summary.get("tasks", {}).get(folder.removeprefix("eval/"), {}).get("final", {}))
    return UNBOUNDED


def numbers_of(path: Path) -> dict[str, float]:
    """Return every number that a finished run ends with: of its last step, its cost, and its final evaluation."""
    numbers = {name: float(value) for name, value in read_last(path / TRAIN_LOG).items() if is_number(value)}
    summary = read_summary(path)
    numbers |= {name: float(summary[name]) for name in _SUMMARY if is_number(summary.get(name))}
    tasks = summary.get("tasks")
    for task, entry in tasks.items() if isinstance(tasks, dict) else ():
        if isinstance(entry, dict) and isinstance(entry.get("final"), dict):
            numbers |= evaluation_metrics(task, entry["final"])
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


def interim_values(path: Path, metric: str) -> dict[int, float]:
    """Return a metric of the interval evaluations of a run, by step."""
    values: dict[int, float] = {}
    for line in read_jsonl(path / "logs" / "evaluations.jsonl"):
        value = value_of(line, metric)
        if line.get("phase") == "interval" and isinstance(line.get("step"), int) and value is not None:
            values[line["step"]] = value
    return values


def name_in(numbers: Mapping[str, object], metric: str) -> str | None:
    """Return the whole name of a metric; one word is first that of an evaluation: `eval/TASK/METRIC`."""
    evaluated = next((name for name in numbers if name.startswith("eval/") and name.endswith(f"/{metric}")), None)
    return evaluated or (metric if metric in numbers else None)


def value_of(numbers: Mapping[str, object], metric: str) -> float | None:
    """Return the value of a metric; None if the numbers do not have it."""
    name = name_in(numbers, metric)
    value = None if name is None else numbers[name]
    return float(value) if isinstance(value, int | float) and is_number(value) else None


def measure(numbers: Mapping[str, float], metric: str) -> Interval | None:
    """Return a metric of one run with the interval that was logged with it; None if the run does not have it."""
    name = name_in(numbers, metric)
    if name is None:
        return None
    folder, _, last = name.rpartition("/")
    ends = (f"{folder}/ci_low", f"{folder}/ci_high") if last == "solved_rate" else (f"{name}_ci_low", f"{name}_ci_high")
    low, high = (numbers.get(end, math.nan) for end in ends)
    return Interval(numbers[name], low, high, 1)


def goal_of(metric: str, given: Goal | None) -> Goal:
    """Return whether a metric's maximum or its minimum is best.

    Args:
        metric: Name of the metric.
        given: What the user says; None if nothing.

    Raises:
        UserError: it is not known, and nothing is given.
    """
    last = metric.rpartition("/")[2]
    if given is not None:
        return given
    if last in MORE or last.startswith("pass@"):
        return "max"
    if last in LESS:
        return "min"
    near = near_match(last, sorted(MORE | LESS))
    raise UserError(f"is a high or a low {metric} best? Give --goal max or --goal min.{near}")
