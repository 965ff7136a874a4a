"""Every checkpoint of a run, evaluated one after the other, each with a time limit."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from grpo_core.checkpoints import CheckpointStore, check_run, evaluation_dir
from grpo_core.config import RunConfig, load_config
from grpo_core.config.resolution import task_for_model
from grpo_core.evaluation.checkpoints import EvaluatedCheckpoint, checkpoints_of, control_of, start_of, training_info
from grpo_core.evaluation.entry import Moment, add_report, entry_of
from grpo_core.evaluation.evaluate import meta_of
from grpo_core.evaluation.held_out import held_out_tasks
from grpo_core.evaluation.output import BASE, FINAL, EvaluationFolder, check_kept, phase_of, step_order, write_results
from grpo_core.evaluation.rows import trained_tasks
from grpo_core.evaluation.settings import EvaluationSettings
from grpo_core.evaluation.setup import EvaluationTask, ModelOptions, evaluate_model, prepare_tasks
from grpo_core.policy.load import DTYPES
from grpo_core.policy.memory import release
from grpo_core.rollouts.task_scoring import prepare_nodes
from grpo_sdk.callbacks import Callback, Callbacks, ResolvedDefault
from grpo_sdk.endpoints.base import StopRequested
from grpo_sdk.errors import GrpoError, UserError
from grpo_sdk.judges.known import JudgeErrors
from grpo_sdk.killable.importing import refuse_in_worker
from grpo_sdk.paths import check_makeable
from grpo_sdk.plugins.task_objects import Tasks, name_tasks
from grpo_sdk.scoring.conditions import condition_choices
from grpo_sdk.scoring.judge_errors import known_errors
from grpo_sdk.task.mixture import task_labels
from grpo_sdk.task.spec import parse_task_specs

TIMEOUT_S = 600.0
"""A checkpoint's evaluation ends after ten minutes, as in the reference systems."""

MAX_REASON_CHARS = 300
"""Longest excerpt of an error that is not ours."""


@dataclass(frozen=True, slots=True)
class RunEvaluation:
    """Result of `evaluate_run`.

    Attributes:
        results: Task -> checkpoint -> the numbers of summary.json; the checkpoints in order, base first.
        failures: Checkpoint -> why it has no result.
        kept: Checkpoints that were evaluated before, and were left as they are.
        folders: Task -> its folder.
    """

    results: Mapping[str, Mapping[str, Mapping[str, Any]]]
    failures: Mapping[str, str]
    kept: Sequence[str]
    folders: Mapping[str, Path]


def evaluate_run(
    run_dir: Path | str,
    *,
    steps: str = "all",
    task: Tasks | None = None,
    config: RunConfig | None = None,
    settings: EvaluationSettings | None = None,
    loading: ModelOptions | None = None,
    base: str | None = None,
    with_base: bool = True,
    output_dir: Path | str | None = None,
    overwrite: bool = False,
    timeout_s: float = TIMEOUT_S,
    callbacks: Sequence[Callback] = (),
) -> RunEvaluation:
    """Evaluate the checkpoints of a run as the run evaluates, the starting model first.

    Args:
        run_dir: Folder of the run.
        steps: `all`, or some of them: `1,5,final`, `latest`.
        task: Spec of the tasks, a `Task` object, or a list; by default those that the run evaluates.
        config: Configuration of the run, which says the rows and the sampling; by default its config.yaml.
        settings: Settings of every task, in place of those of the configuration.
        loading: How models and scorers are set up; by default as for the run.
        base: The control; by default the model that the run started from.
        with_base: Whether there is a control at all.
        output_dir: Receives `RUN_TASK`; by default `eval_runs`, beside the folder that holds the run's.
        overwrite: Evaluate again what has a result.
        timeout_s: Limit for one checkpoint, loading included; looked at after every completion.
        callbacks: Notified of progress, of each result and each failure.

    Raises:
        UserError: it is no run, it has no such checkpoint, or a result that is there is of another evaluation.
    """
    refuse_in_worker("evaluate_run()")
    callback, run_dir = Callbacks(callbacks), Path(run_dir)
    check_run(run_dir)
    config = config or load_config({}, config_file=run_dir / "config.yaml", environ={}, dotenv_path=None).config
    if not timeout_s > 0:
        raise UserError(f"--timeout-s {timeout_s:g}: must be above 0 seconds.")
    checkpoints, failures = checkpoints_of(run_dir, config, steps)
    options = loading or _model_options(config, CheckpointStore(run_dir))
    control = control_of(config, base) if with_base else None
    named = None if task is None else name_tasks(task)
    tasks, choices = _tasks(config, None if named is None else named.spec, settings)
    callback.on_choices(choices)
    output_dir = evaluation_dir(run_dir) if output_dir is None else Path(output_dir)
    check_makeable(output_dir, f"--eval-dir {output_dir}")
    plan = _Plan(run_dir, start_of(config), checkpoints, control, tasks, options, output_dir)
    jobs, kept = plan.jobs(overwrite=overwrite)
    plan.write_configs(steps, timeout_s)
    _warn_left_out(failures, kept, callback)
    started, scoring = time.monotonic(), options.scoring
    bound = {label: each.task for label, each in tasks.items()} if jobs else {}
    errors = known_errors(bound, scoring.timeout_s, scoring.memory_mib, callback)
    failures |= _evaluate_each(plan, jobs, timeout_s, callback)
    results = plan.results()
    plan.write_summaries(results, failures, errors, started)
    return RunEvaluation(results, failures, kept, {label: folder.path for label, folder in plan.folders.items()})


