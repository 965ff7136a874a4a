"""The table of checks, and what runs them on a task: a command, or items of pytest."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from grpo_sdk.check.checks import processes, rows, scores, tools
from grpo_sdk.check.results import Result, TaskReport, failed, not_applicable
from grpo_sdk.check.subject import DEFAULT_ROWS, Subject
from grpo_sdk.errors import UserError, unknown_name
from grpo_sdk.plugins.task_objects import AnyTask
from grpo_sdk.plugins.tasks import load_task
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.calling import where_raised
from grpo_sdk.task.exemptions import CHECKS, TOOL_CHECKS

FUNCTIONS: Mapping[str, Callable[[Subject], Result]] = {
    "gold": scores.gold,
    "junk": scores.junk,
    "bounds": scores.bounds,
    "range": scores.observed_range,
    "ladder": scores.ladder,
    "group": scores.group,
    "hostile": processes.hostile,
    "latency": processes.latency,
    "determinism": processes.determinism,
    "imports": processes.imports,
    "rows": rows.rows,
    "split": rows.split,
    "leak": rows.leak,
    "feedback": rows.feedback,
    "demos": rows.demos,
    "perfect": processes.perfect,
    "schema": tools.schema,
    "hang": tools.hang,
    "crash": tools.crash,
    "oversized": tools.oversized,
    "arguments": tools.arguments,
    "repeat": tools.repeat,
    "state": tools.state,
    "pay": tools.pay,
}
"""Name of each check, as in `CHECKS` -> its function."""

PLAIN = tuple(name for name in CHECKS if name not in TOOL_CHECKS)
"""The checks of a task without tools."""


def chosen_checks(selection: str) -> list[str]:
    """The checks that a selection names: names separated by commas, all of them where it is empty.

    Raises:
        UserError: there is no such check, or no name between the commas.
    """
    names = [name.strip() for name in selection.split(",") if name.strip()]
    if selection.strip() and not names:
        raise UserError(f"checks {selection!r} names no check; write names separated by commas: {', '.join(CHECKS)}.")
    for name in names:
        if name not in CHECKS:
            raise unknown_name("check", name, CHECKS)
    return [name for name in CHECKS if not names or name in names]


def run_check(subject: Subject, name: str) -> Result:
    """Run one check, unless the task is exempt from it."""
    begin = time.perf_counter()
    reason = subject.task.task.exempt.get(name)
    if reason is not None:
        result = Result("exempt", reason)
    elif name in TOOL_CHECKS and not subject.task.task.has_tools:
        result = not_applicable("it has no tools")
    else:
        try:
            result = FUNCTIONS[name](subject)
        except Exception as error:  # the task's own functions run here, too, and may raise anything
            result = failed(
                "the task fails while it is checked",
                f"{type(error).__name__} ({where_raised(error)}): {error}",
                "Correct what raises: prompt(), load() and demos() must work for every row.",
            )
    return replace(result, check=name, seconds=time.perf_counter() - begin)


def check_task(
    task: BoundTask,
    rows: int = DEFAULT_ROWS,
    seed: int = 0,
    checks: Collection[str] = (),
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
    exit_first: bool = False,
) -> TaskReport:
    """Run the conformance checks on a task.

    Args:
        task: The task.
        rows: Rows that completions are scored for.
        seed: Seed of their choice.
        checks: Names of the checks; empty means all that are about such a task.
        progress: Called with what is done, how much of it, and the total.
        exit_first: Whether the first check that fails is the last one.

    Raises:
        DataError: the task has no rows.
        UserError: it cannot be loaded.
    """
    names = [name for name in CHECKS if name in (checks or (CHECKS if task.task.has_tools else PLAIN))]
    with Subject(task, rows, seed, progress) as subject:
        results = []
        for done, name in enumerate(names):
            progress(f"{task.label}, {name}", done, len(names))
            results.append(run_check(subject, name))
            if exit_first and results[-1].status == "failed":
                break
        judges = tuple(judge.name for judge in task.task.judges())
        return TaskReport(task.label, task.spec, len(subject.rows), seed, results, judges=judges)


def conformance(
    *tasks: AnyTask, rows: int = DEFAULT_ROWS, seed: int = 0, checks: str = "", **options: Any
) -> Callable[[str, str], None]:
    """Make a test function of pytest that checks tasks: one item for each task and check.

    Bind it to a name that pytest collects: `test_conformance = conformance("rhyme.couplet")`. A check from which the
    task is exempt, or that says nothing about it, is skipped with the reason. Tasks are loaded by the first item.

    Args:
        tasks: Tasks, or their specs; a file is named from the folder in which pytest runs.
        rows: Rows that completions are scored for.
        seed: Seed of their choice.
        checks: Only these checks, separated by commas.
        options: Options of the tasks, beside those of their specs.

    Raises:
        UserError: no task, a number out of range, or a check that does not exist.
    """
    import pytest  # whoever writes tests has it; `grpo check` does without

    if not tasks:
        raise UserError('conformance() needs a task, as in conformance("rhyme.couplet").')
    for option, value, least in (("rows", rows, 1), ("seed", seed, 0)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise UserError(f"conformance(): {option}={value!r} must be a whole number of at least {least}.")
    names = chosen_checks(checks)
    labels = _labelled(tasks)

    @lru_cache(maxsize=1)  # pytest runs the items of a task one after the other
    def subject_of(label: str) -> Subject:
        return Subject(load_task(labels[label], **options), rows, seed)

    @pytest.mark.parametrize("check", names)
    @pytest.mark.parametrize("task", labels)
    def test(task: str, check: str) -> None:
        result = run_check(subject_of(task), check)
        if result.status == "failed":
            lines = (f"{CHECKS[check]}: {result.text}", f"example: {result.example}", f"what to do: {result.advice}")
            pytest.fail("\n".join(lines), pytrace=False)
        if result.status != "passed":
            pytest.skip(f"{result.status}: {result.text}")

    return test


def _labelled(tasks: Sequence[AnyTask]) -> dict[str, AnyTask]:
    """Spec of a task, or name of an object -> the task; those that have come before get a number."""
    labels: dict[str, AnyTask] = {}
    for task in tasks:
        name = label = str(getattr(task, "spec", getattr(task, "name", task)))
        number = 1
        while label in labels:
            number += 1
            label = f"{name}-{number}"
        labels[label] = task
    return labels
