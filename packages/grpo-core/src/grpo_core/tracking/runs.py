"""Reading state, progress, results and settings of a run from its folder, without loading a model."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from grpo_core.checkpoints import check_run, is_run, read_json
from grpo_core.tracking import presence
from grpo_core.tracking.aliases import ALIASES
from grpo_core.tracking.base import shortened
from grpo_core.tracking.events import EVENTS, read_branch, read_events, sources_in
from grpo_sdk.errors import DataError, UserError, unknown_name
from grpo_sdk.paths import kind_of
from grpo_sdk.records.jsonl import TRAIN_LOG, read_last, read_lines, with_step
from grpo_sdk.records.run_folder import read_settings

State = Literal["running", "finished", "interrupted", "failed", "killed", "unreadable"]

MAX_WARNING_CHARS = 4000
"""Longest warning that is shown; it may hold an author's error."""

MAX_WARNINGS = 1000
"""Newest warnings that are read; a callback may warn at every step."""

ENDLESS = 10**9
"""Number of planned steps from which on only a time limit ends the run."""


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Held-out evaluations of one task.

    Attributes:
        initial: Evaluation of the starting model; None if it was not evaluated.
        latest: Latest evaluation of the trained model.
        phase: Phase of the latest evaluation: `final` or `interval`.
    """

    initial: Mapping[str, Any] | None = None
    latest: Mapping[str, Any] | None = None
    phase: str = ""


@dataclass(frozen=True, slots=True)
class RunView:
    """State of a run, read from its folder.

    Attributes:
        path: Folder of the run.
        state: `running` (its process is alive), `finished`, `interrupted` (stopped and saved), `failed` (ended by an
            error), `killed` (its process ended without a record), or `unreadable`.
        settings: Dotted key -> value, as in config.yaml.
        steps: Completed steps.
        planned: Planned steps; None if only a time limit ends the run, or if unknown.
        updated: Time of the last write to a log, in seconds since the epoch.
        metrics: Metrics of the last logged step.
        results: Task name -> its evaluations, without those of steps that a resume has abandoned.
        choices: (setting, value, reason) of each value chosen for the user.
        sources: Setting -> where its value comes from; empty where the run does not say.
        warnings: (step, text), oldest first; of more than `MAX_WARNINGS` the newest, after a line that says so.
        n_warnings: Number of warnings, with those that are left out.
        problem: The error that ended the run, or the reason why it cannot be read.
    """

    path: Path
    state: State
    settings: Mapping[str, Any] = field(default_factory=dict)
    steps: int = 0
    planned: int | None = None
    updated: float = 0.0
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    results: Mapping[str, TaskResult] = field(default_factory=dict)
    choices: Sequence[tuple[str, str, str]] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    warnings: Sequence[tuple[int, str]] = ()
    n_warnings: int = 0
    problem: str = ""


def find_runs(folder: Path) -> list[Path]:
    """Return the runs in a folder, oldest first; for the folder of a run, that run alone.

    Raises:
        UserError: there is no such folder, or it cannot be read.
    """
    if is_run(folder):
        return [folder]
    if (kind := kind_of(folder)) != "a folder":
        what = f"it is {kind}" if kind else "there is no such folder"
        raise UserError(f"no folder of runs {folder}: {what}. grpo run makes training_runs, or what --output-dir says.")
    try:
        return sorted((path for path in folder.iterdir() if is_run(path)), key=_when_made)
    except OSError as error:
        raise UserError(f"no folder of runs {folder}: it cannot be read: {error.strerror or error}.") from None


def _when_made(path: Path) -> tuple[str, int]:
    """Return the date in a run's name and its number among the runs of that second; another name as it is, and 1."""
    match = re.fullmatch(r"(run_[-\d]{10}_[-\d]{8})_(\d+)", path.name)
    return (path.name, 1) if match is None else (match[1], int(match[2]))


