"""The section `trainer`: the algorithm and its optimizer, with checks of its settings against one another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import ValidationInfo, model_validator

from grpo_core.config.section import VariantArguments, either
from grpo_core.config.trainer_settings import (
    AdvantageSettings,
    BackendSettings,
    CheckpointSettings,
    LossSettings,
    OptimizerSettings,
    PenaltySettings,
    ProbeSettings,
    RolloutSettings,
)
from grpo_sdk.errors import UserError
from grpo_sdk.plugins import variants as registry

EXCLUSIVE = (
    ("max_steps", "num_train_epochs", "when to stop"),
    ("warmup_steps", "warmup_ratio", "how long the warm-up is"),
    ("micro_batch_size", "micro_batch_prompts", "how large a forward pass is"),
)
"""Pairs of mutually exclusive keys, and what both determine; the source of higher precedence decides between them."""

LIMITS = ("trainer.max_steps", "trainer.num_train_epochs", "trainer.max_minutes")
"""Settings that end a run; a recommended one is dropped if the user sets another."""

LATER = "check_later"
"""Key of pydantic's context: whether more values are to come, so that `TrainerConfig.check` is called later."""

PASS_AT_K = 4
"""Default of the argument k of the baseline pass_at_k."""

_SETTING_OF_ARGUMENT = {
    ("loss", "epsilon"): "trainer.epsilon",
    ("loss", "epsilon_high"): "trainer.epsilon_high",
    ("value", "gamma"): "trainer.gae_gamma",
    ("value", "lam"): "trainer.gae_lambda",
}
"""Arguments with a setting of their own: (kind or name of the variant, argument) -> setting."""


def needless(value_of: Callable[[str], object]) -> dict[str, str]:
    """Return the settings whose recommended values other settings make needless: dotted key -> why.

    Args:
        value_of: Value of a dotted key; None if it is not set.
    """
    reasons: dict[str, str] = {}
    if (limit := next((name for name in LIMITS if value_of(name) is not None), None)) is not None:
        reasons |= dict.fromkeys(LIMITS, f"{limit}={value_of(limit)} says when to stop")
    if value_of("trainer.beta") == 0:
        reasons["trainer.ref_model_sync_steps"] = "trainer.beta=0 has no reference to move"
    elif value_of("lora.enabled") or value_of("adapter") is not None:
        reasons["trainer.ref_model_sync_steps"] = "an adapter's reference is the model that it was put on"
    if value_of("trainer.entropy_coef") == 0:
        controller = ("trainer.entropy_controller", "trainer.entropy_controller_args")
        reasons |= dict.fromkeys(controller, "trainer.entropy_coef=0 has nothing to control")
    return reasons


@dataclass(frozen=True, slots=True)
class ChosenVariant:
    """A variant that a configuration names.

    Attributes:
        kind: Kind in the registry.
        name: Name in the registry.
        arguments: Arguments that are set; others have their defaults.
        section: Dotted key of the arguments, for messages.
    """

    kind: str
    name: str
    arguments: VariantArguments
    section: str


class TrainerConfig(
    BackendSettings,
    ProbeSettings,
    CheckpointSettings,
    OptimizerSettings,
    PenaltySettings,
    AdvantageSettings,
    LossSettings,
    RolloutSettings,
):
    """The algorithm and its optimizer."""

    @property
    def rows_per_step(self) -> int:
        """Completions in one optimizer step, over all ranks."""
        return self.prompts_per_optimizer_step * self.num_generations

    @property
    def rows_per_pass(self) -> int | None:
        """Completions per forward pass, where their number is known."""
        return None if self.micro_batch_size == "auto" else self.micro_batch_size

    @property
    def prompts_per_optimizer_step(self) -> int:
        """Prompts in one optimizer step, over all ranks."""
        return self.prompts_per_step // self.steps_per_generation

    @property
    def is_sharded(self) -> bool:
        """Whether processes share the weights."""
        return self.sharding != "none"

    @property
    def variants(self) -> tuple[ChosenVariant, ...]:
        """The chosen variant of every kind, with its arguments."""
        return (
            ChosenVariant("loss", self.loss_type, self.loss_args, "trainer.loss_args"),
            ChosenVariant("advantage", self.baseline, self.advantage_args, "trainer.advantage_args"),
            ChosenVariant("kl", self.kl, self.kl_args, "trainer.kl_args"),
            ChosenVariant("kl_controller", self.kl_controller, self.kl_controller_args, "trainer.kl_controller_args"),
            ChosenVariant(
                "entropy_controller",
                self.entropy_controller,
                self.entropy_controller_args,
                "trainer.entropy_controller_args",
            ),
            ChosenVariant("schedule", self.lr_scheduler_type, {}, "trainer.lr_scheduler_type"),
        )

    @model_validator(mode="after")
    def _consistent(self, info: ValidationInfo) -> TrainerConfig:
        _check_names(self)
        if not (info.context or {}).get(LATER):
            self.check()
        return self

    def check(self) -> None:
        """Compare the values with one another.

        Raises:
            UserError: they contradict one another.
        """
        _check_choices(self)
        _check_group(self)
        _check_penalties(self)
        _check_batch(self)
        _check_value_head(self)
        _check_kl(self)
        _check_controllers(self)
        _check_correction(self)
        _check_sharding(self)
        _check_bounds(self)


