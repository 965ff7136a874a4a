"""Conformance checks of tasks: for `grpo check`, and for the tests of whoever writes tasks."""

from grpo_sdk.check.results import Result, TaskReport
from grpo_sdk.check.table import check_task, conformance

__all__ = ["Result", "TaskReport", "check_task", "conformance"]