def _warn_left_out(failures: Mapping[str, str], kept: Sequence[str], callback: Callbacks) -> None:
    for name, why in failures.items():
        callback.on_warning(f"{name} is left out: {why}")
    for name in kept:
        callback.on_warning(
            f"{name} has been evaluated so before: its results are kept (--overwrite evaluates it again)"
        )


class _OfCheckpoint(Callback):
    """Passes on what comes of one checkpoint, with its name; a choice that several checkpoints share comes once.

    Args:
        step: Name of the checkpoint.
        callbacks: Notified of choices, progress and warnings.
        shown: Choices of the checkpoints before, which it adds to.
    """

    def __init__(self, step: str, callbacks: Callbacks, shown: list[ResolvedDefault]) -> None:
        self._step, self._callbacks, self._shown = step, callbacks, shown

    def on_choices(self, choices: Sequence[ResolvedDefault]) -> None:
        new = [choice for choice in choices if choice not in self._shown]
        self._shown += new
        if new:
            self._callbacks.on_choices(new)

    def on_progress(self, what: str, done: int, total: int) -> None:
        self._callbacks.on_progress(f"{self._step}: {what}", done, total)

    def on_warning(self, message: str) -> None:
        self._callbacks.on_warning(f"{self._step}: {message}")


def _evaluate_each(plan: _Plan, jobs: Sequence[_Job], timeout_s: float, callback: Callbacks) -> dict[str, str]:
    """Evaluate one checkpoint after the other; returns checkpoint -> why it failed."""
    failures: dict[str, str] = {}
    shown: list[ResolvedDefault] = []
    for checkpoint, folders in jobs:
        step, why = checkpoint.name, ""
        try:
            plan.evaluate(checkpoint, folders, timeout_s, Callbacks([_OfCheckpoint(step, callback, shown)]))
        except StopRequested:
            why = f"not finished within {timeout_s:g} s (--timeout-s)"
        except GrpoError as error:
            why = str(error)
        except Exception as error:  # of a library, about a model that it cannot load or run: the others may do
            why = f"{type(error).__name__}: {' '.join(str(error).split())}"[:MAX_REASON_CHARS]
        release()  # the model, before the next one is loaded, and after the exception that held it
        if why:
            failures[step] = why
            callback.on_warning(f"{step} failed: {why}")
            continue
        for label in folders:
            numbers = plan.consolidate(label)[step]
            callback.on_evaluation(label, phase_of(step), {**numbers, "checkpoint": step})
    return failures


