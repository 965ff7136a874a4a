"""Callbacks of a run: the command line's progress, a notebook, a tracker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from grpo_sdk.task.evaluation import Phase
from grpo_sdk.task.score import Score

EvalPhase = Phase
"""When a held-out evaluation is made: before the first step, every few steps, or after the last one."""


@dataclass(frozen=True, slots=True)
class ResolvedDefault:
    """A default that depends on the machine or on other settings, printed once with its reason unless it is ordinary.

    Attributes:
        what: Subject, e.g. `device`.
        value: Value, e.g. `cpu, 2 threads, float32`.
        why: The reason, e.g. `no accelerator found`.
        is_ordinary: Whether a run gets it unless the user, the task, the model or the platform says otherwise.
    """

    what: str
    value: str
    why: str
    is_ordinary: bool = False


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run that is about to start.

    Attributes:
        run_dir: Folder of the run, which exists already.
        tasks: Task name -> (train rows, held-out rows).
        choices: Defaults that were resolved, each with its reason.
        total_steps: Steps planned; None when only a time limit ends the run.
        seconds_left: Time until `trainer.max_minutes` ends the run; None where it does not.
        settings: Dotted key -> value of every setting, with what was found on the model.
        also_trained: Task name -> held-out rows that are also trained on: `n`, `of`, and the first `pairs`.
        step: Steps done already; 0 unless the run is resumed.
    """

    run_dir: Path
    tasks: Mapping[str, tuple[int, int]]
    choices: Sequence[ResolvedDefault]
    total_steps: int | None
    seconds_left: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    also_trained: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    step: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem of a run that a diagnosis found.

    Attributes:
        name: Name of the diagnosis, and of its section in docs/how-to/troubleshooting.md.
        step: Step after which it was found; 0 before the first.
        seen: What was seen, with numbers.
        why: Why it matters.
        fix: What to try, with the settings to change.
        about: Task, or task and reward function, that it is about; empty for the whole run.
    """

    name: str
    step: int
    seen: str
    why: str
    fix: str
    about: str = ""

    @property
    def headline(self) -> str:
        """What was seen, and when."""
        return f"step {self.step}: {self.seen}" if self.step else self.seen

    @property
    def advice(self) -> str:
        """What was seen, why it matters and what to try, where the step is shown beside it."""
        return f"{self.seen} {self.why} Try: {self.fix}"

    def __str__(self) -> str:
        return f"step {self.step}: {self.advice}" if self.step else self.advice

    def as_json(self) -> dict[str, Any]:
        """The entry in summary.json and in `logs/events.jsonl`."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Sample:
    """A completion to look at.

    Attributes:
        task: Task label.
        prompt: Prompt as text.
        text: The completion.
        score: Its score.
    """

    task: str
    prompt: str
    text: str
    score: Score


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One optimizer step.

    Attributes:
        step: 1 for the first.
        metrics: Flat numbers by name, as in `logs/train_log.jsonl`; see docs/reference/metrics.md.
        samples: A few completions of the step.
    """

    step: int
    metrics: Mapping[str, float]
    samples: Sequence[Sample] = field(default_factory=tuple)


class Callback:
    """Base of everything that watches a run; each method may be overridden."""

    def on_run_start(self, info: RunInfo) -> None:
        """The run's folder exists and every default is resolved; nothing is sampled yet."""

    def on_choices(self, choices: Sequence[ResolvedDefault]) -> None:
        """Defaults were resolved outside of a run: for an evaluation by itself."""

    def on_progress(self, what: str, done: int, total: int) -> None:
        """Something that takes seconds advanced: loading, evaluation rows."""

    def on_evaluation(self, task: str, phase: EvalPhase, result: Mapping[str, Any]) -> None:
        """A held-out evaluation of one task finished; `result` is its entry in summary.json."""

    def on_step_end(self, step: int) -> None:
        """A step finished, logged or not (`trainer.logging_steps`); what is said until the next one is of this step."""

    def on_step(self, record: StepRecord) -> None:
        """An optimizer step finished and is logged."""

    def on_warning(self, message: str) -> None:
        """The user should know something; each message comes once."""

    def on_diagnosis(self, finding: Finding) -> None:
        """A diagnosis found a problem; by default a warning. It comes again only if it was gone in between."""
        self.on_warning(str(finding))

    def on_stop(self, message: str) -> None:
        """The run ends before its last planned step: it was asked to, or reached a limit; by default a warning."""
        self.on_warning(message)

    def on_run_end(self, summary: Mapping[str, Any], run_dir: Path) -> None:
        """The run is saved; `summary` is what summary.json holds."""


class Callbacks(Callback):
    """Several callbacks as one, each notified in turn.

    Args:
        callbacks: The callbacks.

    Attributes:
        warned: What `warn_once` has warned of: (kind of warning, what it is about).
        findings: What diagnoses found, oldest first.
    """

    def __init__(self, callbacks: Iterable[Callback] = ()) -> None:
        self._callbacks = list(callbacks)
        self.warned: set[tuple[str, str]] = set()
        self.findings: list[Finding] = []

    def add(self, *callbacks: Callback) -> None:
        """Notify these too, after the others."""
        self._callbacks += callbacks

    def warn_once(self, message: str, *, kind: str = "", about: str | None = None) -> None:
        """Warn, unless there was a warning of this kind about the same thing, by default with the same message."""
        key = (kind, message if about is None else about)
        if key not in self.warned:
            self.warned.add(key)
            self.on_warning(message)

    def on_diagnosis(self, finding: Finding) -> None:
        """Keep the finding, and notify every callback."""
        self.findings.append(finding)
        for callback in self._callbacks:
            callback.on_diagnosis(finding)


def _of_each(method: str) -> Callable[..., None]:
    def notify(self: Callbacks, *arguments: Any, **named: Any) -> None:
        for callback in self._callbacks:
            getattr(callback, method)(*arguments, **named)

    return notify


for _method in [name for name in vars(Callback) if name.startswith("on_") and name not in vars(Callbacks)]:
    setattr(Callbacks, _method, _of_each(_method))
