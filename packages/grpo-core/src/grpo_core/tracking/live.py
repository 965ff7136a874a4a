"""A run as it goes on: curves, evaluations, events and newest completions, read from its folder bit by bit."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from grpo_core.tracking.events import EVENTS
from grpo_core.tracking.follow import FollowedLog
from grpo_core.tracking.runs import ENDLESS, State, is_number, read_summary, state_of
from grpo_sdk.errors import UserError
from grpo_sdk.records.jsonl import TRAIN_LOG
from grpo_sdk.records.rollouts import RolloutRecord
from grpo_sdk.records.run_folder import read_settings

FOLLOWED = ("reward", "solved_rate", "completions/mean_length", "kl", "entropy", "entropy/sampled")
"""Metrics whose values over the steps are kept."""

MAX_POINTS = 1024
"""Points that a curve keeps: four for each column of a wide terminal."""

MAX_EVENTS = 500
"""Newest events that are kept."""

MAX_GROUPS = 200
"""Newest groups of completions that are kept."""

MAX_CHARS = 16 << 20
"""Characters of the kept completions together."""

TAIL_BYTES = 4 << 20
"""End of the log of completions that is read at first, which may have gigabytes."""

STEP_WEIGHT = 0.1
"""Weight of the newest step in the mean seconds of a step."""


class Series:
    """Values over the steps in bounded memory: a long series keeps means over equal numbers of steps."""

    def __init__(self) -> None:
        self._points: list[tuple[float, float]] = []
        self._newest: list[tuple[float, float]] = []
        self._stride = 1

    def add(self, step: int, value: float) -> None:
        """Append a value."""
        self._newest.append((step, value))
        if len(self._newest) < self._stride:
            return
        self._points.append(_mean(self._newest))
        self._newest = []
        if len(self._points) >= MAX_POINTS:
            self._points = [_mean(self._points[i : i + 2]) for i in range(0, len(self._points), 2)]
            self._stride *= 2

    @property
    def points(self) -> list[tuple[float, float]]:
        """(step, value) in order."""
        return [*self._points, *([_mean(self._newest)] if self._newest else [])]


class Evaluated(NamedTuple):
    """Solved rate of a held-out evaluation.

    Attributes:
        step: Step after which it was made; 0 is the starting model.
        value: Share solved.
        low: Lower end of its 95% interval; NaN where that is not known.
        high: Upper end.
    """

    step: int
    value: float
    low: float
    high: float

    @classmethod
    def of(cls, step: int, result: Mapping[str, Any]) -> Evaluated:
        """That of a result as logs hold it.

        Raises:
            KeyError: it has no solved rate.
        """
        ends: list[Any] = [result["solved_rate"], result.get("ci_low"), result.get("ci_high")]
        return cls(step, *(float(each) if is_number(each) else math.nan for each in ends))


@dataclass(slots=True)
class Group:
    """Completions of one prompt in one step.

    Attributes:
        step: Step, from 1.
        number: Index of the group in the step.
        records: Its completions.
    """

    step: int
    number: int
    records: list[RolloutRecord] = field(default_factory=list)

    @property
    def chars(self) -> int:
        """Length of its texts."""
        return sum(len(record.text) + len(record.prompt_text) for record in self.records)

    def contains(self, text: str) -> bool:
        """Whether a prompt, completion, task, row or reason has a text in it, in any case."""
        return any(
            text in each.casefold()
            for record in self.records
            for each in (record.text, record.prompt_text, record.task, record.row_id, record.score.why)
        )


class LiveRun:
    """Follows a run, also one that has not begun, that is resumed, or whose folder disappears.

    Args:
        path: Folder of the run.

    Attributes:
        path: The folder.
        state: As in `RunView`.
        problem: The error that ended the run, or why something cannot be read; empty if there is none.
        is_gone: Whether the folder is missing.
        settings: Dotted key -> value.
        metrics: Metrics of the last logged step.
        step: Last logged step.
        planned: Planned steps; None if only a time limit ends the run, or if unknown.
        abstained: Completions that could not be scored, over all logged steps.
        series: Metric -> its values.
        evaluations: Task -> evaluations, in order.
        events: Newest events, oldest first.
        warnings: Steps of the warnings, without those that a resume has abandoned.
        groups: Newest groups of completions, oldest first.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state: State = "running"
        self.problem = ""
        self.is_gone = False
        self.settings: Mapping[str, Any] = {}
        self.events: deque[dict[str, Any]] = deque(maxlen=MAX_EVENTS)
        self._logs = (
            FollowedLog(path / EVENTS, self._add_event, self._forget_events),
            FollowedLog(path / TRAIN_LOG, self._add_step, self._forget_steps),
            FollowedLog(path / "logs" / "rollouts.jsonl", self._add_rollout, self._forget_rollouts, TAIL_BYTES),
        )
        self._forget_steps()
        self._forget_events()
        self._forget_rollouts()

    def poll(self) -> bool:
        """Read what is new, in bounded time; while a thread does, no other may read the attributes.

        Returns:
            Whether there is more to read now.
        """
        self.is_gone = not self.path.is_dir()
        problems, more = [], False
        for log in self._logs:
            try:
                more = log.read() or more
            except OSError as error:
                problems.append(f"{log.path.name}: cannot be read: {error.strerror or error}")
            problems += [log.problem] if log.problem else []
        if not self.is_gone:
            problems += self._read_state()
        self.problem = "; ".join(problems)
        return more

    def seconds_left(self, now: float) -> float | None:
        """Estimate the time to the end of the run; None where it has no known end, or is not running.

        Args:
            now: Time since the epoch.
        """
        left = []
        if self.planned is not None and self._step_s is not None:
            left.append(max(0, self.planned - self.step) * self._step_s)
        minutes = self.settings.get("trainer.max_minutes")
        if isinstance(minutes, int | float) and self._started:
            left.append(max(0.0, self._started + 60 * minutes - now))
        return min(left) if left and self.state == "running" else None

    def newest_groups(self, text: str = "") -> Iterator[Group]:
        """Yield the kept groups, newest first; with a text, those that contain it."""
        folded = text.casefold()
        for group in reversed(self.groups):
            if not folded or group.contains(folded):
                yield group

    def _read_state(self) -> list[str]:
        problems: list[str] = []
        try:
            if not self.settings and (self.path / "config.yaml").exists():
                self.settings = read_settings(self.path)
        except UserError as error:
            problems.append(str(error))
        self.state, problem = state_of(self.path, self._last, read_summary(self.path, problems))
        return [*problems, problem] if problem else problems

    def _forget_steps(self) -> None:
        self.step, self.abstained = 0, 0
        self.metrics: dict[str, float] = {}
        self.series: dict[str, Series] = {}
        self._step_s: float | None = None

    def _add_step(self, line: Mapping[str, Any]) -> None:
        self.step = _whole(line["step"])
        self.metrics = {name: float(value) for name, value in line.items() if name != "step" and is_number(value)}
        self.abstained += round(self.metrics.get("abstained", 0))
        for name in FOLLOWED:
            if name in self.metrics:
                self.series.setdefault(name, Series()).add(self.step, self.metrics[name])
        newest = self.metrics.get("step_s")
        if newest is not None:
            self._step_s = newest if self._step_s is None else (1 - STEP_WEIGHT) * self._step_s + STEP_WEIGHT * newest

    def _forget_events(self) -> None:
        self.events.clear()
        self.evaluations: dict[str, list[Evaluated]] = {}
        self.planned: int | None = None
        self.warnings: list[int] = []
        self._started: float | None = None
        self._last: Mapping[str, Any] = {}

    def _add_event(self, event: dict[str, Any]) -> None:
        match event["kind"]:
            case "start" | "end" | "failed":
                self._last = event
                if event["kind"] == "start":
                    self._add_start(event)
            case "warning":
                self.warnings.append(_whole(event.get("step", 0)))
            case "evaluation":
                task, step = str(event["task"]), _whole(event.get("step", 0))
                earlier = [each for each in self.evaluations.get(task, []) if each.step < step]
                self.evaluations[task] = [*earlier, Evaluated.of(step, dict(event["result"]))]
        self.events.append(event)  # the display reads what was checked here

    def _add_start(self, event: Mapping[str, Any]) -> None:
        """Note the plan of a run; a resumed one goes back to a checkpoint, and evaluates again what came after it."""
        planned, step = event.get("total_steps"), _whole(event.get("step", 0))
        self.planned = planned if isinstance(planned, int) and planned < ENDLESS else None
        self._started = datetime.fromisoformat(event["time"]).timestamp() if "time" in event else None
        for task, evaluations in self.evaluations.items():
            self.evaluations[task] = [each for each in evaluations if each.step <= step]
        self.warnings = [each for each in self.warnings if each <= step]

    def _forget_rollouts(self) -> None:
        self.groups: deque[Group] = deque()
        self._chars = 0

    def _add_rollout(self, line: Mapping[str, Any]) -> None:
        record = RolloutRecord.model_validate({name: value for name, value in line.items() if name != "token_logprobs"})
        if not self.groups or (self.groups[-1].step, self.groups[-1].number) != (record.step, record.group):
            self.groups.append(Group(record.step, record.group))
        self.groups[-1].records.append(record)
        self._chars += len(record.text) + len(record.prompt_text)
        while len(self.groups) > 1 and (len(self.groups) > MAX_GROUPS or self._chars > MAX_CHARS):
            self._chars -= self.groups.popleft().chars


def _mean(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return sum(step for step, _ in points) / len(points), sum(value for _, value in points) / len(points)


def _whole(value: object) -> int:
    """A step of a log.

    Raises:
        TypeError: it is not a whole number.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(value)
    return value
