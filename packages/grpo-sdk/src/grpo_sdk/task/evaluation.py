"""Defaults of a task's evaluation, and the report of one to the task."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from grpo_sdk.errors import UserError
from grpo_sdk.task.row import Prompt, Row, Split, TaskConfig
from grpo_sdk.task.score import Score

Phase = Literal["initial", "interval", "final"]


@dataclass(frozen=True, slots=True)
class EvaluationRecord:
    """One completion of an evaluation.

    Attributes:
        row: What was asked.
        prompt: As the task wrote it.
        completion: What was answered.
        score: What it earned.
        sample: Its number among the completions of the row, from 0.
        tokens: Its length; None where an endpoint does not count them.
        truncated: Whether the length limit ended it.
    """

    row: Row
    prompt: Prompt
    completion: str
    score: Score
    sample: int = 0
    tokens: int | None = None
    truncated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationReport:
    """A finished evaluation of a task, as its `EvaluationDefaults.report` is told of it.

    Attributes:
        task: What logs call the task.
        config: Its options; the split and size are those that were evaluated.
        phase: `initial`, `interval` or `final`; an evaluation without a training is `final`.
        step: Training steps done; 0 without a training.
        results: The numbers of `summary.json`, with their intervals.
        records: Every completion, those of a row side by side.
        seconds: What it took.
        folder: The run's folder; outside a training where its results are written; None where nothing is written.
    """

    task: str
    config: TaskConfig
    phase: Phase
    step: int
    results: Mapping[str, Any]
    records: Sequence[EvaluationRecord]
    seconds: float
    folder: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationDefaults:
    """Settings of a task's evaluation where the user gives none; None leaves a value to the run.

    Attributes:
        size: Rows.
        split: Which rows.
        num_completions: A row.
        temperature: 0 is greedy.
        top_p: Nucleus sampling.
        max_completion_length: Tokens per completion.
        at_start: Evaluate the starting model.
        interval_steps: Evaluate every so many training steps.
        at_end: Evaluate the trained model.
        enabled: False leaves the task out of a training's evaluations; who asks for `grpo eval` gets one.
        report: `(EvaluationReport)` -> name -> number, called after each evaluation on the first rank. It may write
            files; what it returns is logged under exactly these names, each of which holds a `/`.

    Raises:
        UserError: a value out of range.
    """

    size: int | None = None
    split: Split | None = None
    num_completions: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_completion_length: int | None = None
    at_start: bool | None = None
    interval_steps: int | None = None
    at_end: bool | None = None
    enabled: bool = True
    report: Callable[[EvaluationReport], Mapping[str, float]] | None = None

    def __post_init__(self) -> None:
        for name in ("size", "num_completions", "max_completion_length", "interval_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"EvaluationDefaults({name}={value}): must be at least 1, or None.")
        if self.temperature is not None and not 0 <= self.temperature < math.inf:
            raise UserError(f"EvaluationDefaults(temperature={self.temperature}): must be a number from 0 on, or None.")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UserError(f"EvaluationDefaults(top_p={self.top_p}): must be above 0 and at most 1, or None.")
