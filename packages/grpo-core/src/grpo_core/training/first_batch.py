"""The first batch of a run: whether there is anything to learn from."""

from __future__ import annotations

import shlex

from grpo_core.callbacks import Callbacks
from grpo_core.config import RunConfig
from grpo_core.config.resolution import EXAMPLE_MODEL
from grpo_core.errors import UserError
from grpo_core.plugins.task_objects import PREFIX, is_object
from grpo_core.task.spec import parse_task_specs
from grpo_core.training.collect import Collected

LEAST = 64
"""Completions from which on it says something that all earn the same: less than 1 in 20 would differ."""


def check_first_batch(collected: Collected, config: RunConfig, callbacks: Callbacks, *, was_chosen: bool) -> None:
    """Say, before anything is trained, that all completions earn the same.

    Args:
        collected: The first batch.
        config: The run's configuration.
        callbacks: Receives the warning.
        was_chosen: Whether the model was chosen for the user, who then gets an error in place of a warning.

    Raises:
        UserError: there is nothing to learn from, and the user named no model.
    """
    rewards = collected.rewards[~collected.rewards.isnan()]
    if len(rewards) < LEAST or bool((rewards != rewards[0]).any()):
        return
    message = (
        f"all {len(rewards)} completions of the first {len(collected.groups)} prompts by {config.model} earn "
        f"{float(rewards[0]):g}: GRPO learns from how completions differ, so there is nothing to learn from yet. "
        f"{_advice(config.task)}"
    )
    if was_chosen:
        raise UserError(message)
    callbacks.warn_once(message)


def _advice(task: str) -> str:
    """How to begin with a model that can learn: in Python where a task is an object, which a command may not find."""
    specs = parse_task_specs(task)
    if any(map(is_object, specs)):
        name = specs[0].name.rpartition(":")[2].removeprefix(PREFIX) if len(specs) == 1 else "tasks"
        tune, model = f'grpo_core.warm_start({name}, "./warm", preset="tiny")', f'model="{EXAMPLE_MODEL}"'
    else:
        tune = f"grpo warm-start --task {shlex.quote(task)} --preset tiny --out ./warm"
        model = f"--model {EXAMPLE_MODEL}"
    return f"Fine-tune a start on the task's golds, {tune}, or name a model that sometimes succeeds: {model}."
