"""Conditions of the machine that scores depend on, as choices that are shown before anything is scored."""

from __future__ import annotations

from collections.abc import Mapping

from grpo_sdk.callbacks import ResolvedDefault
from grpo_sdk.task.bound import BoundTask


def condition_choices(tasks: Mapping[str, BoundTask]) -> list[ResolvedDefault]:
    """Judges of the tasks, and what the scores depend on here: equal conditions once, with the tasks that they are of.

    Raises:
        UserError: a task cannot say.
    """
    of: dict[tuple[str, str], list[str]] = {}
    for label, task in tasks.items():
        for name, text in task.conditions.items():
            of.setdefault((name, text), []).append(label)
    judges = [
        ResolvedDefault(f"judge {judge.name}", judge.model.address, f"decides a part of {label}")
        for label, task in tasks.items()
        for judge in task.task.judges()
    ]
    return judges + [
        ResolvedDefault(name, text, f"the scores of {', '.join(labels)} depend on it")
        for (name, text), labels in of.items()
    ]
