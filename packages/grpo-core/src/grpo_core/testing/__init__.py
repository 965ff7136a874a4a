"""Conformance checks of tasks: for `grpo check`, and for the tests of whoever writes tasks."""

from grpo_core.testing.pytest_items import conformance
from grpo_core.testing.results import Result, TaskReport
from grpo_core.testing.table import check_task

__all__ = ["Result", "TaskReport", "check_task", "conformance"]
