"""What a diagnosis of a run is, and the metrics so far that it looks at."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from grpo_core.config import RunConfig
    from grpo_sdk.task.bound import BoundTask

Metrics = Mapping[str, float]

WINDOW = 10
"""Steps at the start of a run, and newest ones, whose means are compared."""

ERRORS = 3.0
"""Standard errors of a difference of two means that are no chance: one in a thousand, for windows of ten steps."""

GONE_STEPS = 20
"""Healthy steps in a row after which a problem is gone, and warned of again if it returns; doubled each time."""

Moment = Literal["start", "step", "evaluation"]
"""When a diagnosis is made: before the first step, after each logged one, after each evaluation of a task."""

Observation = tuple[str, str]
"""(Task, or task and reward function; empty for the whole run. What is seen; empty where that is healthy.)"""


@dataclass(slots=True)
class Trend:
    """The first and the newest values of a metric."""

    first: list[float] = field(default_factory=list)
    newest: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def add(self, value: float) -> None:
        """Add a step; a step without a number changes nothing."""
        if math.isfinite(value):
            if len(self.first) < WINDOW:
                self.first.append(value)
            else:
                self.newest.append(value)

    @property
    def is_known(self) -> bool:
        """Whether both windows are full."""
        return len(self.newest) == WINDOW

    @property
    def start(self) -> float:
        """Mean of the first values."""
        return statistics.fmean(self.first)

    @property
    def now(self) -> float:
        """Mean of the newest values."""
        return statistics.fmean(self.newest)

    @property
    def errors(self) -> float:
        """Change in standard errors of the difference; infinite where the values have no spread but differ."""
        change = self.now - self.start
        error = math.sqrt((statistics.variance(self.first) + statistics.variance(self.newest)) / WINDOW)
        return change / error if error else math.copysign(math.inf, change) if change else 0.0


@dataclass(slots=True)
class History:
    """What is known of a run so far.

    Attributes:
        config: Its configuration.
        kl_target: Expected KL, in nats per token.
        tasks: Its tasks by label.
        also_trained: Task label -> held-out rows that are also trained on, as in summary.json.
        held_out: Task label -> held-out rows that are evaluated; 0 where none are.
        step: Newest step.
        metrics: Metrics of the newest logged step.
        previous: Those of the logged step before.
        trends: First and newest values of each metric.
        evaluated: Label of the task that was evaluated last.
        evaluations: Task label -> its evaluations, oldest first.
    """

    config: RunConfig
    kl_target: float
    tasks: Mapping[str, BoundTask] = field(default_factory=dict)
    also_trained: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    held_out: Mapping[str, int] = field(default_factory=dict)
    step: int = 0
    metrics: Metrics = field(default_factory=dict)
    previous: Metrics = field(default_factory=dict)
    trends: dict[str, Trend] = field(default_factory=dict)
    evaluated: str = ""
    evaluations: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)

    @property
    def steps_per_batch(self) -> int:
        """Optimizer steps for which each batch is used."""
        return self.config.trainer.num_iterations * self.config.trainer.steps_per_generation

    def add(self, step: int, metrics: Metrics) -> None:
        """Add a logged step."""
        self.step, self.previous, self.metrics = step, self.metrics, metrics
        for name, value in metrics.items():
            self.trends.setdefault(name, Trend()).add(value)

    def add_evaluation(self, task: str, result: Mapping[str, Any]) -> None:
        """Add a held-out evaluation of a task."""
        self.evaluated = task
        self.evaluations.setdefault(task, []).append(result)

    def value(self, *names: str) -> float:
        """The first of some metrics that was logged in the newest step, NaN if none was."""
        return next((self.metrics[name] for name in names if name in self.metrics), math.nan)

    def trend(self, name: str) -> Trend | None:
        """First and newest values of a metric; None until both windows are full."""
        trend = self.trends.get(name)
        return trend if trend is not None and trend.is_known else None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A problem that the numbers of a run can show.

    Attributes:
        name: Name, which is that of its section in docs/how-to/troubleshooting.md.
        condition: When it is found, for the reference; `{}` stands for the threshold.
        threshold: Number that decides.
        source: Where the threshold comes from.
        see: Yields what is seen; what is not yielded is as it was.
        why: Why it matters.
        fix: (history, about) -> what to try.
        steps: Logged steps in a row before it is reported.
        moment: When it is made.
    """

    name: str
    condition: str
    threshold: float
    source: str
    see: Callable[[History, Diagnosis], Iterator[Observation]]
    why: str
    fix: Callable[[History, str], str]
    steps: int = 1
    moment: Moment = "step"

    @property
    def since(self) -> str:
        """For how long a problem has been there when it is reported: a part of a sentence."""
        return f" for {self.steps} logged steps" if self.steps > 1 else ""


@dataclass(slots=True)
class Streak:
    """Whether a problem has to be reported: once, and again if it was gone and has returned."""

    bad: int = 0
    good: int = 0
    reports: int = 0
    is_reported: bool = False

    def observe(self, is_bad: bool, steps: int) -> bool:
        """Add an observation; returns whether the problem is to be reported now.

        Args:
            is_bad: Whether the problem is there.
            steps: Observations in a row that make a report.
        """
        self.bad, self.good = (self.bad + 1, 0) if is_bad else (0, self.good + 1)
        if self.is_reported and self.good >= GONE_STEPS * 2 ** (self.reports - 1):
            self.is_reported = False
        if self.is_reported or self.bad < steps:
            return False
        self.report()
        return True

    def report(self) -> None:
        """Note that the problem is reported."""
        self.is_reported, self.reports = True, self.reports + 1


def whole_run(
    is_bad: Callable[[float, History, float], bool],
    seen: str | Callable[[float, History, Diagnosis], str],
    *metrics: str,
) -> Callable[[History, Diagnosis], Iterator[Observation]]:
    """`Diagnosis.see` for one metric of the whole run; a step without it changes nothing.

    Args:
        is_bad: (value, history, threshold) -> whether the value is unhealthy.
        seen: What is seen, a format of `value`, `history` and `rule`, the diagnosis, or a function of these.
        *metrics: Names of the metric, of which the first that is logged counts.
    """
    describe = partial(_filled, seen) if isinstance(seen, str) else seen

    def see(history: History, diagnosis: Diagnosis) -> Iterator[Observation]:
        value = history.value(*metrics)
        if math.isfinite(value):
            bad = is_bad(value, history, diagnosis.threshold)
            yield "", describe(value, history, diagnosis) if bad else ""

    return see


def _filled(form: str, value: float, history: History, rule: Diagnosis) -> str:
    return form.format(value=value, history=history, rule=rule)


def above(value: float, history: History, threshold: float) -> bool:
    """Whether a value is above the threshold."""
    return value > threshold