_Job = tuple[EvaluatedCheckpoint, Mapping[str, Path]]
"""A checkpoint, and the results folders of the tasks on which it is to be evaluated, by label."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """The models and tasks of an evaluation of a run, and the folders of its results.

    Attributes:
        run_dir: Folder of the run.
        start: Model and adapter that the run started from.
        checkpoints: Checkpoints of the run, in order.
        control: The control; None where there is none.
        tasks: Tasks by label.
        options: How models and scorers are set up.
        output_dir: Folder that receives `RUN_TASK`.
    """

    run_dir: Path
    start: tuple[str, str | None]
    checkpoints: Sequence[EvaluatedCheckpoint]
    control: EvaluatedCheckpoint | None
    tasks: Mapping[str, EvaluationTask]
    options: ModelOptions
    output_dir: Path

    @property
    def models(self) -> list[EvaluatedCheckpoint]:
        """Everything that is evaluated, the control first."""
        return [*([] if self.control is None else [self.control]), *self.checkpoints]

    @property
    def folders(self) -> dict[str, EvaluationFolder]:
        """Folder of each task, by label."""
        return {label: EvaluationFolder(self.output_dir, self.run_dir.resolve().name, label) for label in self.tasks}

    def jobs(self, *, overwrite: bool) -> tuple[list[_Job], list[str]]:
        """Return the jobs that are left to do, and the checkpoints that need none."""
        jobs: list[_Job] = []
        kept = []
        for checkpoint in self.models:
            missing: dict[str, Path] = {}
            for label, folder in self.folders.items():
                results = folder.results(checkpoint.name, self.tasks[label].settings)
                if overwrite or not check_kept(results, self._facts(label, checkpoint)):
                    missing[label] = results.resolve()
            if missing:
                jobs.append((checkpoint, missing))
            else:
                kept.append(checkpoint.name)
        return jobs, kept

    def consolidate(self, label: str) -> dict[str, dict[str, Any]]:
        """Write the table of a task's checkpoints and return their numbers."""
        control = None if self.control is None else self.control.name
        return self.folders[label].consolidate(self.tasks[label].settings, control)

    def results(self) -> dict[str, dict[str, dict[str, Any]]]:
        """The results of the checkpoints, in order: task -> checkpoint -> numbers."""
        names = {checkpoint.name for checkpoint in self.models}
        results = {}
        for label in self.tasks:
            numbers = self.consolidate(label)
            results[label] = {step: numbers[step] for step in sorted(names & numbers.keys(), key=step_order)}
        return results

    def write_configs(self, steps: str, timeout_s: float) -> None:
        """Write the settings into the folder of each task."""
        base = None if self.control is None else self.control.model
        for label, folder in self.folders.items():
            task = self.tasks[label]
            facts = {"run": str(self.run_dir), "task": task.task.spec, "steps": steps, **asdict(task.settings)}
            folder.write_config({**facts, "base": base, "timeout_s": timeout_s})

    def write_summaries(
        self,
        results: Mapping[str, Mapping[str, Any]],
        failures: Mapping[str, str],
        errors: Mapping[str, Sequence[JudgeErrors]],
        started: float,
    ) -> None:
        """Write summary.json of each task.

        Args:
            results: Task -> checkpoint -> numbers.
            failures: Checkpoint -> why it has no result.
            errors: Task -> errors of its judges, where they were measured.
            started: When the evaluation began, by the monotonic clock.
        """
        for label, folder in self.folders.items():
            settings = self.tasks[label].settings
            judges = {"judges": [each.as_json() for each in errors[label]]} if label in errors else {}
            folder.write_summary(
                {
                    "tasks": {label: _entry(results[label]) | judges},
                    "run_dir": str(self.run_dir.resolve()),
                    "failures": dict(failures),
                    "settings": asdict(settings),
                    "seed": settings.seed,
                    "seconds": round(time.monotonic() - started, 3),
                }
            )

    def _facts(self, label: str, checkpoint: EvaluatedCheckpoint) -> dict[str, Any]:
        """Facts that existing results of a checkpoint must have, so that they are kept."""
        task, settings = self.tasks[label].task, self.tasks[label].settings
        return {
            **settings.deciding(),
            "task": task.spec,
            "identity": task.identity,
            "conditions": task.conditions,
            "run": str(self.run_dir.resolve()),
            "model": checkpoint.model,
            "steps_done": checkpoint.steps_done,
            "precision": "" if self.options.precision == "auto" else self.options.precision,
        }

    def evaluate(
        self, checkpoint: EvaluatedCheckpoint, folders: Mapping[str, Path], timeout_s: float, callbacks: Callbacks
    ) -> None:
        """Load a checkpoint, evaluate it on the tasks whose results folders are given, and write the results.

        Raises:
            StopRequested: the time is up.
        """
        options = self.options if checkpoint.is_of_run else replace(self.options, lora=None)
        precision = "" if options.precision == "auto" else options.precision
        deadline = time.monotonic() + timeout_s
        evaluations = evaluate_model(
            checkpoint.model,
            checkpoint.adapter,
            {label: self.tasks[label] for label in folders},
            options,
            callbacks,
            start=self.start,
            should_stop=lambda: time.monotonic() > deadline,
        )
        for label, evaluation in evaluations.items():
            task, settings, folder = self.tasks[label].task, self.tasks[label].settings, folders[label]
            entry = entry_of(evaluation, task, seed=settings.seed, warn=callbacks.warn_once)
            moment = Moment(phase_of(checkpoint.name), checkpoint.steps_done, folder.parent.parent)
            add_report(entry, evaluation, task, label, moment, warn=callbacks.warn_once)
            meta = meta_of(
                evaluation, task, settings, entry, run=str(self.run_dir.resolve()), step=checkpoint.name,
                model=checkpoint.model, adapter=checkpoint.adapter,
            )  # fmt: skip
            write_results(folder, evaluation, replace(meta, precision=precision, steps_done=checkpoint.steps_done))


