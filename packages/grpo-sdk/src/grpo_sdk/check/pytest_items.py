"""Conformance checks as items of pytest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from grpo_sdk.check.subject import DEFAULT_ROWS, Subject
from grpo_sdk.check.table import chosen_checks, run_check
from grpo_sdk.errors import UserError
from grpo_sdk.plugins.task_objects import AnyTask
from grpo_sdk.plugins.tasks import load_task
from grpo_sdk.task.exemptions import CHECKS


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
