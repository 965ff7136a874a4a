"""Every checkpoint of a run, evaluated one after the other, each with a time limit."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from grpo_core.checkpoints import check_run, evaluation_dir
from grpo_core.config import RunConfig, load_config
from grpo_core.config.resolution import task_for_model
from grpo_core.evaluation.candidate import evaluate_model
from grpo_core.evaluation.entry import Moment, entry_of
from grpo_core.evaluation.held_out import (
    HeldOutTask,
    evaluated_specs,
    held_out_tasks,
    prepare_tasks,
    trained_tasks,
)
from grpo_core.evaluation.output import (
    BASE,
    FINAL,
    EvaluationFolder,
    NamedModel,
    check_kept,
    phase_of,
    step_order,
)
from grpo_core.evaluation.run_models import checkpoints_of, control_of, options_of, start_of
from grpo_core.evaluation.settings import EvaluationSettings, ModelOptions
from grpo_core.policy.memory import release
from grpo_core.rollouts.task_scoring import prepare_nodes
from grpo_sdk.callbacks import Callback, Callbacks, ResolvedDefault
from grpo_sdk.endpoints.base import StopRequested
from grpo_sdk.errors import GrpoError, UserError
from grpo_sdk.killable.importing import refuse_in_worker
from grpo_sdk.paths import check_makeable
from grpo_sdk.plugins.task_objects import Tasks, name_tasks
from grpo_sdk.scoring.conditions import condition_choices
from grpo_sdk.scoring.judge_errors import known_errors

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
    callback, run_dir, started = Callbacks(callbacks), Path(run_dir), time.monotonic()
    check_run(run_dir)
    config = config or load_config({}, config_file=run_dir / "config.yaml", environ={}, dotenv_path=None).config
    if not timeout_s > 0:
        raise UserError(f"--timeout-s {timeout_s:g}: must be above 0 seconds.")
    checkpoints, failures = checkpoints_of(run_dir, config, steps)
    options = loading or options_of(config, run_dir)
    control = control_of(config, base) if with_base else None
    named = None if task is None else name_tasks(task)
    tasks, choices = _tasks(config, None if named is None else named.spec, settings)
    callback.on_choices(choices)
    output_dir = evaluation_dir(run_dir) if output_dir is None else Path(output_dir)
    check_makeable(output_dir, f"--eval-dir {output_dir}")
    name = run_dir.resolve().name
    evaluation = _Evaluation(
        run=str(run_dir.resolve()),
        start=start_of(config),
        control=None if control is None else control.name,
        tasks=tasks,
        folders={label: EvaluationFolder(output_dir, name, label) for label in tasks},
        options=options,
    )
    models = [*([] if control is None else [control]), *checkpoints]
    waiting = {model: evaluation.missing(model, overwrite=overwrite) for model in models}
    kept = [model.name for model, labels in waiting.items() if not labels]
    for label, folder in evaluation.folders.items():
        facts = {"run": str(run_dir), "task": tasks[label].task.spec, "steps": steps, **asdict(tasks[label].settings)}
        folder.write_config({**facts, "base": None if control is None else control.model, "timeout_s": timeout_s})
    for left_out, why in failures.items():
        callback.on_warning(f"{left_out} is left out: {why}")
    for each in kept:
        callback.on_warning(
            f"{each} has been evaluated so before: its results are kept (--overwrite evaluates it again)"
        )
    bound = {label: held.task for label, held in tasks.items()} if any(waiting.values()) else {}
    errors = known_errors(bound, options.scoring.timeout_s, options.scoring.memory_mib, callback)
    shown: list[ResolvedDefault] = []
    for model, labels in waiting.items():
        if labels and (why := evaluation.evaluate(model, labels, timeout_s, callback, shown)):
            failures[model.name] = why
            callback.on_warning(f"{model.name} failed: {why}")
    results = {}
    for label in tasks:
        judges = [each.as_json() for each in errors[label]] if label in errors else []
        results[label] = evaluation.summarise(label, [model.name for model in models], failures, judges, started)
    return RunEvaluation(results, failures, kept, {label: each.path for label, each in evaluation.folders.items()})


class _OfModel(Callback):
    """Passes on what comes of one model, with its name; a choice that several models share comes once.

    Args:
        step: Name of the model.
        callbacks: Notified of choices, progress and warnings.
        shown: Choices of the models before, which it adds to.
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


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """The tasks of a run that are evaluated, and the folders of their results.

    Attributes:
        run: Folder of the run.
        start: Model and adapter that the run started from.
        control: Name of the control; None where there is none.
        tasks: Tasks by label.
        folders: Folder of each task, by label.
        options: How models and scorers are set up.
    """

    run: str
    start: tuple[str, str | None]
    control: str | None
    tasks: Mapping[str, HeldOutTask]
    folders: Mapping[str, EvaluationFolder]
    options: ModelOptions

    @property
    def precision(self) -> str:
        """Floating-point type of the models' products; empty where each model decides."""
        return "" if self.options.precision == "auto" else self.options.precision

    def missing(self, model: NamedModel, *, overwrite: bool) -> list[str]:
        """Labels of the tasks on which a model is to be evaluated.

        Raises:
            UserError: there are results of another evaluation.
        """
        labels = []
        for label, held in self.tasks.items():
            wanted = {
                **held.settings.deciding(),
                "task": held.task.spec,
                "identity": held.task.identity,
                "conditions": held.task.conditions,
                "run": self.run,
                "model": model.model,
                "steps_done": model.steps_done,
                "precision": self.precision,
            }
            if overwrite or not check_kept(self.folders[label].results(model.name, held.settings), wanted):
                labels.append(label)
        return labels

    def consolidate(self, label: str) -> dict[str, dict[str, Any]]:
        """Write the table of a task's models and return their numbers."""
        return self.folders[label].consolidate(self.tasks[label].settings, self.control)

    def summarise(
        self,
        label: str,
        names: Sequence[str],
        failures: Mapping[str, str],
        judges: Sequence[Mapping[str, Any]],
        started: float,
    ) -> dict[str, dict[str, Any]]:
        """Write summary.json of a task.

        Args:
            label: Task label.
            names: Names of the models.
            failures: Model -> why it has no result.
            judges: Errors of the task's judges, where they were measured.
            started: When the evaluation began, by the monotonic clock.

        Returns:
            The numbers of the models, in order.
        """
        numbers, settings = self.consolidate(label), self.tasks[label].settings
        results = {name: numbers[name] for name in sorted({*names} & numbers.keys(), key=step_order)}
        self.folders[label].write_summary(
            {
                "tasks": {label: {**_entry(results), **({"judges": judges} if judges else {})}},
                "run_dir": self.run,
                "failures": dict(failures),
                "settings": asdict(settings),
                "seed": settings.seed,
                "seconds": round(time.monotonic() - started, 3),
            }
        )
        return results

    def evaluate(
        self,
        model: NamedModel,
        labels: Sequence[str],
        timeout_s: float,
        callback: Callbacks,
        shown: list[ResolvedDefault],
    ) -> str:
        """Load a model, evaluate it on some of the tasks, and write the results; returns why it failed."""
        why = ""
        try:
            self._evaluate(model, labels, timeout_s, Callbacks([_OfModel(model.name, callback, shown)]))
        except StopRequested:
            why = f"not finished within {timeout_s:g} s (--timeout-s)"
        except GrpoError as error:
            why = str(error)
        except Exception as error:  # of a library, about a model that it cannot load or run: the others may do
            why = f"{type(error).__name__}: {' '.join(str(error).split())}"[:MAX_REASON_CHARS]
        release()  # the model, before the next one is loaded, and after the exception that held it
        for label in labels if not why else ():
            numbers = self.consolidate(label)[model.name]
            callback.on_evaluation(label, phase_of(model.name), {**numbers, "checkpoint": model.name})
        return why

    def _evaluate(self, model: NamedModel, labels: Sequence[str], timeout_s: float, callbacks: Callbacks) -> None:
        deadline = time.monotonic() + timeout_s
        is_of_run = model.name == BASE or not model.name.startswith(BASE)  # and no other model, the control
        evaluations = evaluate_model(
            model.model,
            model.adapter,
            {label: self.tasks[label] for label in labels},
            self.options if is_of_run else replace(self.options, lora=None),
            callbacks,
            start=self.start,
            should_stop=lambda: time.monotonic() > deadline,
        )
        for label, evaluation in evaluations.items():
            held, folder = self.tasks[label], self.folders[label]
            moment = Moment(phase_of(model.name), model.steps_done or 0, folder.path.resolve())
            entry = entry_of(evaluation, held, label, moment, warn=callbacks.warn_once)
            folder.write(evaluation, held, entry, model, run=self.run, precision=self.precision)