def _check_choices(trainer: TrainerConfig) -> None:
    for first, second, what in EXCLUSIVE:
        if getattr(trainer, first) and getattr(trainer, second) is not None:
            raise UserError(
                f"trainer.{first}={getattr(trainer, first)} and trainer.{second}={getattr(trainer, second):g} are both "
                f"given and both say {what}. Give one."
            )
    if trainer.scale_rewards in ("group", "batch") and registry.get("advantage", trainer.baseline).scales_itself:
        raise UserError(
            f"trainer.scale_rewards={trainer.scale_rewards}: the baseline {trainer.baseline} has a normalisation of "
            "its own, and would be divided twice. Use scale_rewards=none."
        )
    if trainer.backend_args and trainer.backend == "native":
        raise UserError(
            f"trainer.backend_args={dict(trainer.backend_args)} are arguments of TRL, and trainer.backend=native "
            "trains without it. Set trainer.backend=trl, or leave them out."
        )


def _check_bounds(trainer: TrainerConfig) -> None:
    if trainer.epsilon_high is not None and trainer.epsilon_high < trainer.epsilon:
        raise UserError(
            f"trainer.epsilon_high={trainer.epsilon_high:g} is below trainer.epsilon={trainer.epsilon:g}: the ratio's "
            f"upper bound 1 + epsilon_high must leave at least as much room as the lower one. Use {trainer.epsilon:g} "
            "or more, or leave it out."
        )
    buffer, longest = trainer.soft_overlong_buffer, trainer.max_completion_length
    if buffer is not None and buffer >= longest:
        raise UserError(
            f"trainer.soft_overlong_buffer={buffer} must be below trainer.max_completion_length={longest}: the penalty "
            f"starts at {longest} - {buffer} = {longest - buffer} tokens."
        )


def _check_sharding(trainer: TrainerConfig) -> None:
    if trainer.shard_size is not None and trainer.sharding != "hybrid":
        raise UserError(
            f"trainer.shard_size={trainer.shard_size} has no effect: trainer.sharding={trainer.sharding} does not "
            "share weights in groups. Set trainer.sharding=hybrid, or leave it out."
        )
    if trainer.cpu_offload and not trainer.is_sharded:
        raise UserError(
            "trainer.cpu_offload=true needs trainer.sharding=full or hybrid: the shards are what waits in host memory. "
            "Set one of them, with several processes, or leave it out."
        )
    if trainer.is_sharded and trainer.gradient_noise_scale:
        raise UserError(
            f"trainer.gradient_noise_scale=true with trainer.sharding={trainer.sharding}: it compares the gradients of "
            "micro-batches, and sharded ranks sum theirs before any of them is whole. Use trainer.gns_probe_steps, "
            "which measures it from two batches, or sharding=none."
        )


def _check_names(trainer: TrainerConfig) -> None:
    for chosen in trainer.variants:
        registry.check(chosen.kind, chosen.name)
        for argument in chosen.arguments:
            owners = ((chosen.kind, argument), (chosen.name, argument))
            if setting := next((_SETTING_OF_ARGUMENT[owner] for owner in owners if owner in _SETTING_OF_ARGUMENT), ""):
                raise UserError(f"{chosen.section}.{argument} is the setting {setting}: write {setting}=… .")


