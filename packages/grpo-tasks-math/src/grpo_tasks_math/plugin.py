"""The tasks of `grpo-tasks-math`, as users write them: `math.arithmetic`."""

from __future__ import annotations

from grpo_sdk import Task, hookimpl
from grpo_tasks_math import (
    arithmetic,
    base_conversion,
    calculator,
    comparison,
    competition,
    countdown,
    counting,
    echo,
    gsm8k,
    ladder,
    pattern,
    scheduling,
    word_problem,
)


@hookimpl
def grpo_tasks() -> list[Task]:
    """Every task of the package, easiest first."""
    return [
        echo.TASK,
        pattern.TASK,
        arithmetic.TASK,
        counting.TASK,
        base_conversion.TASK,
        comparison.TASK,
        word_problem.TASK,
        gsm8k.TASK,
        countdown.TASK,
        calculator.TASK,
        competition.TASK,
        scheduling.TASK,
        ladder.TASK,
    ]
