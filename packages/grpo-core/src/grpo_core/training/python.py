"""`train`, `resume` and `warm_start` as Python calls them: with objects and keyword arguments, showing progress."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from grpo_core.checkpoints import check_run
from grpo_core.config import ResolvedConfig, RunConfig, load_config, resolve, with_settings
from grpo_core.display.notebook import progress_console
from grpo_core.display.progress import EvaluationDisplay, ProgressDisplay, watched
from grpo_core.training import resume as resuming
from grpo_core.training import trainer
from grpo_core.training import warm_start as fine_tuning
from grpo_core.training.result import RunResult
from grpo_sdk.callbacks import Callback
from grpo_sdk.errors import UserError
from grpo_sdk.killable.importing import refuse_in_worker
from grpo_sdk.paths import user_path
from grpo_sdk.plugins.task_objects import NamedTasks, Tasks, name_tasks, take_names


def train(
    task: Tasks | RunConfig | ResolvedConfig | None = None,
    callbacks: Sequence[Callback] = (),
    *,
    config: RunConfig | ResolvedConfig | None = None,
    eval_task: Tasks | None = None,
    progress: bool = True,
    **settings: Any,
) -> RunResult:
    """Train a model on verifiable tasks: `train(add, model="tiny", max_steps=50)`.

    Args:
        task: A task spec, a `Task` object, a list of these for a mixture, or a configuration; by default that of the
            configuration, else math.arithmetic.
        callbacks: Notified of progress, results and warnings.
        config: The run's configuration, which is resolved unless it is already.
        eval_task: Tasks evaluated beside the trained ones.
        progress: Show progress: in a terminal, a notebook's cell, or as lines on stderr.
        settings: Settings by name, above those of the configuration: `model="tiny"`, `max_steps=50` (of `trainer`),
            `interval_steps=20` (of the only section that has it), `eval={"size": 64}`, `lora={"enabled": True}`.

    Returns:
        The result; its table shows itself in a notebook.

    Raises:
        UserError: something in the configuration cannot be done; nothing was loaded or written where that was known.
        AbstentionLimitError: too many of a task's completions could not be scored.
        NonFiniteError: the model broke down.
    """
    refuse_in_worker("train()")
    if isinstance(callbacks, str):
        raise UserError(f"train() takes a model by name: model={callbacks!r}.")
    if isinstance(task, RunConfig | ResolvedConfig):
        if config is not None:
            raise UserError("train() got two configurations; give one.")
        task, config = None, task
    named = {name: name_tasks(tasks) for name, tasks in (("task", task), ("eval.task", eval_task)) if tasks is not None}
    settings |= {name: each.spec for name, each in named.items()}
    if isinstance(config, ResolvedConfig):
        if settings:
            listed = ", ".join(settings)
            raise UserError(f"a resolved configuration is taken as it is: set {listed} before it is resolved.")
        resolved = config
    else:
        resolved = resolve(with_settings(config or RunConfig(), settings))
    display = ProgressDisplay(progress_console(), resolved.config) if progress else None
    with watched(callbacks, display) as watching:
        result = trainer.train(resolved, watching)
    return _keeping(result, named.values())


def resume(
    run_dir: Path | str,
    *,
    task: Tasks | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
    **options: Any,
) -> RunResult:
    """Go on with a run to the end that was planned, or for exactly some more steps.

    Args:
        run_dir: The run's folder.
        task: The tasks of the run that are `Task` objects, which its folder does not hold.
        callbacks: Notified of progress, results and warnings.
        progress: Show progress, as `train` does.
        options: `from_step`, `additional_steps`, `stop_after` and `allow`; see `grpo_core.training.resume.resume`.

    Raises:
        UserError: as for `grpo_core.training.resume.resume`; or an object of the run is missing.
    """
    refuse_in_worker("resume()")
    path = user_path(os.fspath(run_dir), "RUN")
    check_run(path)
    config = load_config(config_file=path / "config.yaml", environ={}, dotenv_path=None).config
    named = [] if task is None else [take_names(task, ",".join(filter(None, (config.task, config.eval.task))))]
    display = ProgressDisplay(progress_console(), config) if progress else None
    with watched(callbacks, display) as watching:
        result = resuming.resume(run_dir, callbacks=watching, **options)
    return _keeping(result, named)


def warm_start(
    task: Tasks, out: Path | str, *, callbacks: Sequence[Callback] = (), progress: bool = True, **options: Any
) -> dict[str, Any]:
    """Fine-tune a model on the demos or golds of tasks, evaluate it, and write it to a folder.

    Args:
        task: A task spec, a `Task` object, or a list of these.
        out: Folder that receives the model; it must not exist, or be empty.
        callbacks: Notified of progress and of the evaluation.
        progress: Show progress, as `train` does.
        options: `model` or `preset`, `max_steps` and others; see `grpo_core.training.warm_start.warm_start`.

    Returns:
        The record that is written beside the model.
    """
    display = EvaluationDisplay(progress_console()) if progress else None
    with watched(callbacks, display) as watching:
        return fine_tuning.warm_start(task, out, callbacks=watching, **options)


def _keeping(result: RunResult, named: Iterable[NamedTasks]) -> RunResult:
    return replace(result, objects=tuple(task for each in named for task in each.objects))
