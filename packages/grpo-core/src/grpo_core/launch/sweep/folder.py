"""The folder of a sweep: its definition, its runs, and what has become of each."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import filelock
from pydantic import Field, ValidationError

from grpo_core.checkpoints import CheckpointError, CheckpointStore, read_json, write_json
from grpo_core.config import RunConfig, flatten, read_config
from grpo_core.config.keys import keys
from grpo_core.config.section import Section
from grpo_core.launch.sweep.configurations import label
from grpo_core.launch.sweep.definition import Definition, text_of, validated
from grpo_core.tracking.runs import RunView, find_runs, list_run
from grpo_sdk.display.text import format_value, visible
from grpo_sdk.errors import DataError, ExitCode, UserError
from grpo_sdk.records.jsonl import tell_damage

VERSION = 1
"""Version of sweep.json; changes are announced a minor version ahead."""

PLAN, OUTCOME, LOG, LOCK = "sweep.json", "outcome.json", "log.txt", "sweep.lock"

MAX_LINE_CHARS = 500
"""Longest line of a log that is shown."""

DEFAULT_SEED: int = RunConfig.model_fields["seed"].default

CONTEXT_CHARS = 20
"""Characters that are shown before the first difference of long values."""

STOPPED = (0, ExitCode.INTERRUPTED, -signal.SIGTERM)
"""Exit codes of a process that was stopped; the last one while it was still importing."""

State = Literal["pending", "queued", "running", "finished", "interrupted", "killed", "failed", "pruned"]


class SweepRun(Section):
    """One run of a sweep.

    Attributes:
        name: Name of its folder.
        configuration: Number of its configuration, from 1.
        settings: Settings in which configurations differ.
        seed: Its seed, if the sweep gives one.
    """

    name: str
    configuration: int
    settings: dict[str, str]
    seed: int | None = None

    def __str__(self) -> str:
        seed = "" if self.seed is None else f"seed={self.seed}"
        return " ".join(filter(None, (label(self.settings), seed)))


class SweepPlan(Section):
    """What sweep.json holds.

    Attributes:
        version: Version of the format.
        definition: The sweep's definition.
        config: YAML file of settings, given by --config.
        base: Settings that all runs have in common, as they were when the sweep began.
        threads: Threads of each run; None leaves them to the run.
        runs: All runs, in the order in which they were planned.
    """

    version: int = VERSION
    definition: dict[str, Any]
    config: str | None = None
    base: dict[str, str] = Field(default_factory=dict)
    threads: int | None = None
    runs: list[SweepRun] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RunStatus:
    """What has become of a run.

    Attributes:
        run: The run.
        state: `pending`: not started; `queued`: waits for SLURM; `killed`: ended without a record;
            `pruned`: ended early by Optuna.
        path: Its newest run folder.
        exit_code: Exit code of its last process, if that has ended.
        last_line: Last line that a failed process printed.
    """

    run: SweepRun
    state: State
    path: Path | None = None
    exit_code: int | None = None
    last_line: str = ""

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to run."""
        return self.state in ("finished", "pruned")