def read_run(path: Path, problems: list[str] | None = None) -> RunView:
    """Read the state of a run from its folder; only the end of the training log is read.

    Args:
        path: Folder of the run.
        problems: Receives what is damaged in the events and the summary, which is then left out; None warns of lines,
            and raises for the summary. Damaged lines of the training log are for the reader of that log to name.

    Raises:
        UserError: the folder is not a run, or its settings, a log or its summary cannot be read.
    """
    check_run(path)
    last = read_last(path / TRAIN_LOG, None if problems is None else [])
    events = Outline.of(read_branch(path, problems))
    summary: Mapping[str, Any] = read_summary(path, problems)
    state, problem = state_of(path, events.last, summary)
    if events.last.get("kind") != "end":
        summary = _resumed_summary(summary, events.start)
    planned = events.start.get("total_steps", summary.get("planned_steps"))
    warnings = [
        (_whole(event.get("step")), shortened(str(event.get("message")), MAX_WARNING_CHARS))
        for event in events.warnings
    ]
    if left_out := events.n_warnings - len(warnings):
        notice = f"{left_out} earlier warnings are left out here: {EVENTS} has them all"
        warnings.insert(0, (warnings[0][0], notice))
    return RunView(
        path=path,
        state=state,
        settings=read_settings(path),
        steps=_whole(last.get("step", summary.get("steps", 0))),
        planned=planned if isinstance(planned, int) and planned < ENDLESS else None,
        updated=presence.last_write(path),
        metrics={name: value for name, value in last.items() if name != "step" and is_number(value)},
        results=_results(events.evaluations.values(), summary),
        choices=[
            (_text(each, "what"), _text(each, "value"), _text(each, "why"))
            for each in _objects(events.start, "choices")
        ],
        sources=events.sources,
        warnings=warnings,
        n_warnings=events.n_warnings,
        problem=problem,
    )