def _tasks(
    config: RunConfig, task: str | None, settings: EvaluationSettings | None
) -> tuple[dict[str, HeldOutTask], list[ResolvedDefault]]:
    """The tasks of a run, or other tasks with the run's settings: by label, on their held-out rows."""
    if settings is not None:
        tasks, choices = prepare_tasks(task or evaluated_specs(config), asdict(settings), settings)
        conditions: list[ResolvedDefault] = []
    else:
        why = ""
        if task is not None:
            task, why = task_for_model(task, start_of(config)[0])
        tasks, choices = held_out_tasks(config, trained_tasks(config), needed=None, others=task)
        if task is not None and why:
            choices = [ResolvedDefault("task", task, why), *choices]
        conditions = condition_choices({label: held.task for label, held in tasks.items()})
    nodes = prepare_nodes(config.scoring, [held.task for held in tasks.values()])
    return tasks, [*conditions, *nodes, *choices]


def _entry(results: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of a task in summary.json: every checkpoint, and those of the phases."""
    entry: dict[str, Any] = {"checkpoints": dict(results)}
    control = next((step for step in results if step.startswith(BASE)), "")
    # The run's own start is its phase `initial`; another model is only the base.
    for name, step in (("initial", BASE), ("base", control), ("final", FINAL)):
        if step in results:
            entry[name] = results[step]
    return entry
