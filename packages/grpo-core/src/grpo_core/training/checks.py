"""Checks of a run's names, options and rows that need no torch, whose import takes seconds."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from grpo_core.config import RunConfig, TrainerConfig
from grpo_core.engines.servers.products import VLLM, check_installed
from grpo_core.evaluation.checks import check_evaluation
from grpo_core.evaluation.plan import matchups, plan_of
from grpo_core.evaluation.rows import trained_tasks
from grpo_core.evaluation.settings import EvaluationSettings
from grpo_core.policy.fresh import PRESETS, check_vocab_size, tokenizer_location
from grpo_core.profiles.accelerator import check_device
from grpo_core.tracking.observe import check_trackers
from grpo_core.training.trl_settings import check_trl
from grpo_sdk.episodes.episode import learning_roles
from grpo_sdk.episodes.opponents import check_opponent, plays_base
from grpo_sdk.errors import ExhaustedError, UserError, unknown_name
from grpo_sdk.paths import check_makeable, kind_of
from grpo_sdk.plugins import variants as registry
from grpo_sdk.plugins.models import check_model, model_source
from grpo_sdk.plugins.tasks import bind
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.mixture import task_labels
from grpo_sdk.task.spec import parse_task_specs

CHECKED_ROWS = 100
"""Rows in which a gold is looked for before a warm start: all of them can take minutes to generate."""


def check_training(config: RunConfig) -> None:
    """Check the models, tasks and rows of a resolved configuration.

    Raises:
        UserError: the first thing that is wrong.
    """
    assert config.model is not None, "the configuration is resolved"
    check_model(config.model, config.adapter)
    check_device(config.device)
    tasks = trained_tasks(config)
    engine = config.engine
    if engine.name == VLLM.engine and engine.url is None and engine.fallback is None:
        check_installed(VLLM)
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
    for task in matchups(dict(zip(task_labels(held_out), held_out, strict=True))).values():
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
    _check_group_rewards(config.trainer, tasks)
    _check_overlap(config.trainer, tasks)
    _check_reference(config, tasks)
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


def _check_reference(config: RunConfig, tasks: Sequence[BoundTask]) -> None:
    """Check that a reference that moves is a copy of its own, and nobody's opponent."""
    steps = config.trainer.ref_model_sync_steps
    if steps is None:
        return
    assert config.model is not None, "the configuration is resolved"
    if config.lora.enabled or config.adapter is not None or model_source(config.model).kind == "adapter":
        raise UserError(
            f"trainer.ref_model_sync_steps={steps}: an adapter's reference is the model that it was put on, which "
            "does not move. Train the whole model, or leave it out."
        )
    for task in tasks:
        if plays_base(task):
            raise UserError(
                f"trainer.ref_model_sync_steps={steps}: {task.name} is played against the policy at its start, which "
                "is the reference. Take another opponent, or leave it out."
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


def _check_overlap(trainer: TrainerConfig, tasks: Sequence[BoundTask]) -> None:
    """Check that nobody samples from the model that is trained meanwhile."""
    for task in tasks:
        if trainer.off_policy_steps and plays_base(task):
            raise UserError(
                f"{task.name}: its opponent plays with the weights that the policy began with, inside the model that "
                "trainer.off_policy_steps=1 trains meanwhile. Leave that out, or name another opponent."
            )


def _check_group_rewards(trainer: TrainerConfig, tasks: Sequence[BoundTask]) -> None:
    """Check that group rewards have several completions to compare."""
    for task in tasks:
        if task.task.group_specs() and trainer.num_generations == 1:
            raise UserError(
                f"{task.name}: the group reward {task.task.group_specs()[0].name}() compares the completions of a "
                "prompt, and trainer.num_generations=1 samples one. Use 2 or more."
            )


def check_warm_start(
    task: str,
    out: str | Path,
    *,
    model: str | None,
    add_layers: int = 0,
    preset: str | None,
    vocab_size: int | None,
    tokenizer: str | None,
    eval_size: int = 512,
) -> None:
    """Check the start, the folder and the tasks of a warm start.

    Args:
        task: A task spec.
        out: Folder that receives the model.
        model: Model to start from.
        add_layers: Layers that it gets first.
        preset: Shape of a new model.
        vocab_size: Tokens of a new model's tokenizer.
        tokenizer: Model whose tokenizer a new model gets.
        eval_size: Held-out rows per task.

    Raises:
        UserError: no start or two, no such model, preset, tokenizer or task, a folder that is taken or cannot be
            made, rows without gold, or TRL is missing.
    """
    if (model is None) == (preset is None):
        raise UserError("give what to start from: --model NAME, or --preset tiny for a new model; not both.")
    if add_layers and model is None:
        raise UserError(f"--add-layers {add_layers} is for a --model; a --preset has its depth.")
    if model is not None and (vocab_size, tokenizer) != (None, None):
        raise UserError(f"--model {model} has its tokenizer: --vocab-size and --tokenizer are for a --preset.")
    if vocab_size is not None and tokenizer is not None:
        raise UserError("give --vocab-size, to learn a tokenizer, or --tokenizer, to take one; not both.")
    if preset is not None and preset not in PRESETS:
        raise unknown_name("preset", preset, PRESETS)
    if vocab_size is not None:
        check_vocab_size(vocab_size)
    if importlib.util.find_spec("trl") is None:
        raise UserError("grpo warm-start needs TRL: pip install 'grpo-core[trl]'.")
    folder = Path(out)
    if (kind := kind_of(folder)) not in ("", "a folder"):
        raise UserError(f"--out {out}: it is {kind}; choose another name.")
    if kind and any(folder.iterdir()):
        raise UserError(f"--out {out}: the folder is not empty; choose another.")
    check_makeable(folder, f"--out {out}")
    if model is not None:
        check_model(model)
    if tokenizer is not None:
        tokenizer_location(tokenizer)
    check_evaluation(task, {}, EvaluationSettings(size=eval_size))
    _check_demos(task)


def _check_demos(task: str) -> None:
    """Check that TRL trains what GRPO samples: prompts of one kind, none of which goes on within a message."""
    kinds: dict[str, str] = {}
    for spec in parse_task_specs(task):
        bound = bind(spec)
        demos = bound.with_options(size=min(bound.config.size or CHECKED_ROWS, CHECKED_ROWS)).demos()
        prompt, _ = next(demos, ("", ""))
        kinds["text" if isinstance(prompt, str) else "messages"] = bound.name
        if not isinstance(prompt, str) and prompt[-1]["role"] == "assistant":
            raise UserError(
                f"task {bound.name!r}: its prompts end in a prefilled message by the assistant, which TRL would close "
                "and not continue. Use a template without a prefill."
            )
    if len(kinds) > 1:
        raise UserError(
            f"prompts of {kinds['text']} are text and those of {kinds['messages']} are messages; fine-tune on one kind "
            "at a time."
        )