def _tasks(
    config: RunConfig, task: str | None, settings: EvaluationSettings | None
) -> tuple[dict[str, EvaluationTask], list[ResolvedDefault]]:
    """The tasks of a run, or other tasks with the run's settings: by label, on their held-out rows."""
    if settings is not None:
        return prepare_tasks(task or tasks_of(config), asdict(settings), settings, config.scoring)
    bound = trained_tasks(config)
    trained, why = dict(zip(task_labels(bound), bound, strict=True)), ""
    if task is not None:
        task, why = task_for_model(task, start_of(config)[0])
    tasks, choices = held_out_tasks(config, trained, needed=None, others=task)
    if task is not None and why:
        choices = [ResolvedDefault("task", task, why), *choices]
    choices = [*prepare_nodes(config.scoring, [held.task for held in tasks.values()]), *choices]
    choices = [*condition_choices({label: held.task for label, held in tasks.items()}), *choices]
    return {label: EvaluationTask(held.task, held.plan.settings) for label, held in tasks.items()}, choices


def _model_options(config: RunConfig, store: CheckpointStore) -> ModelOptions:
    """The options with which the run set up its model, in the precision that `auto` was there."""
    precision = config.precision
    if precision == "auto" and store.folder.is_dir():
        recorded = (training_info(path).get("precision") for path in store.folder.glob("step_*"))
        precision = next((name for name in recorded if name in DTYPES), precision)
    return ModelOptions(
        device=config.device,
        precision=precision,
        engine=config.engine,
        scoring=config.scoring,
        lora=config.lora.model_copy(update={"enabled": False}) if config.lora.quantization else None,
    )


def tasks_of(config: RunConfig) -> str:
    """The tasks that a run evaluates: those it trains and those of `eval.task`, each once."""
    specs = (*parse_task_specs(config.task), *(parse_task_specs(config.eval.task) if config.eval.task else ()))
    return ",".join(dict.fromkeys(str(spec) for spec in specs))


def _entry(results: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of a task in summary.json: every checkpoint, and those of the phases."""
    entry: dict[str, Any] = {"checkpoints": dict(results)}
    control = next((step for step in results if step.startswith(BASE)), "")
    # The run's own start is its phase `initial`; another model is only the base.
    for name, step in (("initial", BASE), ("base", control), ("final", FINAL)):
        if step in results:
            entry[name] = results[step]
    return entry
