"""Each check finds the fault that is made for it, and no other check takes offence at it."""

from pathlib import Path
from types import ModuleType

import broken_tasks
import broken_tools
import pytest

from grpo_sdk import load_task
from grpo_sdk.check.results import Result, TaskReport
from grpo_sdk.check.table import check_task
from grpo_sdk.task.exemptions import CHECKS, TOOL_CHECKS

QUICK = {"gold", "group", "junk", "bounds", "range", "ladder", "split", "leak", "feedback"}
"""Checks that start no process beside the scorer's."""

QUICK_OF_TOOLS = {"schema", "hang", "crash", "oversized", "arguments", "pay"}

BROKEN = [(module.__file__, name) for module in (broken_tasks, broken_tools) for name in module.NAMES]


def checked(name: str) -> str:
    """The check that finds a task's fault."""
    return next(check for check in CHECKS if name.rstrip("_").startswith(check))


def noted(report: TaskReport) -> list[Result]:
    return [result for result in report.results if result.status in ("failed", "warning")]


def test_every_check_has_a_broken_task() -> None:
    assert {checked(name) for _, name in BROKEN} == set(CHECKS)


@pytest.mark.parametrize(("file", "name"), BROKEN, ids=[name for _, name in BROKEN])
def test_one_check_alone_finds_the_fault(file: str, name: str) -> None:
    quick = QUICK if file == broken_tasks.__file__ else QUICK | QUICK_OF_TOOLS
    if name in ("state", "crash_of_reset"):  # which decide what golds earn, too
        quick = set()
    rows = 1 if name == "latency" else 4  # each takes its time
    report = check_task(load_task(f"{file}:{name}"), rows=rows, checks=quick | {checked(name)})
    assert [result.check for result in noted(report)] == [checked(name)], noted(report)
    assert not [result for result in report.failures if "task fails" in result.text or "cannot load" in result.text]


@pytest.mark.parametrize("module", [broken_tasks, broken_tools])
def test_a_task_without_fault_passes(module: ModuleType) -> None:
    report = check_task(load_task(f"{Path(module.__file__)}:faultless"), rows=4)
    assert not noted(report)
    assert {r.check for r in report.results if r.status == "not applicable"} == {"demos", "group", "perfect"}
    assert TOOL_CHECKS.keys() <= {r.check for r in report.results} or module is broken_tasks