@dataclass(slots=True)
class Outline:
    """The events that decide the state and the results of a run, so that its log need not fit the memory.

    Attributes:
        start: The last start.
        last: The last start, end or failure.
        sources: Setting -> where its value comes from, of the last start that says so.
        evaluations: (task, `initial` or `latest`) -> its newest evaluation.
        warnings: The newest warnings.
        n_warnings: Number of all warnings.
    """

    start: Mapping[str, Any] = field(default_factory=dict)
    last: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    evaluations: dict[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    warnings: deque[Mapping[str, Any]] = field(default_factory=lambda: deque(maxlen=MAX_WARNINGS))
    n_warnings: int = 0

    @classmethod
    def of(cls, events: Iterable[Mapping[str, Any]]) -> Outline:
        """Return that of a run's events, oldest first."""
        outline = cls()
        for event in events:
            match event.get("kind"):
                case "warning":
                    outline.warnings.append(event)
                    outline.n_warnings += 1
                case "evaluation":
                    which = "initial" if _text(event, "phase") == "initial" else "latest"
                    outline.evaluations[_text(event, "task"), which] = event
                case "start":
                    outline.start = outline.last = event
                    outline.sources = sources_in(event) or outline.sources
                case "end" | "failed":
                    outline.last = event
        return outline


def list_run(path: Path) -> RunView:
    """Read a run as `read_run` does; one that cannot be read gets the state `unreadable` with the reason."""
    try:
        return read_run(path)
    except (UserError, DataError, OSError) as error:  # of the system: a folder in it that may not be looked into
        return RunView(path, "unreadable", updated=presence.last_write(path), problem=str(error))


def series(
    path: Path, names: Iterable[str], logged: set[str] | None = None
) -> dict[str, list[tuple[int, float | None]]]:
    """Read metrics of a run over its logged steps: name -> (step, value), for those that the run logged.

    Args:
        path: Folder of the run.
        names: Names of metrics.
        logged: Receives the names of all metrics that were logged in any step.

    Raises:
        DataError: the training log cannot be read.
    """
    points: dict[str, list[tuple[int, float | None]]] = {name: [] for name in names}
    for _, line in read_lines(path / TRAIN_LOG, with_step):
        if logged is not None:
            logged.update(line.keys() - {"step"})
        for name in points.keys() & line:
            value = line[name]
            points[name].append((line["step"], float(value) if is_number(value) else None))
    return {name: values for name, values in points.items() if values}


def named_series(path: Path, names: Sequence[str]) -> dict[str, list[tuple[int, float | None]]]:
    """Read metrics as `series` does, each by our name or that of a reference system.

    Raises:
        UnknownNameError: the run logged no such metric in any step.
        DataError: the training log cannot be read.
    """
    logged: set[str] = set()
    points = series(path, [*names, *(each.name for each in ALIASES if each.alias in names)], logged)
    return {ours: points[ours] for ours in (metric_named(name, logged) for name in names)}


def metric_named(name: str, known: Iterable[str]) -> str:
    """Return our name of a metric, given our name or that of a reference system.

    Raises:
        UnknownNameError: the run logged no such metric.
    """
    logged = set(known)
    if name in logged:
        return name
    ours = next((each.name for each in ALIASES if each.alias == name and each.name in logged), None)
    if ours is None:
        raise unknown_name("logged metric", name, logged)
    return ours


def differences(runs: Sequence[RunView]) -> dict[str, list[Any]]:
    """Return the settings in which runs differ: key -> value in each run, None where a run has none."""
    keys = dict.fromkeys(key for run in runs for key in run.settings)
    settings = {key: [run.settings.get(key) for run in runs] for key in keys}
    return {key: values for key, values in settings.items() if any(value != values[0] for value in values)}


def has_ended(path: Path, step: int) -> bool:
    """Whether a run has finished at `step` or later and has its summary; False if its files cannot be read."""
    try:
        summary = read_summary(path)
        state, _ = _last_state(Outline.of(read_events(path)).last, summary)
    except (UserError, DataError):
        return False
    return state == "finished" and not summary.get("interrupted") and _whole(summary.get("steps")) >= step


def state_of(path: Path, last: Mapping[str, Any], summary: Mapping[str, Any]) -> tuple[State, str]:
    """Return the state of a run and the error that ended it.

    Args:
        path: Folder of the run.
        last: Its last start, end or failure; empty where it has no events.
        summary: Its summary; empty where it has none.
    """
    return ("running", "") if presence.is_alive(path) else _last_state(last, summary)


def _last_state(last: Mapping[str, Any], summary: Mapping[str, Any]) -> tuple[State, str]:
    """Return how the last process that worked in a run's folder ended, and its error."""
    match last.get("kind", "end" if summary else "start"):
        case "failed":
            return "failed", str(last.get("error", ""))
        case "end":
            return ("interrupted" if (last or summary).get("interrupted") else "finished"), ""
    return "killed", ""


def _resumed_summary(summary: Mapping[str, Any], start: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the summary of a run's earlier end, without what came after the step that the run was resumed from."""
    step, tasks = start.get("step"), summary.get("tasks")
    if not isinstance(step, int) or _whole(summary.get("steps")) <= step:
        return summary
    entries = tasks.items() if isinstance(tasks, dict) else ()
    kept = {task: {**entry, "final": None} for task, entry in entries if isinstance(entry, dict)}
    return {**summary, "steps": step, "tasks": kept}


def _results(events: Iterable[Mapping[str, Any]], summary: Mapping[str, Any]) -> dict[str, TaskResult]:
    """Return the evaluations in the summary and in some events, later ones replacing earlier ones."""
    results: dict[str, TaskResult] = {}
    tasks = summary.get("tasks")
    evaluations = [
        {"task": task, "phase": phase, "result": result}
        for task, entry in (tasks.items() if isinstance(tasks, dict) else ())
        for phase, result in (entry.items() if isinstance(entry, dict) else ())
        if phase in ("initial", "final")
    ]
    for each in (*evaluations, *events):
        if isinstance(each.get("result"), dict):
            task, phase, numbers = _text(each, "task"), _text(each, "phase"), _numbers(each["result"])
            if isinstance(each["result"].get("metrics"), dict):
                numbers["metrics"] = _numbers(each["result"]["metrics"])
            new = {"initial": numbers} if phase == "initial" else {"latest": numbers, "phase": phase}
            results[task] = replace(results.get(task, TaskResult()), **new)
    return results


def _numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if is_number(value)}


def read_summary(path: Path, problems: list[str] | None = None) -> dict[str, Any]:
    """Read the summary of a run, empty where there is none; one that is corrupt is noted in `problems`, or raises."""
    file = path / "summary.json"
    try:
        return read_json(file, "the summary") if file.exists() else {}
    except (UserError, DataError) as error:
        if problems is None:
            raise
        problems.append(str(error))
        return {}


def _objects(event: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the objects in a list of an event; a log may hold anything."""
    listed = event.get(name)
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def _text(event: Mapping[str, Any], name: str) -> str:
    return str(event.get(name, ""))


def is_number(value: object) -> bool:
    """Whether a value of a log is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
