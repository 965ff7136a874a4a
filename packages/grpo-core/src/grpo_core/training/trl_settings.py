"""A run's settings as arguments of TRL's `GRPOConfig`, and the settings that TRL does not have. No torch here."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

from grpo_core.config import RunConfig, TrainerConfig, flatten
from grpo_core.config.layers import format_value
from grpo_core.errors import UnknownNameError, UserError, near_match
from grpo_core.plugins import variants as registry
from grpo_core.task.bound import BoundTask
from grpo_core.task.game import SELF, GameConfig

NATIVE = "Use trainer.backend=native"

LOSSES: Mapping[str, tuple[str, str]] = {
    "bnpo": ("bnpo", "token"),
    "cispo": ("cispo", "token"),
    "dapo": ("dapo", "token"),
    "dr_grpo": ("dr_grpo", "token"),
    "grpo": ("grpo", "token"),
    "gspo": ("grpo", "sequence"),
    "luspo": ("luspo", "sequence"),
    "sapo": ("sapo", "token"),
    "vespo": ("vespo", "token"),
}
"""Loss -> TRL's `loss_type` and `importance_sampling_level`."""

LOSS_ARGUMENTS: Mapping[str, str] = {
    "delta": "delta",
    "temperature_pos": "sapo_temperature_pos",
    "temperature_neg": "sapo_temperature_neg",
    "k_pos": "vespo_k_pos",
    "lambda_pos": "vespo_lambda_pos",
    "k_neg": "vespo_k_neg",
    "lambda_neg": "vespo_lambda_neg",
}
"""Argument of a loss -> argument of `GRPOConfig`."""

ONLY: Sequence[tuple[str, object, str]] = (
    ("trainer.baseline", "group_mean", "it compares a reward with the mean of its group"),
    ("trainer.value_head", False, "it has no value head"),
    ("trainer.count_empty_rows", True, "it counts every completion"),
    ("trainer.turn_gamma", 1.0, "all tokens of a completion have one advantage"),
    ("trainer.rollout_correction", "none", "it corrects the completions of vLLM only"),
    ("trainer.off_policy_steps", 0, "it samples and trains in turn"),
    ("trainer.kl_metric", False, "it measures the KL where trainer.beta is above 0"),
    ("trainer.kl_controller", "constant", "its beta is constant"),
    ("trainer.ref_model_sync_steps", None, "its own is trainer.backend_args.sync_ref_model"),
    ("trainer.kl_warmup_steps", 0, "its beta is constant"),
    ("trainer.entropy_controller", "constant", "its adaptive entropy has other bounds: see use_adaptive_entropy"),
    ("trainer.sharding", "none", "it shards by DeepSpeed or FSDP: trainer.backend_args.deepspeed=FILE"),
    ("trainer.gradient_noise_scale", False, "it does not measure that"),
    ("trainer.gns_probe_steps", None, "it does not measure that"),
    ("trainer.entropy_probe_steps", None, "it does not measure that"),
    ("scoring.executor", "local", "its rewards are scored on this machine"),
)
"""Settings with the one value that TRL has, and what TRL does."""

OURS: Mapping[str, str] = {
    "use_vllm": "completions are sampled by engine.name; engine.name=vllm is vLLM",
    "use_transformers_continuous_batching": "completions are sampled by engine.name",
    "generation_kwargs": "completions are sampled by engine.name",
    "chat_template_kwargs": "prompts are made by the task",
    "max_steps": "trainer.max_steps",
    "num_train_epochs": "trainer.num_train_epochs",
    "per_device_train_batch_size": "trainer.micro_batch_size",
    "gradient_accumulation_steps": "trainer.micro_batch_size",
    "generation_batch_size": "trainer.prompts_per_step",
    "learning_rate": "trainer.learning_rate",
    "lr_scheduler_type": "trainer.lr_scheduler_type",
    "warmup_steps": "trainer.warmup_steps",
    "optim": "the optimizer is AdamW",
    "weight_decay": "trainer.weight_decay",
    "adam_beta1": "trainer.adam_beta1",
    "adam_beta2": "trainer.adam_beta2",
    "adam_epsilon": "trainer.adam_epsilon",
    "top_p": "trainer.top_p",
    "top_k": "trainer.top_k",
    "min_p": "trainer.min_p",
    "mask_truncated_completions": "trainer.mask_truncated_completions",
    "bf16": "precision",
    "fp16": "precision",
    "use_cpu": "device",
    "output_dir": "output_dir",
    "logging_steps": "trainer.logging_steps",
    "logging_strategy": "trainer.logging_steps",
    "report_to": "tracking.trackers",
    "run_name": "tracking.run_name",
    "save_strategy": "trainer.save_every",
    "save_steps": "trainer.save_every",
    "save_total_limit": "trainer.keep_last",
    "eval_strategy": "eval.interval_steps",
    "eval_steps": "eval.interval_steps",
    "resume_from_checkpoint": "grpo resume",
    "ignore_data_skip": "grpo resume",
    "data_seed": "seed",
    "disable_tqdm": "--quiet",
}
"""Arguments of `GRPOConfig` that `algorithm_arguments` does not make and a run decides -> what decides it here."""