def _check_group(trainer: TrainerConfig) -> None:
    if trainer.dynamic_sampling_min_std and not trainer.dynamic_sampling:
        raise UserError(
            f"trainer.dynamic_sampling_min_std={trainer.dynamic_sampling_min_std:g} has no effect: "
            "trainer.dynamic_sampling=false keeps every group. Set trainer.dynamic_sampling=true, or leave it out."
        )
    k = trainer.advantage_args.get("k", PASS_AT_K)
    if trainer.baseline == "pass_at_k" and isinstance(k, int) and k >= trainer.num_generations > 1:
        raise UserError(
            f"trainer.baseline=pass_at_k compares sets of k={k} of the trainer.num_generations="
            f"{trainer.num_generations} completions of a prompt: there must be several, or every advantage is 0. Set "
            f"trainer.num_generations={k + 1} or more, or trainer.advantage_args.k to a smaller number."
        )
    if trainer.num_generations > 1:
        return
    if registry.get("advantage", trainer.baseline).needs_group:
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
    if trainer.dynamic_sampling:
        raise UserError(
            "trainer.num_generations=1: trainer.dynamic_sampling=true keeps the groups whose rewards differ, and one "
            "reward never does. Use 2 or more, or dynamic_sampling=false."
        )


def _check_penalties(trainer: TrainerConfig) -> None:
    """Refuse what would be taken off a reward where the baseline cannot use the difference."""
    facts = registry.get("advantage", trainer.baseline)
    if facts.takes_penalties:
        return
    baseline = f"the baseline {trainer.baseline} {facts.penalties_why}"
    if trainer.beta and trainer.kl_placement == "reward":
        raise UserError(
            f"trainer.kl_placement=reward takes the KL off the reward, and {baseline}. Use kl_placement=ratio_loss or "
            "loss, or another baseline, as group_mean."
        )
    if trainer.soft_overlong_buffer is not None:
        raise UserError(
            f"trainer.soft_overlong_buffer={trainer.soft_overlong_buffer} takes a penalty off the reward, and "
            f"{baseline}. Leave it out (null), or use another baseline, as group_mean."
        )


def _check_value_head(trainer: TrainerConfig) -> None:
    if trainer.gae_bootstrap and not trainer.use_gae:
        raise UserError(
            "trainer.gae_bootstrap=true is part of GAE: set use_gae=true with value_head=true and baseline=value, or "
            "gae_bootstrap=false."
        )
    # Taken off the value it would count twice, and each cut would lower the values further: they expect it already.
    if trainer.gae_bootstrap and trainer.soft_overlong_buffer is not None:
        raise UserError(
            "trainer.gae_bootstrap=true takes the value of the last state in place of the reward of a rollout that the "
            f"length limit ended, and trainer.soft_overlong_buffer={trainer.soft_overlong_buffer} takes the largest "
            "penalty off that reward: reaching the limit would pay more than stopping before it. Use "
            "gae_bootstrap=false, or leave out soft_overlong_buffer."
        )
    if not trainer.value_head:
        if trainer.value_learning_rate is not None:
            raise UserError(
                f"trainer.value_learning_rate={trainer.value_learning_rate:g} has no effect: there is no value head. "
                "Set trainer.value_head=true, or leave it out."
            )
        if trainer.use_gae:
            raise UserError(
                "trainer.use_gae=true needs trainer.value_head=true: GAE is made of the values that a trained head "
                "gives each token of a completion; rewards of other completions are no values. Set value_head=true and "
                "baseline=value, or use_gae=false."
            )
        if trainer.baseline == "value":
            raise UserError(
                "trainer.baseline=value needs trainer.value_head=true: the values are those of a trained head. Set it, "
                "or take another baseline, as group_mean."
            )
        return
    if trainer.use_gae and trainer.baseline != "value":
        raise UserError(
            f"trainer.use_gae=true makes advantages of the value head's values, trainer.baseline={trainer.baseline} of "
            "other completions' rewards; only one of them can be. Set baseline=value, or use_gae=false."
        )
    if trainer.baseline == "value" and not trainer.value_loss_coef:
        raise UserError(
            "trainer.value_loss_coef=0: the value head would never learn, and trainer.baseline=value would compare "
            "rewards with noise. Use a weight above 0 (default 0.1)."
        )


def _check_kl(trainer: TrainerConfig) -> None:
    if trainer.ref_model_sync_steps is not None and not (trainer.beta or trainer.kl_metric):
        raise UserError(
            f"trainer.ref_model_sync_steps={trainer.ref_model_sync_steps} has no reference to move at trainer.beta=0. "
            "Set beta, as 0.1, or leave it out."
        )
    if not trainer.beta:
        if trainer.kl_controller != "constant":
            raise UserError(
                f"trainer.kl_controller={trainer.kl_controller} has nothing to steer at trainer.beta=0: no reference "
                "is loaded, so no KL is measured. Set beta to where it starts, as 0.02, or kl_controller=constant."
            )
        if trainer.kl_warmup_steps:
            raise UserError(
                f"trainer.kl_warmup_steps={trainer.kl_warmup_steps} leads up to trainer.beta=0. Set beta to what the "
                "warm-up ends at, or leave it out."
            )
        return
    if trainer.kl_args.get("straight_through"):
        if trainer.kl_placement == "reward":
            raise UserError(
                "trainer.kl_args.straight_through=true has no effect: with trainer.kl_placement=reward the KL is taken "
                "off the reward as a number, without a gradient. Use kl_placement=ratio_loss or loss, or leave it out."
            )
    elif trainer.kl == "k1" and trainer.kl_placement == "loss":
        raise UserError(
            "trainer.kl=k1 with trainer.kl_placement=loss: the expected gradient of log pi - log pi_ref is 0 for every "
            "policy, so it would only add noise. Use kl_placement=ratio_loss or reward, kl=k2, k3 or full, or "
            "kl_args.straight_through=true."
        )