class SweepFolder:
    """Reads and writes the folder of a sweep.

    Args:
        path: The folder.

    Attributes:
        path: The folder.
        plan: What it holds, with what `begin` and `add` have changed; None before the first start.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.plan = self._saved = read_plan(path) if (path / PLAN).exists() else None
        self._seed: int | None = None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other sweeps out of the folder while the block runs.

        Raises:
            UserError: another one works in it, or it cannot be made.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with filelock.FileLock(self.path / LOCK, timeout=0):
                yield
        except filelock.Timeout:
            raise UserError(f"{self.path} is in use: another grpo sweep works in it.") from None
        except PermissionError as error:
            raise UserError(f"--output-dir {self.path}: {error.strerror}. Give another folder.") from None

    def begin(self, definition: Definition, config: Path | None, threads: int | None) -> SweepPlan:
        """Make the plan of a sweep, or take up the one that is there; nothing is written before `save`.

        Args:
            definition: The sweep.
            config: YAML file of settings.
            threads: Threads of each run; a sweep that goes on keeps those that it began with.

        Raises:
            UserError: the folder holds runs with other settings.
        """
        before, base = self._saved, common_settings(definition, config)
        base_before, runs = (dict(before.base), before.runs) if before is not None else ({}, [])
        self._seed = None
        if definition.seeds or any(run.seed is not None for run in runs):  # each run has a seed, and none is common
            self._seed, own = (int(each.pop("seed", DEFAULT_SEED)) for each in (base, base_before))
            runs = [run if run.seed is not None else run.model_copy(update={"seed": own}) for run in runs]
        if before is not None:
            _check_common(self.path, base_before, base)
        self.plan = SweepPlan(
            definition=definition.model_dump(mode="json", exclude_unset=True),
            config=None if config is None else str(config.absolute()),
            base=base,
            threads=before.threads if before is not None and runs else threads,
            runs=runs,
        )
        return self.plan

    def add(self, settings: Mapping[str, str], seeds: Sequence[int]) -> list[SweepRun]:
        """Return the runs of a configuration, with each seed; those that are new are added to the plan.

        Without seeds, but in a sweep whose runs have some, the seed is that of the settings of all runs.
        """
        assert self.plan is not None
        runs = self.plan.runs
        known = next((run.configuration for run in runs if run.settings == settings), None)
        number = known or max((run.configuration for run in runs), default=0) + 1
        wanted = []
        for seed in seeds or (self._seed,):
            found = next((run for run in runs if run.configuration == number and run.seed == seed), None)
            if found is None:
                name = f"{number:03}" if seed is None else f"{number:03}_seed_{seed}"
                found = SweepRun(name=name, configuration=number, settings=dict(settings), seed=seed)
                runs = [*runs, found]
            wanted.append(found)
        self.plan = self.plan.model_copy(update={"runs": runs})
        return wanted

    def save(self) -> None:
        """Write the plan."""
        assert self.plan is not None
        write_json(self.path / PLAN, self.plan.model_dump(mode="json"))
        self._saved = self.plan

    def folder_of(self, run: SweepRun) -> Path:
        """Return the folder of a run, which holds its run folder and its log."""
        return self.path / "runs" / run.name

    def words_of(self, run: SweepRun) -> list[str]:
        """Return the words after `grpo` that start a run, without its folder."""
        assert self.plan is not None
        settings = {**self.definition.fixed, **run.settings}
        if run.seed is not None:
            settings["seed"] = str(run.seed)
        config = [] if self.plan.config is None else ["--config", self.plan.config]
        return ["run", *config, *(f"{key}={value}" for key, value in settings.items())]

    def start_words(self, run: SweepRun) -> list[str]:
        """Return the words after `grpo` that start a run."""
        return [*self.words_of(run), "--output-dir", str(self.folder_of(run))]

    def next_words(self, run: SweepRun) -> list[str]:
        """Return the words after `grpo` of a run's next process: a new run, or the last one resumed."""
        path = self.run_path(run)
        has_saved = path is not None and CheckpointStore(path).newest_serial() > 0  # also after the last step
        return ["resume", str(path)] if has_saved else self.start_words(run)

    def run_path(self, run: SweepRun) -> Path | None:
        """Return the newest run folder of a run."""
        folder = self.folder_of(run)
        return next(reversed(find_runs(folder)), None) if folder.is_dir() else None

    def status(self, run: SweepRun) -> RunStatus:
        """Return what has become of a run."""
        path, outcome = self.run_path(run), self._outcome(run)
        code, is_pruned = outcome.get("exit_code"), outcome.get("pruned") is True
        view = None if path is None else list_run(path)
        state = _state(view, code, is_pruned=is_pruned)
        if state == "running":
            code = None
        problem = view.problem if view is not None else ""
        line = str(outcome.get("last_line", "")) or problem if state == "failed" else ""
        return RunStatus(run, state, path, code if isinstance(code, int) else None, visible(line)[:MAX_LINE_CHARS])

    def record(self, run: SweepRun, exit_code: int, *, is_pruned: bool = False) -> None:
        """Write how a run's process ended."""
        folder = self.folder_of(run)
        last = "" if exit_code == 0 else last_line(folder / LOG)
        write_json(folder / OUTCOME, {"exit_code": exit_code, "last_line": last, "pruned": is_pruned})

    @property
    def definition(self) -> Definition:
        """The definition in the plan."""
        assert self.plan is not None
        return validated(self.plan.definition, str(self.path / PLAN))

    def _outcome(self, run: SweepRun) -> dict[str, Any]:
        file = self.folder_of(run) / OUTCOME
        try:
            return read_json(file, "the outcome of a run", max_bytes=2**16) if os.path.lexists(file) else {}
        except CheckpointError as error:
            tell_damage(f"{error} What the run's own folder says counts.")
            return {}


