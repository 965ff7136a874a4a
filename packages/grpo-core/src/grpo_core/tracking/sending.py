"""Passing a run to a tracker, each step once, however often the run is killed and resumed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Thread
from typing import Any

import orjson

from grpo_core.config import RunConfig, flatten
from grpo_core.tracking.aliases import with_reference_names
from grpo_core.tracking.base import (
    COLUMNS,
    Mode,
    TrackedRun,
    Tracker,
    forget_id,
    plain,
    project_of,
    recall_id,
    row_of,
    without_secrets,
)
from grpo_core.tracking.evaluations import evaluation_metrics
from grpo_core.tracking.events import read_branch
from grpo_sdk.callbacks import Callback, EvalPhase, Finding, RunInfo, StepRecord
from grpo_sdk.errors import first_line
from grpo_sdk.plugins import variants as registry
from grpo_sdk.records.jsonl import TRAIN_LOG, open_log, read_jsonl, read_lines, with_step

TABLE = "completions"
"""Name of the table of completions."""

TABLE_EVERY_S = 30.0
"""Shortest time between tables; a tracker stores each as a separate file."""

CLOSE_S = 30.0
"""Time that a tracker has to close; ClearML waits up to 11 s for its process that writes every 5 s."""


class SentLog:
    """`logs/TRACKER_sent.jsonl`: what a tracker's run has received, for the process that resumes the run.

    Attributes:
        branch: Name of the branch that the tracker's run is of; empty for the run itself.
        n_branches: Branches so far.
        run_id: Identifier of the tracker's run, if it has one.
        steps: Metrics of steps, evaluation by phase and task, or warning -> last step of it that was sent.
    """

    def __init__(self, run_dir: Path, kind: str) -> None:
        self.branch, self.n_branches, self.run_id = "", 0, None
        self.steps: dict[str, int] = {}
        self._path = run_dir / "logs" / f"{kind}_sent.jsonl"
        for line in read_jsonl(self._path):
            self._apply(line)

    def write(self, **line: Any) -> None:
        """Append a line: `stream` and `step` that were sent, a new `branch`, or another `run_id`."""
        with open_log(self._path) as file:
            file.write(orjson.dumps(line) + b"\n")
        self._apply(line)

    def _apply(self, line: Mapping[str, Any]) -> None:
        if "step" in line:
            self.steps[line["stream"]] = line["step"]
            return
        self.steps, self.run_id = {}, line.get("run_id")
        if "branch" in line:
            self.branch, self.n_branches = line["branch"], self.n_branches + 1


class TrackerCallback(Callback):
    """Passes the events of a run to a tracker; a tracker that raises is dropped, and the run continues.

    When a run is resumed, the tracker receives what the run's own logs have and it has not; a step that is done again
    is not sent again. Steps that are done again after `--from-step` or `--allow` are another branch, which is a run of
    its own in the tracker.

    Args:
        config: Resolved configuration of the run.
        kind: Name of the tracker in it.
        mode: Whether the tracker may use the network.
        warn: Function that sends a warning to all callbacks.
        branches: Whether the steps of a resumed run that are done again may differ from what they were.
    """

    def __init__(
        self, config: RunConfig, kind: str, mode: Mode, warn: Callable[[str], None], *, branches: bool = False
    ) -> None:
        self._config, self._kind, self._mode, self._warn, self._branches = config, kind, mode, warn, branches
        self._open: Callable[[TrackedRun], Tracker] = registry.resolve("tracker", kind)
        self._tracker: Tracker | None = None
        self._before: dict[str, int] = {}
        self._step, self._tabled = 0, -math.inf

    def on_run_start(self, info: RunInfo) -> None:
        """Open the tracker, before anything is sampled, and send what it lacks of a resumed run."""
        self._step = info.step
        self._guarded(lambda: self._start(info))

    def on_step_end(self, step: int) -> None:
        """Record the step for evaluations and warnings."""
        self._step = step

    def on_step(self, record: StepRecord) -> None:
        """Log the metrics of a step, and its completions every `TABLE_EVERY_S`."""
        is_new = record.step > self._before.get("", -1)
        self._log("", record.step, self._named(record.metrics))
        if is_new and record.samples and time.monotonic() - self._tabled >= TABLE_EVERY_S:
            self._tabled = time.monotonic()
            rows = [row_of(record.step, sample) for sample in record.samples]
            self._use(lambda tracker: tracker.table(record.step, TABLE, COLUMNS, rows))

    def on_evaluation(self, task: str, phase: EvalPhase, result: Mapping[str, Any]) -> None:
        """Log the numbers of an evaluation as `eval/TASK/NAME`: at step 0 initially, at the last step finally."""
        self._log(f"{phase} {task}", self._step, evaluation_metrics(task, result))

    def on_warning(self, message: str) -> None:
        """Log a warning."""
        text, step = plain(message), self._step
        self._send(f"warning {text}", step, lambda tracker: tracker.note(step, text))

    def on_diagnosis(self, finding: Finding) -> None:
        """Log a warning; trackers show its step beside it."""
        self.on_warning(finding.advice)

    def on_stop(self, message: str) -> None:
        """Log nothing: a stop is no problem of the run."""

    def close(self, *, failed: bool) -> None:
        """Close the tracker, unless it was dropped; one that takes longer than `CLOSE_S` is left."""
        closing = Thread(target=self._use, args=(lambda tracker: tracker.close(failed=failed),), daemon=True)
        closing.start()
        closing.join(CLOSE_S)
        if closing.is_alive():
            self._warn(
                f"tracker {self._kind} did not close within {CLOSE_S:g} s and is left: it may lack the last steps, "
                "which the run's own logs have"
            )
        self._tracker = None

    def _start(self, info: RunInfo) -> None:
        sent = self._sent = SentLog(info.run_dir, self._kind)
        is_branch = self._branches and max(sent.steps.values(), default=0) > info.step
        if is_branch:
            forget_id(info.run_dir, self._kind)  # before the branch is written: a kill in between begins no other run
            sent.write(branch=f"branch_{sent.n_branches + 1}_from_step_{info.step}")
        tracking = self._config.tracking
        parent = tracking.run_name or info.run_dir.name
        run = TrackedRun(
            run_dir=info.run_dir,
            project=project_of(tracking),
            name=f"{parent}_{sent.branch}" if sent.branch else parent,
            config={**flatten(self._config), **info.settings, **({"branch_of": parent} if sent.branch else {})},
            mode=self._mode,
            is_resumed=info.step > 0 and not is_branch,
            branch=sent.branch,
        )
        tracker = self._tracker = self._open(run)
        earlier, run_id = sent.run_id, recall_id(info.run_dir, self._kind)
        if run_id != earlier:
            sent.write(run_id=run_id)
        ask = getattr(tracker, "last_step", None)
        last = ask() if ask and run.is_resumed else None
        self._before = {key: step if last is None else min(step, last) for key, step in sent.steps.items()}
        self._catch_up(info.run_dir)
        if is_branch:
            self._warn(
                f"tracker {self._kind}: {run.name} is a run of its own, because steps after {info.step} were already "
                f"sent to {parent} and may differ now; its steps up to {info.step} are those of {parent}"
            )
        elif earlier not in (None, run_id):
            self._warn(f"tracker {self._kind}: its run {run_id} has every step, and takes the place of {earlier}")

    def _catch_up(self, run_dir: Path) -> None:
        """Send what the logs of the run have and the tracker has not: the logs end at the step of the resume."""
        for _, line in read_lines(run_dir / TRAIN_LOG, with_step, []):
            step = line.pop("step")
            self._log("", step, self._named({name: value for name, value in line.items() if value is not None}))
        for event in read_branch(run_dir, []):
            if event.get("kind") == "evaluation":
                numbers = evaluation_metrics(event["task"], event["result"])
                self._log(f"{event['phase']} {event['task']}", event["step"], numbers)

    def _named(self, metrics: Mapping[str, float]) -> Mapping[str, float]:
        return with_reference_names(metrics) if self._config.tracking.reference_names else metrics

    def _log(self, stream: str, step: int, values: Mapping[str, float]) -> None:
        finite = {name: float(value) for name, value in values.items() if math.isfinite(value)}
        if finite:
            self._send(stream, step, lambda tracker: tracker.numbers(step, finite))

    def _send(self, stream: str, step: int, action: Callable[[Tracker], None]) -> None:
        """Send something of a step, unless the tracker has it from an earlier process."""
        if step <= self._before.get(stream, -1):
            return

        def send(tracker: Tracker) -> None:
            action(tracker)
            self._sent.write(stream=stream, step=step)

        self._use(send)

    def _use(self, action: Callable[[Tracker], None]) -> None:
        tracker = self._tracker
        if tracker is not None:
            self._guarded(lambda: action(tracker))

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # a tracker is an external service: whatever it raises, the run continues
            self._tracker = None
            reason = without_secrets(f"{type(error).__name__}: {first_line(error)}")
            self._warn(f"tracker {self._kind} stopped ({reason}); the run and its own logs go on")
