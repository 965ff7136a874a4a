"""The table of checks, and the function that runs them on a task."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from grpo_sdk.check.checks import games, hostile, processes, rows, scores
from grpo_sdk.check.results import Result, TaskReport, failed
from grpo_sdk.check.subject import DEFAULT_ROWS, Subject
from grpo_sdk.errors import DataError, UserError, unknown_name
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.calling import where_raised
from grpo_sdk.task.exemptions import CHECKS

FUNCTIONS: Mapping[str, Callable[[Subject], Result]] = {
    "gold": scores.gold,
    "junk": scores.junk,
    "bounds": scores.bounds,
    "range": scores.observed_range,
    "ladder": scores.ladder,
    "group": scores.group,
    "hostile": hostile.hostile,
    "latency": hostile.latency,
    "determinism": processes.determinism,
    "imports": processes.imports,
    "rows": rows.rows,
    "split": rows.split,
    "leak": rows.leak,
    "feedback": rows.feedback,
    "demos": rows.demos,
    "perfect": games.perfect,
}
"""Name of each check, as in `CHECKS` -> its function."""


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
        checks: Names of the checks; empty means all.
        progress: Called with what is done, how much of it, and the total.
        exit_first: Whether the first check that fails is the last one.

    Raises:
        DataError: the task has no rows.
        UserError: it cannot be loaded.
    """
    names = [name for name in CHECKS if not checks or name in checks]
    with Subject(task, rows, seed, progress) as subject:
        results = []
        for done, name in enumerate(names):
            progress(f"{task.label}, {name}", done, len(names))
            results.append(run_check(subject, name))
            if exit_first and results[-1].status == "failed":
                break
        judges = tuple(judge.name for judge in task.task.judges())
        return TaskReport(task.label, task.spec, len(subject.rows), seed, results, judges=judges)


def check_available(task: BoundTask, **options: object) -> TaskReport:
    """Like `check_task`; where the rows cannot be loaded, the report says why."""
    try:
        return check_task(task, **options)  # type: ignore[arg-type] # the same keywords
    except DataError as error:
        return TaskReport(task.label, task.spec, 0, 0, unavailable=str(error))