def read_plan(path: Path) -> SweepPlan:
    """Read the plan of a sweep's folder.

    Raises:
        UserError: there is none, it is damaged, or of a newer version.
    """
    data = read_json(path / PLAN, f"{path} is no sweep: its plan")
    if isinstance(version := data.get("version"), int) and version > VERSION:
        raise DataError(f"{path / PLAN} was written by a newer version of grpo-core: update grpo-core.")
    try:
        plan = SweepPlan.model_validate(data)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(map(str, problem["loc"]))
        raise DataError(f"{path / PLAN} is damaged: {place}: {problem['msg'][:200]}.") from None
    for run in plan.runs:
        # A run that began without a seed has one since seeds were added to the sweep.
        if run.name not in (f"{run.configuration:03}", f"{run.configuration:03}_seed_{run.seed}"):
            raise DataError(f"{path / PLAN} is damaged: {run.name[:80]!r} is not the name of run {run.configuration}.")
    return plan


def common_settings(definition: Definition, config: Path | None) -> dict[str, str]:
    """Return the settings that a user has given to all runs, wherever: command line, environment, .env, files.

    Raises:
        UserError: as for `read_config`; or a value is not allowed.
    """
    settings = read_config(definition.fixed, config_file=config)
    given = [key for key in keys() if key in settings.values and key != "output_dir"]
    settings.add_recipe()
    values = flatten(settings.validated().config)
    return {key: text_of(values[key]) for key in given}


def _check_common(path: Path, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Refuse common settings that differ from those of a folder's runs."""
    for key in {**now, **before}:
        if before.get(key) == now.get(key):
            continue
        texts = [each.get(key, "its default") for each in (before, now)]
        shown = [format_value(text) for text in texts]
        if shown[0] == shown[1]:
            pairs = enumerate(zip(*texts, strict=False))
            first = next((number for number, (one, other) in pairs if one != other), min(map(len, texts)))
            start = max(0, first - CONTEXT_CHARS)
            shown = [f"…{format_value(text[start:])}" for text in texts]
        raise UserError(
            f"{path} holds runs with other settings: {key} was {shown[0]} and is {shown[1]}. Give another --output-dir."
        )


def last_line(log: Path) -> str:
    """Return the last line of a log that is not empty."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 2**16))
            lines = file.read(2**16).decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.strip()[:MAX_LINE_CHARS] for line in reversed(lines) if line.strip()), "")


def _state(view: RunView | None, code: object, *, is_pruned: bool) -> State:
    state: State = "pending" if view is None else "failed" if view.state == "unreadable" else view.state
    if state in ("running", "finished"):
        return state
    if is_pruned:
        return "pruned"
    if isinstance(code, int) and code not in STOPPED:
        return "killed" if code < 0 else "failed"
    return state
