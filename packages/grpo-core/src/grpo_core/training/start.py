"""A new run in a new folder: `grpo_core.train`, and what `grpo run` calls."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from grpo_core.config import ResolvedConfig, RunConfig, resolve, with_settings
from grpo_core.display.progress import watched
from grpo_core.policy.ranks import in_contact, joined
from grpo_core.tracking.observe import Observers, observe
from grpo_core.tracking.presence import working_in
from grpo_core.training.rank_config import agreed
from grpo_core.training.result import RunResult
from grpo_core.training.run_folder import shared_folder
from grpo_core.training.setup import prepare
from grpo_core.training.trainer import Trainer
from grpo_sdk.callbacks import Callback, Callbacks
from grpo_sdk.errors import UserError
from grpo_sdk.killable.importing import refuse_in_worker
from grpo_sdk.paths import check_makeable
from grpo_sdk.plugins.task_objects import Tasks, name_tasks


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
        listed = ", ".join(settings)
        raise UserError(f"a resolved configuration is taken as it is: set {listed} before it is resolved.")
    with ExitStack() as lock, ExitStack() as resources:  # unlocked when everything else is closed
        callbacks = lock.enter_context(watched(callbacks, config.config, progress=progress))
        ranks = resources.enter_context(joined(config.config.device, config.config.trainer.ddp_timeout))
        resolved = agreed(config, ranks)
        output_dir = Path(resolved.config.output_dir)
        observed = Observers(Callbacks(), ())
        if ranks.is_main:
            check_makeable(output_dir, f"output_dir={output_dir} ({resolved.sources['output_dir']})")
            observed = observe(resolved.config, callbacks, resources, resolved.sources)
        setup = prepare(resolved.config, resources, ranks)
        folder = resources.enter_context(closing(shared_folder(output_dir, ranks)))
        if ranks.is_main:
            lock.enter_context(working_in(folder.path))
        resources.enter_context(in_contact(folder.path))
        choices = [*resolved.choices, *observed.choices]
        result = Trainer(setup, folder, observed.callbacks, choices, resources, ranks).run()
        return replace(result, objects=tuple(each for tasks in named.values() for each in tasks.objects))
