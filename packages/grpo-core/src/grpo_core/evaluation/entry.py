"""The entry of `summary.json` of one evaluation: its numbers, what the task adds to them, and what they depend on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

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
    evaluation: Evaluation, task: BoundTask, *, seed: int, warn: Callable[[str], None] = lambda message: None
) -> dict[str, Any]:
    """An evaluation's numbers with those of `Task.metrics`, each with its interval, and the task's conditions.

    Args:
        evaluation: Evaluation of the task.
        task: Task on the rows that were evaluated.
        seed: Seed of the resampling of the task's own metrics.
        warn: Receives what is wrong with the task's own numbers.
    """
    entry = evaluation.summary()
    if task.task.metrics is not None:
        entry[METRICS] = _own_metrics(evaluation, task, entry, seed, warn)
    if task.conditions:
        entry["conditions"] = dict(task.conditions)
    return entry


def add_report(
    entry: dict[str, Any],
    evaluation: Evaluation,
    task: BoundTask,
    label: str,
    moment: Moment,
    *,
    names: MetricNames | None = None,
    warn: Callable[[str], None] = lambda message: None,
) -> None:
    """Call the task's `EvaluationDefaults.report`, and put its numbers into the entry.

    Args:
        entry: Entry made by `entry_of`, with a paired difference where there is one.
        evaluation: Evaluation of the task.
        task: Task on the rows that were evaluated.
        label: Task label.
        moment: When the evaluation is made.
        names: Owners of the metrics' names.
        warn: Receives what is wrong with the report.
    """
    if task.evaluation.report is None:
        return
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


class TrainingEntries:
    """Makes the entries of the evaluations within one training, with their differences over phase `initial`.

    Args:
        names: Owners of the metrics' names.
        warn: Receives what is wrong with a task's own numbers.

    Attributes:
        initial: Label -> what each row earned in phase `initial`.
    """

    def __init__(self, names: MetricNames, warn: Callable[[str], None]) -> None:
        self.initial: dict[str, RowRates] = {}
        self._names, self._warn = names, warn

    def make(
        self, evaluation: Evaluation, task: BoundTask, label: str, moment: Moment, *, seed: int, with_report: bool
    ) -> dict[str, Any]:
        """Make the entry of one evaluation.

        Args:
            evaluation: Evaluation of the task.
            task: Task on the rows that were evaluated.
            label: Task label.
            moment: When the evaluation is made.
            seed: Seed of the bootstrap.
            with_report: Whether the task is asked for its report.
        """
        entry = entry_of(evaluation, task, seed=seed, warn=self._warn)
        if moment.phase == "initial":
            self.initial[label] = evaluation.rates()
        elif label in self.initial:
            entry |= evaluation.paired_delta(self.initial[label])
        if with_report:
            add_report(entry, evaluation, task, label, moment, names=self._names, warn=self._warn)
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
