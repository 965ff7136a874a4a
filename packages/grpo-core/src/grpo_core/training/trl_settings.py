"""A run's settings as arguments of TRL's `GRPOConfig`, and the settings that TRL does not have. No torch here."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from grpo_core.config import RunConfig, TrainerConfig, flatten
from grpo_sdk.display.text import format_value
from grpo_sdk.errors import UserError
from grpo_sdk.plugins import variants as registry
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.game import SELF, GameConfig

NATIVE = "Use trainer.backend=native"

LOSSES = ("bnpo", "cispo", "dapo", "dr_grpo", "grpo", "gspo", "luspo", "sapo", "vespo")
"""Losses that TRL has; gspo is its grpo with the ratios of sequences."""

LOSS_ARGUMENTS: Mapping[str, str] = {
    "delta": "delta",
    **{name: f"sapo_{name}" for name in ("temperature_pos", "temperature_neg")},
    **{name: f"vespo_{name}" for name in ("k_pos", "lambda_pos", "k_neg", "lambda_neg")},
}
"""Argument of a loss -> argument of `GRPOConfig`."""

SAME = (
    "num_generations", "num_iterations", "epsilon", "epsilon_high", "scale_rewards", "beta", "temperature",
    "top_entropy_quantile", "off_policy_mask_threshold", "entropy_coef", "max_grad_norm", "gradient_checkpointing",
)  # fmt: skip
"""Settings of the trainer that `GRPOConfig` has by the same name."""

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
    name: decided
    for decided, names in {
        "engine.name samples": ("use_vllm", "use_transformers_continuous_batching", "generation_kwargs"),
        "the task": ("chat_template_kwargs",),
        "trainer.micro_batch_size": ("per_device_train_batch_size", "gradient_accumulation_steps"),
        "trainer.prompts_per_step": ("generation_batch_size",),
        "the optimizer, AdamW": ("optim",),
        "precision": ("bf16", "fp16"),
        "device": ("use_cpu",),
        "trainer.logging_steps": ("logging_strategy",),
        "tracking.trackers": ("report_to",),
        "tracking.run_name": ("run_name",),
        "trainer.save_every": ("save_strategy", "save_steps"),
        "trainer.keep_last": ("save_total_limit",),
        "eval.interval_steps": ("eval_strategy", "eval_steps"),
        "grpo resume": ("resume_from_checkpoint", "ignore_data_skip"),
        "seed": ("data_seed",),
        "--quiet": ("disable_tqdm",),
    }.items()
    for name in names
}
"""Arguments of `GRPOConfig` that a run decides by another name -> what decides them here."""


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
    for key, is_possible, why, instead in _limits(config, values):
        if not is_possible:
            raise UserError(f"{key}={format_value(values[key])}: TRL cannot do that: {why}. {NATIVE}, or {instead}.")
    for name, value in trainer.loss_args.items():
        if name not in LOSS_ARGUMENTS:
            given = f"trainer.loss_args.{name}={format_value(value)}"
            raise UserError(f"{given}: TRL cannot do that: it has no such argument. {NATIVE}, or leave it out.")
    for name in trainer.backend_args:
        decided = OURS.get(name) or next((key for key in (f"trainer.{name}", name) if key in values), None)
        if decided is not None:
            raise UserError(f"trainer.backend_args.{name}: that is decided here: {decided}. Leave the argument out.")


def _limits(config: RunConfig, values: Mapping[str, Any]) -> Iterator[tuple[str, bool, str, str]]:
    """Yields settings, whether TRL can do the value, what it does, and what to set instead."""
    trainer, one_value = config.trainer, [*ONLY]
    yield "trainer.loss_type", trainer.loss_type in LOSSES, "it has no such loss", ", ".join(LOSSES)
    if trainer.aggregation is not None:
        aggregation = registry.get("loss", trainer.loss_type).aggregation
        one_value.append(("trainer.aggregation", aggregation, f"its {trainer.loss_type} has {aggregation}"))
    if trainer.scale_rewards != "none":
        one_value += [("trainer.std_epsilon", 1e-4, "it has 0.0001"), ("trainer.std_ddof", 1, "it has 1")]
    if trainer.beta:
        one_value.append(("trainer.kl", "k3", "its estimator is k3"))
        yield "trainer.kl_placement", trainer.kl_placement != "reward", "its KL is in the loss", "ratio_loss or loss"
    for key, value, why in one_value:
        yield key, values[key] == value, why, f"{key}={format_value(value)}"
    yield "trainer.num_generations", trainer.num_generations > 1, "it needs a group", "2 or more"
    is_auto = trainer.micro_batch_size == "auto"
    yield "trainer.micro_batch_size", not is_auto, "what fits is tried with our passes", "a number, or null"
    yield "precision", config.precision != "float64", "it has no such precision", "float32, bfloat16 or float16"


def algorithm_arguments(trainer: TrainerConfig) -> dict[str, Any]:
    """The algorithm as arguments of `GRPOConfig`."""
    return {
        **{name: getattr(trainer, name) for name in SAME},
        "loss_type": "grpo" if trainer.loss_type == "gspo" else trainer.loss_type,
        "importance_sampling_level": "sequence" if trainer.loss_type in ("gspo", "luspo") else "token",
        **{LOSS_ARGUMENTS[name]: value for name, value in trainer.loss_args.items()},
        "use_bias_correction_kl": trainer.kl_placement == "ratio_loss",
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


def _instead(task: BoundTask) -> str:
    """What else trains a game with TRL, where anything does."""
    if isinstance(task.config, GameConfig) and task.config.opponent == SELF:
        return ""  # each side has a score of its own, and an environment of TRL has one
    factory = f"grpo_sdk.interop.trl.TrlTask({task.spec!r}).environment_factory"
    return f", or with a model that calls tools TRL itself: {factory}"
