"""Checks of a run's names, options and rows that need no torch, whose import takes seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grpo_core.config import CurriculumConfig, LoraConfig, RunConfig, TrainerConfig, flatten
from grpo_core.evaluation.held_out import labelled, trained_tasks
from grpo_core.evaluation.plan import matchups, plan_of
from grpo_core.profiles.accelerator import check_device
from grpo_core.tracking.observe import check_trackers
from grpo_core.training.trl_settings import check_trl
from grpo_sdk.callbacks import ResolvedDefault
from grpo_sdk.episodes.episode import learning_roles
from grpo_sdk.episodes.opponents import check_opponent, plays_base
from grpo_sdk.errors import ExhaustedError, UserError
from grpo_sdk.plugins import variants as registry
from grpo_sdk.plugins.models import check_model, model_source
from grpo_sdk.plugins.tasks import bind
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.spec import parse_task_specs


def check_training(config: RunConfig) -> None:
    """Check the models, tasks and rows of a resolved configuration.

    Raises:
        UserError: the first thing that is wrong.
    """
    assert config.model is not None, "the configuration is resolved"
    check_model(config.model, config.adapter)
    check_device(config.device)
    tasks = list(trained_tasks(config).values())
    engine = config.engine
    if engine.name == "vllm" and engine.url is None and engine.fallback is None:
        from grpo_core.engines.servers.process import check_installed  # it imports a client of HTTP

        check_installed()
    check_choices(config, tasks)
    check_tasks(config, tasks)


def check_choices(config: RunConfig, tasks: Sequence[BoundTask]) -> None:
    """Check what a configuration names beside the model and the tasks.

    Raises:
        UserError: a tracker that is not there, arguments that a variant does not take, or settings of the evaluation
            that do not fit.
    """
    check_trackers(config.tracking.trackers)
    for variant in config.trainer.variants:
        registry.check_argument_names(variant.kind, variant.name, variant.arguments, variant.section)
    others = [bind(spec) for spec in parse_task_specs(config.eval.task)] if config.eval.task is not None else []
    held_out = [*tasks, *others]
    for task in matchups(labelled(held_out)).values():
        plan_of(config, task)


def check_tasks(config: RunConfig, tasks: Sequence[BoundTask]) -> None:
    """Check that the tasks can be trained with these settings.

    Raises:
        UserError: fewer rows than `trainer.train_size`, an opponent that does not exist, a game or a group reward that
            does not fit the settings, or what TRL cannot do where it is to train.
    """
    for task in tasks:
        _check_size(config.trainer.train_size, task)
        check_opponent(task)
    _check_turns(config.trainer, tasks)
    for task in tasks:
        _check_comparison(config.trainer, task)
    _check_reference(config)
    check_trl(config, tasks)


def _check_size(size: int | None, task: BoundTask) -> None:
    """Load the rows, and check that there are as many as wanted."""
    try:
        count = len(task.rows())
    except ExhaustedError as error:
        if size is None or not error.available:
            raise
        count = error.available
    if size is not None and count < size:
        raise UserError(
            f"trainer.train_size={size}: task {task.label} has {count} training rows, {size - count} fewer. Use "
            f"trainer.train_size={count}, or null for all."
        )


def _check_reference(config: RunConfig) -> None:
    """Check that a reference that moves is a copy of its own."""
    steps = config.trainer.ref_model_sync_steps
    if steps is None:
        return
    assert config.model is not None, "the configuration is resolved"
    if config.lora.enabled or config.adapter is not None or model_source(config.model).kind == "adapter":
        raise UserError(
            f"trainer.ref_model_sync_steps={steps}: an adapter's reference is the model that it was put on, which "
            "does not move. Train the whole model, or leave it out."
        )


def _check_turns(trainer: TrainerConfig, tasks: Sequence[BoundTask]) -> None:
    """Check that a game is trained with what fits it: its groups are sides of episodes and not answers to a prompt."""
    sides = {len(learning_roles(task, task.rows()[0])) for task in tasks}
    games = [task.name for task in tasks if task.task.game is not None]
    if len(sides) > 1:
        raise UserError(
            f"{games[0]}: a game that the policy plays alone gives a group for each role, and other tasks give one: "
            "train it by itself, or against an opponent (?opponent=random)."
        )
    if games and trainer.dynamic_sampling:
        raise UserError(f"{games[0]}: trainer.dynamic_sampling draws useless prompts again, and an episode is none.")


def _check_comparison(trainer: TrainerConfig, task: BoundTask) -> None:
    """Check that group rewards have a group, and that the opponent `base` stays the policy at its start."""
    if task.task.group_specs() and trainer.num_generations == 1:
        raise UserError(
            f"{task.name}: the group reward {task.task.group_specs()[0].name}() compares the completions of a prompt, "
            "and trainer.num_generations=1 samples one. Use 2 or more."
        )
    if not plays_base(task):
        return
    if trainer.off_policy_steps:
        raise UserError(
            f"{task.name}: its opponent plays with the weights that the policy began with, inside the model that "
            "trainer.off_policy_steps=1 trains meanwhile. Leave that out, or name another opponent."
        )
    if trainer.ref_model_sync_steps is not None:
        raise UserError(
            f"trainer.ref_model_sync_steps={trainer.ref_model_sync_steps}: {task.name} is played against the policy at "
            "its start, which is the reference. Take another opponent, or leave it out."
        )


def without_effect(config: RunConfig, tasks: Mapping[str, BoundTask]) -> list[ResolvedDefault]:
    """Settings that are not their default and that nothing in this run reads, and a probe that cannot be had.

    Args:
        config: The run.
        tasks: Its trained tasks, by label.
    """
    trainer = config.trainer
    own = registry.arguments("loss", trainer.loss_type)
    takes = f"the loss {trainer.loss_type} takes {', '.join(sorted(own)) or 'none'}"
    unread = {f"trainer.{name}": takes for name in ("epsilon", "epsilon_high") if name not in own}
    if not config.lora.enabled:
        unread |= {f"lora.{name}": "lora.enabled is false" for name in LoraConfig.model_fields}
    if not config.curriculum.enabled:
        of_rates = ("ema_alpha", "boundaries", "weights")
        unread |= {f"curriculum.{name}": "curriculum.enabled is false" for name in of_rates}
    if not any(task.task.order == "ladder" for task in tasks.values()):
        of_ladders = (name for name in CurriculumConfig.model_fields if name.startswith("ladder_"))
        unread |= {f"curriculum.{name}": "no task is a ladder" for name in of_ladders}
    values, defaults = flatten(config), flatten(RunConfig())
    choices = [
        ResolvedDefault(key, "without effect", why) for key, why in unread.items() if values[key] != defaults[key]
    ]
    if trainer.gradient_noise_scale and trainer.micro_batch_prompts is None:
        why = "micro-batches hold completions of like length, which are no random sample; set micro_batch_prompts"
        choices.insert(0, ResolvedDefault("trainer.gradient_noise_scale", "unavailable", why))
    return choices
