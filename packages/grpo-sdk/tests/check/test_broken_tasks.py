"""Each check finds the fault that is made for it, and no other check takes offence at it."""

from pathlib import Path

import broken_tasks
import pytest

from grpo_sdk import load_task
from grpo_sdk.check.table import check_task
from grpo_sdk.task.exemptions import CHECKS

FILE = Path(broken_tasks.__file__)

QUICK = {"gold", "group", "junk", "bounds", "range", "ladder", "split", "leak", "feedback"}
"""Checks that start no process beside the scorer's."""


def checked(name: str) -> str:
    """The check that finds a task's fault."""
    return next(check for check in CHECKS if name.rstrip("_").startswith(check))


def test_every_check_has_a_broken_task() -> None:
    assert {checked(name) for name in broken_tasks.NAMES} == set(CHECKS)


@pytest.mark.parametrize("name", broken_tasks.NAMES)
def test_one_check_alone_finds_the_fault(name: str) -> None:
    report = check_task(load_task(f"{FILE}:{name}"), rows=4, checks=QUICK | {checked(name)})
    assert [result.check for result in report.failures] == [checked(name)], report.failures
    assert not [result for result in report.failures if "task fails" in result.text or "cannot load" in result.text]


def test_a_task_without_fault_passes() -> None:
    report = check_task(load_task(f"{FILE}:faultless"), rows=4)
    assert not report.failures
    assert {r.check for r in report.results if r.status == "not applicable"} == {"demos", "group", "perfect"}
