"""Checks between values, with the arithmetic spelt out; all of them run before a model is loaded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from grpo_core import registry
from grpo_core.errors import UserError

if TYPE_CHECKING:
    from grpo_core.config.models import CurriculumConfig, TrainerConfig

EXCLUSIVE = (("trainer.max_steps", "trainer.num_train_epochs"), ("trainer.warmup_steps", "trainer.warmup_ratio"))
"""Pairs of which one is given; the one of higher precedence silences the other."""

_SETTING_OF_ARGUMENT = {"epsilon": "trainer.epsilon", "epsilon_high": "trainer.epsilon_high"}
"""Arguments of losses that have a setting of their own."""


def check_trainer(trainer: TrainerConfig) -> None:
    """Check the trainer's values against one another and its variants' names.

    Raises:
        UserError: values contradict one another.
        UnknownNameError: a variant that is not registered.
    """
    for kind, name in variants(trainer).items():
        registry.check(kind, name)
    for argument in trainer.loss_args:
        if argument in _SETTING_OF_ARGUMENT:
            setting = _SETTING_OF_ARGUMENT[argument]
            raise UserError(f"trainer.loss_args.{argument} is the setting {setting}: write {setting}=… .")
    _check_group(trainer)
    _check_batch(trainer)
    if trainer.epsilon_high is not None and trainer.epsilon_high < trainer.epsilon:
        raise UserError(
            f"trainer.epsilon_high={trainer.epsilon_high:g} is below trainer.epsilon={trainer.epsilon:g}: the ratio's "
            f"upper bound 1 + epsilon_high must leave at least as much room as the lower one. Use {trainer.epsilon:g} "
            "or more, or leave it out."
        )
    if trainer.max_steps is not None and trainer.num_train_epochs is not None:
        raise UserError(
            f"trainer.max_steps={trainer.max_steps} and trainer.num_train_epochs={trainer.num_train_epochs:g} are both "
            "given and both say when to stop. Give one."
        )
    if trainer.warmup_steps and trainer.warmup_ratio is not None:
        raise UserError(
            f"trainer.warmup_steps={trainer.warmup_steps} and trainer.warmup_ratio={trainer.warmup_ratio:g} are both "
            "given. Give one."
        )
    if trainer.soft_overlong_buffer is not None and trainer.soft_overlong_buffer >= trainer.max_completion_length:
        raise UserError(
            f"trainer.soft_overlong_buffer={trainer.soft_overlong_buffer} must be below "
            f"trainer.max_completion_length={trainer.max_completion_length}: the penalty starts at "
            f"{trainer.max_completion_length} - {trainer.soft_overlong_buffer} = "
            f"{trainer.max_completion_length - trainer.soft_overlong_buffer} tokens."
        )


def variants(trainer: TrainerConfig) -> dict[str, str]:
    """The variants that a configuration names: kind -> name."""
    return {
        "loss": trainer.loss_type,
        "advantage": trainer.baseline,
        "kl": trainer.kl,
        "schedule": trainer.lr_scheduler_type,
    }


def check_curriculum(curriculum: CurriculumConfig) -> None:
    """Check the bucket boundaries and weights.

    Raises:
        UserError: boundaries out of order, or weights that sum to nothing.
    """
    low, high = curriculum.boundaries
    if not 0 <= low < high <= 1:
        raise UserError(
            f"curriculum.boundaries=[{low:g}, {high:g}]: they are pass rates with 0 <= first < second <= 1 "
            "(default [0.2, 0.8])."
        )
    if min(curriculum.weights) < 0 or sum(curriculum.weights) <= 0:
        listed = ", ".join(f"{weight:g}" for weight in curriculum.weights)
        raise UserError(
            f"curriculum.weights=[{listed}]: shares of hard, normal and easy prompts, none below 0 and at least one "
            "above it (default [1, 1, 1])."
        )


def _check_group(trainer: TrainerConfig) -> None:
    if trainer.num_generations > 1:
        return
    if registry.needs_group(trainer.baseline):
        free = ", ".join(registry.group_free_baselines())
        raise UserError(
            f"trainer.num_generations=1: the baseline {trainer.baseline} needs a group; alone, every advantage is 0. "
            f"Use 2 or more (default 8), or a baseline that needs none: {free}."
        )
    if trainer.scale_rewards == "group":
        raise UserError(
            "trainer.num_generations=1: trainer.scale_rewards=group divides by the standard deviation of one reward, "
            "which is 0. Use 2 or more, or scale_rewards=none or batch."
        )


def _check_batch(trainer: TrainerConfig) -> None:
    prompts, steps = trainer.prompts_per_step, trainer.steps_per_generation
    if prompts % steps:
        raise UserError(
            f"trainer.prompts_per_step={prompts} cannot be split into trainer.steps_per_generation={steps} equal "
            f"optimizer steps: {prompts} / {steps} = {prompts / steps:.4g}. steps_per_generation may be "
            f"{_listed(divisors(prompts))}."
        )
    size, rows = trainer.micro_batch_size, trainer.rows_per_step
    if size is not None and rows % size:
        share = f" / {steps} steps" if steps > 1 else ""
        raise UserError(
            f"trainer.micro_batch_size={size} does not divide the batch: {prompts} prompts x "
            f"{trainer.num_generations} generations{share} = {rows} completions, {rows} / {size} = {rows / size:.4g}. "
            f"Use {_listed(divisors(rows))}, or leave it out to pack by micro_batch_tokens."
        )


def divisors(number: int) -> list[int]:
    """Divisors of `number`, ascending."""
    small = [candidate for candidate in range(1, int(number**0.5) + 1) if number % candidate == 0]
    return sorted({*small, *(number // candidate for candidate in small)})


def _listed(numbers: Iterable[int]) -> str:
    shown = [str(number) for number in numbers]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"
