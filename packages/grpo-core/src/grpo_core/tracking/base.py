"""The tracker protocol, and the callback that passes a run to a tracker."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from grpo_core.callbacks import Callback, EvalPhase, Finding, RunInfo, Sample, StepRecord
from grpo_core.checkpoints.files import replace_file
from grpo_core.tracking.aliases import with_reference_names
from grpo_core.tracking.evaluations import evaluation_metrics

Mode = Literal["online", "offline", "disabled"]
Cell = str | float | bool | None

TABLE = "completions"
"""Name of the table of completions."""

COLUMNS = ("step", "task", "prompt", "completion", "score", "solved", "parts", "why")
"""Columns of that table."""

TABLE_EVERY_S = 30.0
"""Shortest time between tables; a tracker stores each as a separate file."""

MAX_CELL_CHARS = 4000
"""Longest prompt or completion in a table: two pages; `grpo rollouts` shows all of it."""

SECRETS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "WANDB_API_KEY",
    "HF_TOKEN",
    "TRACKIO_WRITE_TOKEN",
    "MLFLOW_TRACKING_PASSWORD",
    "MLFLOW_TRACKING_TOKEN",
    "DATABRICKS_TOKEN",
    "COMET_API_KEY",
    "CLEARML_API_ACCESS_KEY",
    "CLEARML_API_SECRET_KEY",
    "SWANLAB_API_KEY",
)
"""Variables whose values are removed from error messages before they are logged."""


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """Description of a run that a tracker opens.

    Attributes:
        run_dir: Folder of the run.
        project: Name of the project.
        name: Name of the run.
        config: Dotted key -> value of every setting.
        mode: Whether the tracker may use the network.
        is_resumed: Whether the run is being resumed.
    """

    run_dir: Path
    project: str
    name: str
    config: Mapping[str, Any]
    mode: Mode
    is_resumed: bool


class Tracker(Protocol):
    """Destination of metrics; created by a function of a `TrackedRun` that is registered under the kind `tracker`."""

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        """Log finite numbers of a step."""

    def table(self, step: int, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Log a table, whose text is untrusted."""

    def note(self, step: int, text: str) -> None:
        """Log a warning."""

    def close(self, *, failed: bool) -> None:
        """Flush and close."""


class TrackerCallback(Callback):
    """Passes the events of a run to a tracker; a tracker that raises is dropped, and the run continues.

    Args:
        kind: Name of the tracker in the configuration.
        open_tracker: Function that creates the tracker.
        describe: (folder of the run, whether it is resumed) -> description of the run.
        warn: Function that sends a warning to all callbacks.
        reference_names: Whether to log metrics also under their names in the reference systems.
        clock: Monotonic clock, in seconds.
    """

    def __init__(
        self,
        kind: str,
        open_tracker: Callable[[TrackedRun], Tracker],
        describe: Callable[[Path, bool], TrackedRun],
        warn: Callable[[str], None],
        *,
        reference_names: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kind, self._open, self._describe, self._warn = kind, open_tracker, describe, warn
        self._reference_names, self._clock = reference_names, clock
        self._tracker: Tracker | None = None
        self._step = 0
        self._tabled = -math.inf

    def on_run_start(self, info: RunInfo) -> None:
        """Open the tracker, before anything is sampled."""
        self._step = info.step

        def start() -> None:
            described = self._describe(info.run_dir, self._step > 0)
            self._tracker = self._open(replace(described, config={**described.config, **info.settings}))

        self._guarded(start)

    def on_step_end(self, step: int) -> None:
        """Record the step for evaluations and warnings."""
        self._step = step

    def on_step(self, record: StepRecord) -> None:
        """Log the metrics of a step, and its completions every `TABLE_EVERY_S`."""
        values = with_reference_names(record.metrics) if self._reference_names else record.metrics
        self._log(record.step, values)
        if record.samples and self._clock() - self._tabled >= TABLE_EVERY_S:
            self._tabled = self._clock()
            rows = [row_of(record.step, sample) for sample in record.samples]
            self._use(lambda tracker: tracker.table(record.step, TABLE, COLUMNS, rows))

    def on_evaluation(self, task: str, phase: EvalPhase, result: Mapping[str, Any]) -> None:
        """Log the numbers of an evaluation as `eval/TASK/NAME`: at step 0 initially, at the last step finally."""
        self._log(self._step, evaluation_metrics(task, result))

    def on_warning(self, message: str) -> None:
        """Log a warning."""
        self._use(lambda tracker: tracker.note(self._step, plain(message)))

    def on_diagnosis(self, finding: Finding) -> None:
        """Log a warning; trackers show its step beside it."""
        self.on_warning(finding.advice)

    def on_stop(self, message: str) -> None:
        """Log nothing: a stop is no problem of the run."""

    def close(self, *, failed: bool) -> None:
        """Close the tracker, unless it was dropped."""
        self._use(lambda tracker: tracker.close(failed=failed))
        self._tracker = None

    def _log(self, step: int, values: Mapping[str, float]) -> None:
        finite = {name: float(value) for name, value in values.items() if math.isfinite(value)}
        if finite:
            self._use(lambda tracker: tracker.numbers(step, finite))

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


def row_of(step: int, sample: Sample) -> list[Cell]:
    """Return a completion as a row of the table; see `COLUMNS`."""
    score = sample.score
    parts = ", ".join(f"{name} {value:g}" for name, value in score.parts.items())
    texts = (shortened(plain(sample.prompt)), shortened(plain(sample.text)))
    return [step, sample.task, *texts, score.value, score.solved, parts, shortened(plain(score.why))]


def plain(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, by question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def shortened(text: str, limit: int = MAX_CELL_CHARS) -> str:
    """Shorten a text to `limit` characters by leaving out the middle."""
    if len(text) <= limit:
        return text
    tail = limit // 3
    return f"{text[: limit - tail - 1]}…{text[-tail:]}"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, shortened."""
    return shortened((str(error).splitlines() or [""])[0], 300)


def recall_id(run_dir: Path, tracker: str) -> str | None:
    """Read the identifier that a tracker's service gave the run when it started; None for a new run."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        known = _id_file(run_dir, tracker).read_text(encoding="ascii").strip()
        if known.isalnum():
            return known
    return None


def remember_id(run_dir: Path, tracker: str, identifier: str) -> None:
    """Write the identifier of a run to `logs/`, so that a resumed run continues under it."""
    replace_file(_id_file(run_dir, tracker), identifier.encode("ascii"))


def _id_file(run_dir: Path, tracker: str) -> Path:
    return run_dir / "logs" / f"{tracker}_run_id"


def without_secrets(text: str) -> str:
    """Replace the values of `SECRETS` in a text."""
    for name in SECRETS:
        if value := os.environ.get(name):
            text = text.replace(value, f"<{name}>")
    return text
