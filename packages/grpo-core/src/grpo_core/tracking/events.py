"""`logs/events.jsonl`: the events of a run other than its steps: starts, evaluations, warnings, stops, the end."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import IO, Any, Literal

import orjson

from grpo_core.tracking.base import plain, without_secrets
from grpo_sdk.callbacks import Callback, EvalPhase, Finding, ResolvedDefault, RunInfo
from grpo_sdk.errors import UserError, first_line
from grpo_sdk.records.jsonl import open_log, read_jsonl

EVENTS = Path("logs") / "events.jsonl"

Kind = Literal["start", "evaluation", "warning", "stop", "end", "failed"]


class EventLog(Callback):
    """Writes the events of a run to `logs/events.jsonl`.

    A line that cannot be written is left out: the trainer's own logs report a full disk, and no event is needed to
    resume.

    Args:
        sources: Setting -> where its value comes from; settings with their default are left out.
    """

    def __init__(self, sources: Mapping[str, str] | None = None) -> None:
        self._sources = dict(sources or {})
        self._file: IO[bytes] | None = None
        self._step = 0

    def on_run_start(self, info: RunInfo) -> None:
        """Open the log and write the chosen values."""
        self._open(info.run_dir, info.step)
        self._write(
            "start",
            total_steps=info.total_steps,
            directory=os.getcwd(),
            tasks={name: list(counts) for name, counts in info.tasks.items()},
            choices=[{"what": each.what, "value": each.value, "why": each.why} for each in info.choices],
            sources=self._sources,
        )

    @classmethod
    def write_resume(cls, run_dir: Path, step: int, total_steps: int) -> None:
        """Write the start of a resume before the logs are cut: a run killed from there on shows no abandoned result."""
        log = cls()
        log._open(run_dir, step)
        log._write("start", total_steps=total_steps)
        log.close(None)

    def on_evaluation(self, task: str, phase: EvalPhase, result: Mapping[str, Any]) -> None:
        """Write an evaluation."""
        self._write("evaluation", task=task, phase=phase, result=dict(result))

    def on_step_end(self, step: int) -> None:
        """Record the step for later events."""
        self._step = step

    def on_warning(self, message: str) -> None:
        """Write a warning."""
        self._write("warning", message=plain(message))

    def on_diagnosis(self, finding: Finding) -> None:
        """Write a warning with its parts."""
        parts = {key: value if key == "step" else plain(value) for key, value in finding.as_json().items()}
        self._write("warning", message=plain(finding.advice), **parts)

    def on_stop(self, message: str) -> None:
        """Write why the run stops before its last planned step."""
        self._write("stop", message=plain(message))

    def on_run_end(self, summary: Mapping[str, Any], run_dir: Path) -> None:
        """Write the end of the run."""
        self._write("end", interrupted=bool(summary.get("interrupted")))

    def close(self, error: BaseException | None) -> None:
        """Write the error that ended the run, if any, and close the log."""
        if error is not None:
            message = f"{type(error).__name__}: {first_line(error)}"
            self._write("failed", error=without_secrets(plain(message)))
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, run_dir: Path, step: int) -> None:
        self._step = step
        with contextlib.suppress(OSError):
            self._file = open_log(run_dir / EVENTS)

    def _write(self, kind: Kind, **fields: Any) -> None:
        if self._file is None:
            return
        line = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "kind": kind, "step": self._step, **fields}
        with contextlib.suppress(OSError):
            self._file.write(orjson.dumps(line, default=str) + b"\n")


def read_sources(run_dir: Path) -> dict[str, str]:
    """Read where the settings of a run come from, by its newest start that says so; empty if none does."""
    newest: dict[str, str] = {}
    for event in read_events(run_dir):
        newest = sources_in(event) or newest
    return newest


def sources_in(event: Mapping[str, Any]) -> dict[str, str]:
    """Where the settings of a run come from, if the event is a start that says so; else empty."""
    sources = event.get("sources") if event.get("kind") == "start" else None
    return sources if isinstance(sources, dict) else {}


@contextlib.contextmanager
def at_start_of(run_dir: Path, *, reads_settings: bool = True) -> Iterator[tuple[Path, list[ResolvedDefault]]]:
    """Work in the directory in which a run began, from which the relative paths in its settings are.

    Args:
        run_dir: Folder of the run.
        reads_settings: Whether the block reads these; otherwise the directory stays.

    Yields:
        The folder as it is called there, and a notice where the directory is not the working directory.

    Raises:
        UserError: raised in the block; names the directory where it no longer exists.
    """
    here, started = os.getcwd(), [event for event in read_events(run_dir, []) if event.get("kind") == "start"]
    began = next((str(event["directory"]) for event in reversed(started) if event.get("directory")), here)
    if began == here or not reads_settings:
        yield run_dir, []
    elif os.path.isdir(began):
        path, why = run_dir.resolve(), "where the run began: relative paths in its settings are from there"
        with contextlib.chdir(began):
            yield path, [ResolvedDefault("directory", began, why)]
    else:
        why = f"the run began in {began}, which is not here; relative paths in its settings are read from {here}"
        try:
            yield run_dir, [ResolvedDefault("directory", here, why)]
        except UserError as error:
            error.args = (f"{error} Note that {why}.", *error.args[1:])
            raise


def read_events(run_dir: Path, problems: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """Read the events of a run, oldest first; none if the run has no event log.

    Args:
        run_dir: Folder of the run.
        problems: Receives the damaged lines, which are left out; None warns of them.

    Raises:
        DataError: the log cannot be read.
    """
    return read_jsonl(run_dir / EVENTS, problems)


def read_branch(run_dir: Path, problems: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """Read the events of a run, oldest first, without what a resume from an earlier step has abandoned.

    Evaluations and warnings of steps after the one that the run was resumed from are left out: these steps are made
    again. The log is read twice, so that it need not fit the memory.

    Args:
        run_dir: Folder of the run.
        problems: As for `read_events`.

    Raises:
        DataError: the log cannot be read.
    """
    kept_up_to = [_kept_up_to(event) for event in read_events(run_dir, []) if event.get("kind") == "start"]
    limits = list(accumulate(reversed(kept_up_to), min))  # the last one is of all starts that are still to come
    for event in read_events(run_dir, problems):
        if event.get("kind") == "start" and limits:
            limits.pop()
        elif event.get("kind") in ("evaluation", "warning") and limits and _position(event) > limits[-1]:
            continue
        yield event


def _kept_up_to(start: Mapping[str, Any]) -> tuple[float, bool]:
    """Position of the last event that a resume keeps; a run at its end repeats the final evaluation there."""
    step, total = start.get("step"), start.get("total_steps")
    if not isinstance(step, int):
        return math.inf, True
    return step, not (isinstance(total, int) and total <= step)


def _position(event: Mapping[str, Any]) -> tuple[float, bool]:
    """Step of an event, and whether it is the final evaluation there."""
    step = event.get("step")
    return step if isinstance(step, int) else 0, event.get("phase") == "final"