def _check_controllers(trainer: TrainerConfig) -> None:
    """Check the arguments of built-in controllers, which are free of torch; other variants are checked when bound."""
    if trainer.entropy_controller == "decay" and not trainer.entropy_coef:
        raise UserError(
            "trainer.entropy_controller=decay has nothing to halve at trainer.entropy_coef=0. Set entropy_coef to "
            "where it starts, as 0.01, or entropy_controller=constant."
        )
    for chosen in trainer.variants:
        is_controller = chosen.kind in ("kl_controller", "entropy_controller")
        if not is_controller or chosen.name not in registry.BUILT_IN[chosen.kind]:
            continue
        # Unknown arguments are refused later, where the word that the user gave is known.
        if chosen.arguments and chosen.arguments.keys() <= registry.arguments(chosen.kind, chosen.name).keys():
            registry.bind(chosen.kind, chosen.name, chosen.arguments, chosen.section)


def _check_correction(trainer: TrainerConfig) -> None:
    mode, low, high = trainer.rollout_correction, trainer.rollout_correction_min, trainer.rollout_correction_max
    if mode == "none":
        if low is not None:
            raise UserError(
                f"trainer.rollout_correction_min={low:g} has no effect: trainer.rollout_correction=none weighs "
                "nothing. Set a correction, as token_mask, or leave it out."
            )
        return
    if low is None and high is None:
        raise UserError(
            f"trainer.rollout_correction={mode} has no bound: trainer.rollout_correction_max and "
            "trainer.rollout_correction_min are both null. Give one (default max 2)."
        )
    if low is not None and high is not None and low >= high:
        raise UserError(
            f"trainer.rollout_correction_min={low:g} must be below trainer.rollout_correction_max={high:g}: they are "
            "the bounds of one weight."
        )


def _check_batch(trainer: TrainerConfig) -> None:
    prompts, steps = trainer.prompts_per_step, trainer.steps_per_generation
    if prompts % steps:
        raise UserError(
            f"trainer.prompts_per_step={prompts} cannot be split into trainer.steps_per_generation={steps} equal "
            f"optimizer steps: {prompts} / {steps} = {prompts / steps:.4g}. steps_per_generation may be "
            f"{either(divisors(prompts))}."
        )
    size, rows = trainer.rows_per_pass, trainer.rows_per_step
    share = f" / {steps} steps" if steps > 1 else ""
    if size is not None and rows % size:
        raise UserError(
            f"trainer.micro_batch_size={size} does not divide the batch: {prompts} prompts x "
            f"{trainer.num_generations} generations{share} = {rows} completions, {rows} / {size} = {rows / size:.4g}. "
            f"Use {either(divisors(rows))}, or leave it out to pack by micro_batch_tokens."
        )
    size, prompts = trainer.micro_batch_prompts, trainer.prompts_per_optimizer_step
    if size is not None and prompts % size:
        taken = f"{trainer.prompts_per_step} prompts{share} = {prompts}, " if steps > 1 else ""
        raise UserError(
            f"trainer.micro_batch_prompts={size} does not divide the prompts of an optimizer step: {taken}{prompts} / "
            f"{size} = {prompts / size:.4g}. Use {either(divisors(prompts))}, or leave it out to pack by "
            "micro_batch_tokens."
        )
    probed = trainer.gns_probe_prompts
    if trainer.gns_probe_steps is not None and probed >= prompts:
        raise UserError(
            f"trainer.gns_probe_prompts={probed} must be below the prompts of an optimizer step, {prompts}: the noise "
            "scale comes from two batches of different size."
        )


def divisors(number: int) -> list[int]:
    """Return the divisors of a number in ascending order."""
    small = [candidate for candidate in range(1, int(number**0.5) + 1) if number % candidate == 0]
    return sorted({*small, *(number // candidate for candidate in small)})