def check_trl(config: RunConfig, tasks: Sequence[BoundTask]) -> None:
    """Check that TRL can train a configuration, where it is to.

    Raises:
        UserError: a setting or a task that it cannot; names it, and what to do.
    """
    trainer = config.trainer
    if trainer.backend != "trl":
        return
    if importlib.util.find_spec("trl") is None:
        raise UserError("trainer.backend=trl needs TRL: pip install 'grpo-core[trl]'.")
    for task in tasks:
        if task.task.game is not None:
            raise UserError(
                f"task {task.name!r} is a game, in which each move answers a prompt of its own; a step of TRL has one "
                f"sequence for each completion, and a number of them that is fixed. {NATIVE}{_instead(task)}."
            )
    values = flatten(config)
    for key, value, why in ONLY:
        if values[key] != value:
            _refuse(key, values[key], why, f"{key}={format_value(value)}")
    _check_loss(trainer)
    _check_deviation(trainer)
    if trainer.num_generations < 2:
        _refuse("trainer.num_generations", trainer.num_generations, "it needs a group", "2 or more")
    if trainer.beta and trainer.kl != "k3":
        _refuse("trainer.kl", trainer.kl, "its estimator is k3", "trainer.kl=k3")
    if trainer.beta and trainer.kl_placement == "reward":
        _refuse("trainer.kl_placement", "reward", "its KL is in the loss", "ratio_loss or loss")
    if trainer.micro_batch_size == "auto":
        _refuse("trainer.micro_batch_size", "auto", "what fits is tried with our passes", "a number, or null")
    if config.precision == "float64":
        _refuse("precision", "float64", "it trains in float32, bfloat16 or float16", "one of these")
    for name in trainer.backend_args:
        decided = OURS.get(name) or next((key for key in _made_of(name) if key in values), None)
        if decided is not None:
            raise UserError(f"trainer.backend_args.{name}: that is decided here: {decided}. Leave the argument out.")


def check_backend_args(trainer: TrainerConfig, known: Sequence[str]) -> None:
    """Check the names of `trainer.backend_args`.

    Args:
        trainer: The section.
        known: Arguments of `GRPOConfig`, which is not imported before.

    Raises:
        UnknownNameError: TRL has no such argument; names the closest one.
    """
    for name in trainer.backend_args:
        if name not in known:
            hint = near_match(name, known)
            raise UnknownNameError(f"trainer.backend_args.{name}: TRL's GRPOConfig has no such argument.{hint}")


def algorithm_arguments(trainer: TrainerConfig) -> dict[str, Any]:
    """The algorithm as arguments of `GRPOConfig`."""
    loss_type, level = LOSSES[trainer.loss_type]
    return {
        "loss_type": loss_type,
        "importance_sampling_level": level,
        **{LOSS_ARGUMENTS[name]: value for name, value in trainer.loss_args.items()},
        "num_generations": trainer.num_generations,
        "num_iterations": trainer.num_iterations,
        "epsilon": trainer.epsilon,
        "epsilon_high": trainer.epsilon_high,
        "scale_rewards": trainer.scale_rewards,
        "beta": trainer.beta,
        "use_bias_correction_kl": trainer.kl_placement == "ratio_loss",
        "temperature": trainer.temperature,
        "top_entropy_quantile": trainer.top_entropy_quantile,
        "off_policy_mask_threshold": trainer.off_policy_mask_threshold,
        "entropy_coef": trainer.entropy_coef,
        "max_grad_norm": trainer.max_grad_norm,
        "gradient_checkpointing": trainer.gradient_checkpointing,
    }


def rows_per_pass(trainer: TrainerConfig, rows: int, longest: int) -> tuple[int, str]:
    """TRL's `per_device_train_batch_size`, with the reason: it has one number for all passes.

    Args:
        trainer: The section.
        rows: Completions of an optimizer step in this process.
        longest: Tokens that a prompt with its completion may have.
    """
    if isinstance(trainer.micro_batch_size, int):
        return trainer.micro_batch_size, "trainer.micro_batch_size"
    if trainer.micro_batch_prompts is not None:
        return trainer.micro_batch_prompts * trainer.num_generations, "trainer.micro_batch_prompts, with completions"
    fitting = [size for size in range(1, rows + 1) if rows % size == 0 and size * longest <= trainer.micro_batch_tokens]
    why = f"a divisor of {rows} completions, {longest} tokens each, within micro_batch_tokens"
    return max(fitting, default=1), why


def _check_loss(trainer: TrainerConfig) -> None:
    name = trainer.loss_type
    if name not in LOSSES:
        _refuse("trainer.loss_type", name, "it has no such loss", ", ".join(LOSSES))
    aggregation = registry.get("loss", name).aggregation
    if trainer.aggregation not in (None, aggregation):
        why = f"its {LOSSES[name][0]} has {aggregation}"
        _refuse("trainer.aggregation", trainer.aggregation, why, f"trainer.aggregation={aggregation}")
    for argument in trainer.loss_args:
        if argument not in LOSS_ARGUMENTS:
            _refuse(
                f"trainer.loss_args.{argument}", trainer.loss_args[argument], "it has no such argument", "leave it out"
            )


def _check_deviation(trainer: TrainerConfig) -> None:
    if trainer.scale_rewards == "none":
        return
    for key, value in (("std_epsilon", 1e-4), ("std_ddof", 1)):
        if getattr(trainer, key) != value:
            _refuse(f"trainer.{key}", getattr(trainer, key), f"it has {value:g}", f"{value:g}")


def _instead(task: BoundTask) -> str:
    """What else trains a game with TRL, where anything does."""
    if isinstance(task.config, GameConfig) and task.config.opponent == SELF:
        return ""  # each side has a score of its own, and an environment of TRL has one
    factory = f"grpo_core.interop.trl.TrlTask({task.spec!r}).environment_factory"
    return f", or with a model that calls tools TRL itself: {factory}"


def _made_of(name: str) -> Sequence[str]:
    """Settings that an argument of `GRPOConfig` may be called like."""
    return (f"trainer.{name}", name)


def _refuse(key: str, value: object, why: str, instead: str) -> None:
    raise UserError(f"{key}={format_value(value)}: TRL cannot do that: {why}. {NATIVE}, or {instead}.")
