"""What comes out of a sweep: each configuration with intervals, the best one, and differences paired by seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from grpo_core.evaluation.intervals import Bounds, difference_interval, mean_interval
from grpo_core.evaluation.output import csv_of
from grpo_core.launch.sweep.definition import Goal
from grpo_core.launch.sweep.folder import RunStatus
from grpo_core.launch.sweep.metrics import DEFAULT, bounds_of, goal_of, measure, name_in, numbers_of
from grpo_sdk.errors import UserError, unknown_name
from grpo_sdk.intervals import UNKNOWN, Interval


@dataclass(frozen=True, slots=True)
class Configuration:
    """A configuration with the results of its seeds.

    Attributes:
        number: Its number.
        settings: Its varied settings.
        runs: Its runs.
        values: Seed -> the metric of its finished runs.
        result: Mean over the seeds with its interval; with one seed the run's value with its own interval.
        difference: Mean difference to the baseline over the seeds that both have; None without any.
    """

    number: int
    settings: dict[str, str]
    runs: Sequence[RunStatus]
    values: dict[int | None, float]
    result: Interval | None
    difference: Interval | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """A sweep's results.

    Attributes:
        metric: Whole name of the metric; empty while no run has finished.
        goal: Whether its maximum or minimum is best.
        baseline: Number of the configuration that others are compared with.
        best: Number of the best configuration; None while no run has finished.
        rivals: Numbers of those that may be as good: the interval of their difference from the best holds 0, or is not
            known.
        configurations: All configurations.
    """

    metric: str
    goal: Goal
    baseline: int
    best: int | None
    rivals: Sequence[int]
    configurations: Sequence[Configuration]


def summarize(statuses: Sequence[RunStatus], metric: str | None, goal: Goal | None, baseline: int | None) -> Summary:
    """Summarize the runs of a sweep.

    Args:
        statuses: Its runs.
        metric: Metric to compare; by default the held-out solved rate.
        goal: Whether its maximum or minimum is best; None if that is known.
        baseline: Number of the configuration to compare with; by default the first one.

    Raises:
        UserError: no run has the metric, its direction is not known, or there is no such configuration.
    """
    wanted = metric or DEFAULT
    direction = goal_of(wanted, goal)
    finished = {each.run.name: numbers_of(each.path) for each in statuses if each.path and each.state == "finished"}
    name = next(filter(None, (name_in(numbers, wanted) for numbers in finished.values())), "")
    if finished and not name:
        known = sorted({each for numbers in finished.values() for each in numbers})
        raise unknown_name("metric of these runs", wanted, known)
    by_number: dict[int, list[RunStatus]] = {}
    for status in statuses:
        by_number.setdefault(status.run.configuration, []).append(status)
    bounds = bounds_of(name, next((status.path for status in statuses if status.run.name in finished), None))
    configurations = []
    for number, runs in sorted(by_number.items()):
        found = {status.run.seed: measure(finished.get(status.run.name, {}), name) for status in runs}
        measured = {seed: interval for seed, interval in found.items() if interval is not None}
        values = {seed: interval.value for seed, interval in measured.items()}
        only = next(iter(measured.values()), None)
        result = mean_interval(list(values.values()), bounds) if len(measured) > 1 else only
        configurations.append(Configuration(number, runs[0].run.settings, runs, values, result))
    first = baseline if baseline is not None else min(by_number, default=1)
    base = next((each for each in configurations if each.number == first), None)
    if base is None and configurations:
        raise UserError(f"--baseline {first}: configurations are numbered from 1 to {max(by_number)}.")
    compared = [replace(each, difference=_difference(each, base, bounds)) for each in configurations]
    best = _best(compared, direction)
    rivals = [each.number for each in compared if best is not None and _may_equal(best, each, bounds)]
    return Summary(name or wanted, direction, first, best.number if best else None, rivals, compared)


def _difference(each: Configuration, base: Configuration | None, bounds: Bounds) -> Interval | None:
    """Difference of two configurations over the seeds that both have; None without any.

    Of one seed, it is that of two runs with an interval each (Zou and Donner 2008, Statistics in Medicine 27).
    """
    if base is None or each.number == base.number or each.result is None or base.result is None:
        return None
    pairs = [each.values[seed] - base.values[seed] for seed in each.values if seed in base.values]
    if len(pairs) == len(each.values) == len(base.values) == 1:
        above, below = each.result, base.result
        low = math.hypot(above.value - above.low, below.high - below.value)
        high = math.hypot(above.high - above.value, below.value - below.low)
        return Interval(pairs[0], pairs[0] - low, pairs[0] + high, 1)
    return difference_interval(pairs, bounds) if pairs else None


def _may_equal(best: Configuration, other: Configuration, bounds: Bounds) -> bool:
    """Whether another configuration with results may be as good as the best one."""
    difference = _difference(other, best, bounds)
    is_other = other.number != best.number and other.result is not None
    return is_other and (difference is None or not (difference.low > 0 or difference.high < 0))


def _best(configurations: Iterable[Configuration], goal: Goal) -> Configuration | None:
    """The best configuration of those with the most finished seeds: a mean over few seeds is best by luck."""
    known = [each for each in configurations if each.result is not None]
    most = max((len(each.values) for each in known), default=0)
    sign = 1 if goal == "max" else -1
    return max(
        (each for each in known if len(each.values) == most),
        key=lambda each: sign * (each.result.value if each.result is not None else math.nan),
        default=None,
    )


def as_data(summary: Summary) -> dict[str, Any]:
    """Return a summary as plain data for JSON."""
    return {
        "metric": summary.metric,
        "goal": summary.goal,
        "baseline": summary.baseline,
        "best": summary.best,
        "rivals": list(summary.rivals),
        "configurations": [
            {
                "number": each.number,
                "settings": each.settings,
                "runs": [_run(status, each) for status in each.runs],
                **(each.result or UNKNOWN).as_json("value"),
                "seeds": len(each.values),
                **(each.difference or UNKNOWN).as_json("difference"),
                "paired_seeds": (each.difference or UNKNOWN).n,
            }
            for each in summary.configurations
        ],
    }


def _run(status: RunStatus, of: Configuration) -> dict[str, Any]:
    return {
        "name": status.run.name,
        "seed": status.run.seed,
        "state": status.state,
        "exit_code": status.exit_code,
        "last_line": status.last_line,
        "value": of.values.get(status.run.seed),
        "run": None if status.path is None else str(status.path),
    }


def configurations_csv(summary: Summary) -> str:
    """Return a line for each configuration."""
    rows = []
    for each in as_data(summary)["configurations"]:
        states = [run["state"] for run in each.pop("runs")]
        settings = each.pop("settings")
        best = each["number"] == summary.best
        counts = {state: states.count(state) for state in ("finished", "failed")}
        rows.append({"configuration": each.pop("number"), **settings, **each, **counts, "best": best})
    return csv_of(rows)


def runs_csv(summary: Summary) -> str:
    """Return a line for each run."""
    each_run = ((each, run) for each in as_data(summary)["configurations"] for run in each["runs"])
    return csv_of([{"configuration": each["number"], **each["settings"], **run} for each, run in each_run])
