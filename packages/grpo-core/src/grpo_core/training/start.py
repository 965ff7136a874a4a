"""`grpo_core.train`: its arguments, which are checked without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from grpo_core.config import ResolvedConfig, RunConfig, resolve, with_settings
from grpo_core.display.progress import watched
from grpo_sdk.callbacks import Callback
from grpo_sdk.errors import UserError
from grpo_sdk.killable.importing import refuse_in_worker
from grpo_sdk.plugins.task_objects import Tasks, name_tasks

if TYPE_CHECKING:
    from grpo_core.training.result import RunResult


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
    if not isinstance(config, ResolvedConfig):
        config = resolve(with_settings(config or RunConfig(), settings))
    elif settings:
        raise UserError(f"a resolved configuration is taken as it is: set {', '.join(settings)} before it is resolved.")
    with watched(callbacks, config.config, progress=progress) as watching:
        from grpo_core.training.new_run import new_run  # imports torch, once the arguments are right

        objects = tuple(each for tasks in named.values() for each in tasks.objects)
        return replace(new_run(config, watching), objects=objects)
