"""The entry of `summary.json` of one evaluation: its numbers, what the task adds to them, and what they depend on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from grpo_core.evaluation.held_out import HeldOutTask
from grpo_core.evaluation.intervals import RATE, mean_interval
from grpo_core.evaluation.results import Evaluation, RowRates
from grpo_core.tracking.evaluations import METRICS, REPORT, evaluation_metrics
from grpo_sdk.callbacks import EvalPhase
from grpo_sdk.intervals import CONFIDENCE
from grpo_sdk.scoring.metrics import MetricNames, Numbers, batch_numbers, reported_numbers
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.evaluation import EvaluationRecord, EvaluationReport
from grpo_sdk.task.score import Score

METRIC_RESAMPLES = 499
"""Bootstrap resamples of a task's own metrics, which are Python over every score: the interval's ends are quantiles 12
from the ends of a sorted list, enough for their second digit."""


@dataclass(frozen=True, slots=True)
class Moment:
    """When an evaluation is made.

    Attributes:
        phase: Phase of the training.
        step: Training steps done.
        folder: Folder of the run, or of the results.
    """

    phase: EvalPhase
    step: int = 0
    folder: Path | None = None


def entry_of(
    evaluation: Evaluation,
    held: HeldOutTask,
    label: str,
    moment: Moment | None,
    *,
    base: RowRates | None = None,
    names: MetricNames | None = None,
    warn: Callable[[str], None] = lambda message: None,
) -> dict[str, Any]:
    """The numbers of an evaluation, those of the task's own metrics and report, and the conditions that they depend on.

    Args:
        evaluation: Evaluation of the task.
        held: The task.
        label: Task label.
        moment: When it is made, for the task's report; None does not ask for one.
        base: What each row earned in the evaluation that this one is compared with, if it is.
        names: Owners of the metrics' names.
        warn: Receives what is wrong with the task's own numbers.
    """
    entry, task = evaluation.summary(), held.task
    if task.task.metrics is not None:
        entry[METRICS] = _own_metrics(evaluation, task, entry, held.settings.seed, warn)
    if task.conditions:
        entry["conditions"] = dict(task.conditions)
    if base is not None:
        entry |= evaluation.paired_delta(base)
    if moment is not None and task.evaluation.report is not None:
        report = EvaluationReport(
            task=label,
            config=task.config,
            phase=moment.phase,
            step=moment.step,
            results=dict(entry),
            records=records_of(evaluation, task),
            seconds=evaluation.seconds,
            folder=moment.folder,
        )
        numbers = (names or MetricNames()).claimed(reported_numbers(task, report), f"{task.name}'s report")
        _warn_of(numbers, warn)
        entry[REPORT] = numbers.values
    return entry


def records_of(evaluation: Evaluation, task: BoundTask) -> list[EvaluationRecord]:
    """Every completion with its row and prompt; the completions of a row are adjacent."""
    prompts = [task.prompt(row) for row in evaluation.rows]
    return [
        EvaluationRecord(
            row=evaluation.rows[index // evaluation.n],
            prompt=prompts[index // evaluation.n],
            completion=evaluation.texts[index],
            score=score,
            sample=index % evaluation.n,
            tokens=evaluation.lengths[index],
            truncated=evaluation.truncated[index],
        )
        for index, score in enumerate(evaluation.scores)
    ]


def _own_metrics(
    evaluation: Evaluation, task: BoundTask, entry: Mapping[str, Any], seed: int, warn: Callable[[str], None]
) -> dict[str, float | None]:
    """The task's metrics with their intervals: Wilson's for a share of the rows, else the bootstrap's.

    A metric is such a share when a row alone gives 0, 1 or nothing, and all rows together give the mean of that. The
    bootstrap of such a metric would claim certainty where all rows agree.
    """
    numbers = batch_numbers(task, evaluation.scores)
    names = MetricNames(lambda name: "the evaluation" if f"eval//{name}" in evaluation_metrics("", entry) else "")
    numbers = names.claimed(numbers, task.name)
    _warn_of(numbers, warn)
    drawn = _resampled(evaluation, task, seed) if numbers.values else []
    alone = [batch_numbers(task, scores).values for scores in evaluation.scores_by_row()] if numbers.values else []
    metrics: dict[str, float | None] = {}
    for name, value in numbers.values.items():
        shares = [values[name] for values in alone if name in values]
        if set(shares) <= {0.0, 1.0} and shares and math.isclose(value, sum(shares) / len(shares)):
            rate = mean_interval(shares, RATE)
            ends: Sequence[float | None] = (rate.low, rate.high)
        elif len(set(known := [values[name] for values in drawn if name in values])) > 1:
            ends = [float(end) for end in np.quantile(known, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])]
        else:  # nothing to resample
            ends = (None, None)
        metrics |= {name: value, f"{name}_ci_low": ends[0], f"{name}_ci_high": ends[1]}
    return metrics


def _resampled(evaluation: Evaluation, task: BoundTask, seed: int) -> list[dict[str, float]]:
    """The task's metrics of rows drawn with replacement; a row's completions stay together."""
    n, rows = evaluation.n, len(evaluation.rows)
    if rows < 2:
        return []
    generator = np.random.default_rng(seed)
    draws: list[dict[str, float]] = []
    for _ in range(METRIC_RESAMPLES):
        chosen = generator.integers(rows, size=rows)
        scores: Sequence[Score] = [evaluation.scores[row * n + sample] for row in chosen for sample in range(n)]
        draws.append(batch_numbers(task, scores).values)
    return draws


def _warn_of(numbers: Numbers, warn: Callable[[str], None]) -> None:
    for problem in numbers.problems:
        warn(problem)
