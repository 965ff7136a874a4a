"""Warnings about what the numbers of a run show: each once, with its reason and what to try."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from grpo_core.tracking.diagnoses import DEFAULT_KL_TARGET, DIAGNOSES, named
from grpo_core.tracking.diagnosis import Diagnosis, History, Moment, Streak
from grpo_core.tracking.events import read_branch
from grpo_sdk.callbacks import Callback, Callbacks, EvalPhase, Finding, RunInfo, StepRecord
from grpo_sdk.plugins.tasks import bind
from grpo_sdk.records.jsonl import TRAIN_LOG, read_jsonl
from grpo_sdk.task.mixture import task_labels
from grpo_sdk.task.spec import parse_task_specs

if TYPE_CHECKING:
    from grpo_core.config import RunConfig
    from grpo_sdk.task.bound import BoundTask


class Monitor(Callback):
    """Makes the diagnoses of a run after each logged step and each evaluation.

    Args:
        config: Configuration of the run; advice depends on its settings.
        callbacks: Notified of what is found; holds what was found before a resume.
        kl_target: Expected KL, in nats per token.
    """

    def __init__(self, config: RunConfig, callbacks: Callbacks, *, kl_target: float = DEFAULT_KL_TARGET) -> None:
        self._callbacks = callbacks
        self._history = History(config, kl_target)
        self._streaks: dict[tuple[str, str], Streak] = {}

    def on_run_start(self, info: RunInfo) -> None:
        """Read the tasks and what a resumed run has logged."""
        self._history.tasks = _tasks(self._history.config)
        self._history.also_trained = info.also_trained
        share = self._history.config.eval.subset_frac or 1.0
        self._history.held_out = {label: math.ceil(held * share) for label, (_, held) in info.tasks.items()}
        self._catch_up(info)
        self._history.step = info.step
        self._diagnose("start")

    def on_step_end(self, step: int) -> None:
        """Record the step for what an evaluation shows."""
        self._history.step = step

    def on_step(self, record: StepRecord) -> None:
        """Report what is to be reported after this step."""
        self._history.add(record.step, record.metrics)
        self._diagnose("step")

    def on_evaluation(self, task: str, phase: EvalPhase, result: Mapping[str, Any]) -> None:
        """Report what is to be reported after an evaluation."""
        self._history.add_evaluation(task, result)
        self._diagnose("evaluation")

    def on_diagnosis(self, finding: Finding) -> None:
        """Don't report it once more."""
        streak = self._streak(finding.name, finding.about)
        if not streak.is_reported:
            streak.report()

    def _diagnose(self, moment: Moment, *, is_past: bool = False) -> None:
        for diagnosis in DIAGNOSES:
            if diagnosis.moment != moment:
                continue
            for about, seen in diagnosis.see(self._history, diagnosis):
                is_due = self._streak(diagnosis.name, about).observe(bool(seen), diagnosis.steps)
                if is_due and not is_past:
                    self._callbacks.on_diagnosis(finding(diagnosis, self._history, seen, about))

    def _streak(self, name: str, about: str) -> Streak:
        return self._streaks.setdefault((name, about), Streak())

    def _catch_up(self, info: RunInfo) -> None:
        """Observe the logged steps and evaluations of a resumed run, without reporting again what it has reported."""
        reported = deque(self._callbacks.findings)
        for line in read_jsonl(info.run_dir / TRAIN_LOG):
            numbers = {name: float(value) for name, value in line.items() if isinstance(value, int | float)}
            step = int(numbers.pop("step", 0))
            while reported and reported[0].step <= step:
                self.on_diagnosis(reported.popleft())
            self._history.add(step, numbers)
            self._diagnose("step", is_past=True)
        for each in reported:
            self.on_diagnosis(each)
        for event in read_branch(info.run_dir):
            if event.get("kind") == "evaluation" and isinstance(event.get("result"), dict):
                self._history.add_evaluation(str(event.get("task")), event["result"])


def finding(diagnosis: Diagnosis, history: History, seen: str, about: str = "") -> Finding:
    """What a diagnosis has found.

    Args:
        diagnosis: The diagnosis.
        history: What is known of the run.
        seen: What was seen.
        about: Task, or task and reward function.
    """
    return Finding(diagnosis.name, history.step, seen, diagnosis.why, diagnosis.fix(history, about), about)


def diagnose_held_out(config: RunConfig, held_out: Mapping[str, int], callbacks: Callbacks) -> None:
    """Say, outside a run, where a task has too few held-out rows to tell a rate.

    Args:
        config: Settings of the evaluation; advice depends on them.
        held_out: Task label -> rows that are evaluated.
        callbacks: Notified of what is found.
    """
    diagnosis, history = named("few-held-out-rows"), History(config, DEFAULT_KL_TARGET, held_out=held_out)
    for about, seen in diagnosis.see(history, diagnosis):
        if seen:
            callbacks.on_diagnosis(finding(diagnosis, history, seen, about))


def _tasks(config: RunConfig) -> dict[str, BoundTask]:
    tasks = [bind(spec) for spec in parse_task_specs(config.task)]
    return dict(zip(task_labels(tasks), tasks, strict=True))
