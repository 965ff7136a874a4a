"""Numbers that tasks compute themselves: what a task's function gives is logged or refused, and ends no training."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from typing import Any

from grpo_core.errors import UserError
from grpo_core.task.bound import BoundTask
from grpo_core.task.calling import call_by_name, where_raised
from grpo_core.task.evaluation import EvaluationReport
from grpo_core.task.score import Score

MAX_NAME_CHARS = 120
"""Of a metric's name: what trackers show in one line."""

MAX_SAID_CHARS = 200
"""Of what is quoted in a warning."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """What a task's function gave.

    Attributes:
        values: Finite numbers by name.
        problems: What is wrong with the rest, a sentence each; the same mistake gives the same sentence.
    """

    values: dict[str, float] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


class MetricNames:
    """Who logs under which name: every name has one owner.

    Args:
        owner_of: Who owns a name from the start, in words; an empty string where nobody does.
    """

    def __init__(self, owner_of: Callable[[str], str] = lambda name: "") -> None:
        self._owner_of = owner_of
        self._owners: dict[str, str] = {}

    def claim(self, name: str, owner: str) -> str:
        """Take a name for `owner`; says whose it is already, or nothing."""
        known = self._owner_of(name) or self._owners.setdefault(name, owner)
        return "" if known == owner else known

    def claimed(self, numbers: Numbers, owner: str) -> Numbers:
        """Those of the numbers whose names are the owner's; for each other one a problem that names both."""
        values, problems = {}, list(numbers.problems)
        for name, value in numbers.values.items():
            if other := self.claim(name, owner):
                problems.append(taken(name, owner, other))
            else:
                values[name] = value
        return Numbers(values, tuple(problems))


def taken(name: str, owner: str, other: str) -> str:
    """The sentence about a name that two want."""
    return f"{owner} logs {name!r}, which is {other}'s already; call it otherwise"


def batch_numbers(task: BoundTask, scores: Sequence[Score]) -> Numbers:
    """What `Task.metrics` says of a batch, abstentions included; nothing for a task without it."""
    if task.task.metrics is None:
        return Numbers()
    call = partial(call_by_name, task.task.metrics, {"scores": scores}, positional=1)
    return numbers_of(f"task {task.name!r}: metrics()", call)


def reported_numbers(task: BoundTask, report: EvaluationReport) -> Numbers:
    """What the task's `EvaluationDefaults.report` says of an evaluation; nothing for a task without it."""
    function = task.evaluation.report
    if function is None:
        return Numbers()
    return numbers_of(f"task {task.name!r}: report()", lambda: function(report))


def known_names(tasks: Sequence[BoundTask], owner_of: Callable[[str], str]) -> MetricNames:
    """The names of each task's metrics, as far as they can be known before the first score.

    Each function is asked once, with no scores. What it gives then, claims its names; that it raises then says nothing.

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
    """What every task says of its part of a step, by the task's name.

    Args:
        tasks: By label; two of one name (with other options) are one batch.
        labels: Of each score.
        scores: Of the step.
        names: Of the run.
    """
    by_name: dict[str, tuple[BoundTask, list[Score]]] = {}
    for label, score in zip(labels, scores, strict=True):
        by_name.setdefault(tasks[label].name, (tasks[label], []))[1].append(score)
    return {name: names.claimed(batch_numbers(task, mine), name) for name, (task, mine) in by_name.items()}


def numbers_of(who: str, call: Callable[[], Any]) -> Numbers:
    """The numbers that somebody else's function gives; what is wrong with them is said, not raised.

    Args:
        who: The function, as messages name it.
        call: Calls it.
    """
    try:
        made = call()
    except (Exception, SystemExit) as error:  # somebody else's code: a training does not end for a number about it
        said = " ".join(str(error).split())[:MAX_SAID_CHARS]
        return Numbers(problems=(f"{who} raised {type(error).__name__} ({where_raised(error)}): {said}",))
    if made is None:
        return Numbers()
    if not isinstance(made, Mapping):
        return Numbers(problems=(f"{who} gave a {type(made).__name__}, it must give numbers by name",))
    values, problems = {}, []
    for name, value in made.items():
        if wrong := _refused(name, value):
            problems.append(f"{who}: {wrong}; it is left out")
        else:
            values[name] = float(value)
    return Numbers(values, tuple(problems))


def _refused(name: Any, value: Any) -> str:
    """What is wrong with a name or its number, or nothing."""
    if not isinstance(name, str) or not name.isprintable() or len(name) > MAX_NAME_CHARS:
        return f"{name!r:.{MAX_NAME_CHARS}} is no name of at most {MAX_NAME_CHARS} printable characters"
    if "/" not in name.strip("/") or name != name.strip("/"):
        return f"{name!r} must hold a '/', as in 'task/number'"
    if not isinstance(value, Real):  # NumPy's numbers are Real too, a tensor is not
        return f"{name!r} is a {type(value).__name__} and no number"
    return "" if math.isfinite(value) else f"{name!r} is {value}"
