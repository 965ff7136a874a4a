"""Numbers that tasks compute themselves. A wrong one is refused with a warning, and ends no training."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from typing import Any

from grpo_sdk.errors import UserError
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.calling import call_by_name, where_raised
from grpo_sdk.task.evaluation import EvaluationReport
from grpo_sdk.task.score import Score

MAX_NAME_CHARS = 120
"""Longest name of a metric: trackers show so much in one line."""

MAX_QUOTED_CHARS = 200
"""Longest text of an exception that is quoted in a warning."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers that a task's function returned.

    Attributes:
        values: Finite numbers by name.
        problems: A sentence for each number that was refused; the same mistake gives the same sentence.
    """

    values: dict[str, float] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


class MetricNames:
    """Owners of the names of metrics: every name has one.

    Args:
        owner_of: Describes the owner that a name has from the start; empty where it has none.
    """

    def __init__(self, owner_of: Callable[[str], str] = lambda name: "") -> None:
        self._owner_of = owner_of
        self._owners: dict[str, str] = {}

    def claim(self, name: str, owner: str) -> str:
        """Register a name for `owner`; returns another owner that it has already, or an empty string."""
        current = self._owner_of(name) or self._owners.setdefault(name, owner)
        return "" if current == owner else current

    def claimed(self, numbers: Numbers, owner: str) -> Numbers:
        """The numbers whose names belong to `owner`; the others become a problem for each owner that they have."""
        values: dict[str, float] = {}
        others: dict[str, list[str]] = {}
        for name, value in numbers.values.items():
            if other := self.claim(name, owner):
                others.setdefault(other, []).append(name)
            else:
                values[name] = value
        problems = (
            taken(names[0], owner, other)
            if len(names) == 1
            else f"{owner} logs {names[0]!r} and more, which are {other}'s already; call them otherwise"
            for other, names in others.items()
        )
        return Numbers(values, (*numbers.problems, *problems))


def taken(name: str, owner: str, other: str) -> str:
    """Message for a name that two owners want."""
    return f"{owner} logs {name!r}, which is {other}'s already; call it otherwise"


def batch_numbers(task: BoundTask, scores: Sequence[Score]) -> Numbers:
    """The numbers of `Task.metrics` for a batch, abstentions included; empty for a task without it."""
    if task.task.metrics is None:
        return Numbers()
    call = partial(call_by_name, task.task.metrics, {"scores": scores}, positional=1)
    return numbers_of(f"task {task.name!r}: metrics()", call)


def reported_numbers(task: BoundTask, report: EvaluationReport) -> Numbers:
    """The numbers of the task's `EvaluationDefaults.report`; empty for a task without it."""
    function = task.evaluation.report
    if function is None:
        return Numbers()
    return numbers_of(f"task {task.name!r}: report()", lambda: function(report))


def known_names(tasks: Sequence[BoundTask], owner_of: Callable[[str], str]) -> MetricNames:
    """Register the names of each task's metrics, as far as they are known before the first score.

    Each function is called once, with no scores. The names it returns are registered; if it raises, none are.

    Raises:
        UserError: a name that is taken already; names both.
    """
    names = MetricNames(owner_of)
    for task in tasks:
        for name in batch_numbers(task, ()).values:
            if other := names.claim(name, task.name):
                raise UserError(f"task {taken(name, task.name, other)}.")
    return names


def step_numbers(
    tasks: Mapping[str, BoundTask], labels: Sequence[str], scores: Sequence[Score], names: MetricNames
) -> dict[str, Numbers]:
    """The numbers of every task for its part of a step, by the task's name.

    Args:
        tasks: Tasks by label; two of one name (with other options) are one batch.
        labels: Task label of each score.
        scores: Scores of the step.
        names: Owners of the metrics' names.
    """
    by_name: dict[str, tuple[BoundTask, list[Score]]] = {}
    for label, score in zip(labels, scores, strict=True):
        by_name.setdefault(tasks[label].name, (tasks[label], []))[1].append(score)
    return {name: names.claimed(batch_numbers(task, batch), name) for name, (task, batch) in by_name.items()}


def numbers_of(who: str, call: Callable[[], Any]) -> Numbers:
    """The numbers that a function of a plugin returns; its errors become problems and are not raised.

    Args:
        who: Name of the function, for messages.
        call: Calls the function.
    """
    try:
        numbers = call()
    except (Exception, SystemExit) as error:  # somebody else's code: a training does not end for a number about it
        text = " ".join(str(error).split())[:MAX_QUOTED_CHARS]
        return Numbers(problems=(f"{who} raised {type(error).__name__} ({where_raised(error)}): {text}",))
    if numbers is None:
        return Numbers()
    if not isinstance(numbers, Mapping):
        return Numbers(problems=(f"{who} gave a {type(numbers).__name__}, it must give numbers by name",))
    values, problems = {}, []
    for name, value in numbers.items():
        if wrong := _refused(name, value):
            problems.append(f"{who}: {wrong}; it is left out")
        else:
            values[name] = float(value)
    return Numbers(values, tuple(problems))


def _refused(name: Any, value: Any) -> str:
    """Why a name or its number is refused, or an empty string."""
    if not isinstance(name, str) or not name.isprintable() or len(name) > MAX_NAME_CHARS:
        return f"{name!r:.{MAX_NAME_CHARS}} is no name of at most {MAX_NAME_CHARS} printable characters"
    if "/" not in name.strip("/") or name != name.strip("/"):
        return f"{name!r} must hold a '/', as in 'task/number'"
    if not isinstance(value, Real):  # NumPy's numbers are Real too, a tensor is not
        return f"{name!r} is a {type(value).__name__} and no number"
    try:
        return "" if math.isfinite(value) else f"{name!r} is {value}"
    except OverflowError:
        return f"{name!r} is an integer that no float holds"
