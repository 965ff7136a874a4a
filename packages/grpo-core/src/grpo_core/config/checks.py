"""Checks between values, with the arithmetic spelt out; all of them run before a model is loaded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from grpo_core.errors import UserError
from grpo_core.plugins import variants as registry

if TYPE_CHECKING:
    from grpo_core.config.models import CurriculumConfig, RunConfig, TrackingConfig
    from grpo_core.config.trainer import TrainerConfig

MAX_WEIGHT = 1e6
"""Sum of the shares of a curriculum's buckets, which are relative: more says nothing more."""

EXCLUSIVE = (
    ("trainer.max_steps", "trainer.num_train_epochs"),
    ("trainer.warmup_steps", "trainer.warmup_ratio"),
    ("trainer.micro_batch_size", "trainer.micro_batch_prompts"),
)
"""Pairs of which one is given; the one of higher precedence silences the other."""

_SETTING_OF_ARGUMENT = {
    ("loss", "epsilon"): "trainer.epsilon",
    ("loss", "epsilon_high"): "trainer.epsilon_high",
    ("value", "gamma"): "trainer.gae_gamma",
    ("value", "lam"): "trainer.gae_lambda",
}
"""Arguments that have a setting of their own: (kind or name of the variant, argument) -> setting."""


def check_trainer(trainer: TrainerConfig) -> None:
    """Check the trainer's values against one another and its variants' names.

    Raises:
        UserError: values contradict one another.
        UnknownNameError: a variant that is not registered.
    """
    for each in trainer.variants:
        registry.check(each.kind, each.name)
        for argument in each.arguments:
            owners = ((each.kind, argument), (each.name, argument))
            if setting := next((_SETTING_OF_ARGUMENT[owner] for owner in owners if owner in _SETTING_OF_ARGUMENT), ""):
                raise UserError(f"{each.section}.{argument} is the setting {setting}: write {setting}=… .")
    _check_group(trainer)
    _check_batch(trainer)
    _check_value_head(trainer)
    _check_scaling(trainer)
    _check_kl(trainer)
    _check_correction(trainer)
    if trainer.sharding == "full" and trainer.gradient_noise_scale:
        raise UserError(
            "trainer.gradient_noise_scale=true with trainer.sharding=full: it compares the gradients of micro-batches, "
            "and sharded ranks sum theirs before any of them is whole. Use trainer.gns_probe_steps, which measures it "
            "from two batches, or sharding=none."
        )
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


def check_tracking(tracking: TrackingConfig) -> None:
    """Check the trackers' names.

    Raises:
        UserError: one is given twice.
        UnknownNameError: there is no such tracker.
    """
    for name in tracking.trackers:
        registry.check("tracker", name)
        if tracking.trackers.count(name) > 1:
            raise UserError(f"tracking.trackers: {name} is given twice.")


def check_run(config: RunConfig) -> None:
    """Check what depends on several sections.

    Raises:
        UserError: a setting that goes by interval evaluations, without any, or a quantized base that nothing trains on.
    """
    trainer = config.trainer
    _check_quantization(config)
    if config.eval.interval_steps is None:
        for name, given in (("keep_best", trainer.keep_best), ("early_stop_patience", trainer.early_stop_patience)):
            if given:
                raise UserError(
                    f"trainer.{name}={str(given).lower()} goes by the held-out rate during training, and nothing is "
                    "evaluated then. Set eval.interval_steps, as in 20."
                )


def _check_quantization(config: RunConfig) -> None:
    kind = config.lora.quantization
    if kind is None:
        return
    if not config.lora.enabled and config.adapter is None:
        raise UserError(
            f"lora.quantization={kind} freezes the model in 4 bits, and nothing would be trained. Set "
            "lora.enabled=true, or leave it out."
        )
    if config.trainer.sharding == "full":
        raise UserError(
            f"lora.quantization={kind} with trainer.sharding=full: FSDP2 shards and gathers plain floating-point "
            "weights, not packed ones. Use trainer.sharding=none: a base in 4 bits is an eighth of float32, and each "
            "process holds it whole; or leave lora.quantization out."
        )
    if config.precision == "float64":
        raise UserError(
            f"lora.quantization={kind} with precision=float64: bitsandbytes computes with 4-bit weights in float32, "
            "bfloat16 or float16. Use one of these."
        )
    if config.model is not None and config.model.endswith(".gguf"):
        raise UserError(
            f"lora.quantization={kind}: --model {config.model} is quantized in its own way, to which this cannot be "
            "added. Give the model that it was made of, or leave lora.quantization out."
        )


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
    if min(curriculum.weights) < 0 or not 0 < sum(curriculum.weights) <= MAX_WEIGHT:
        listed = ", ".join(f"{weight:g}" for weight in curriculum.weights)
        raise UserError(
            f"curriculum.weights=[{listed}]: shares of hard, normal and easy prompts, none below 0 and at least one "
            f"above it, together at most {MAX_WEIGHT:g} (default [1, 1, 1])."
        )


def _check_group(trainer: TrainerConfig) -> None:
    if trainer.dynamic_sampling_min_std and not trainer.dynamic_sampling:
        raise UserError(
            f"trainer.dynamic_sampling_min_std={trainer.dynamic_sampling_min_std:g} has no effect: "
            "trainer.dynamic_sampling=false keeps every group. Set trainer.dynamic_sampling=true, or leave it out."
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


def _check_value_head(trainer: TrainerConfig) -> None:
    if not trainer.value_head:
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


def _check_scaling(trainer: TrainerConfig) -> None:
    if trainer.scale_rewards in ("group", "batch") and registry.get("advantage", trainer.baseline).scales_itself:
        raise UserError(
            f"trainer.scale_rewards={trainer.scale_rewards}: the baseline {trainer.baseline} has a normalisation of "
            "its own, and would be divided twice. Use scale_rewards=none."
        )


def _check_kl(trainer: TrainerConfig) -> None:
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
    elif trainer.kl == "k1" and trainer.kl_placement == "loss":
        raise UserError(
            "trainer.kl=k1 with trainer.kl_placement=loss: the expected gradient of log pi - log pi_ref is 0 for every "
            "policy, so it would only add noise. Use kl_placement=ratio_loss or reward, or kl=k2, k3 or full."
        )


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
            f"{listed(divisors(prompts))}."
        )
    size, rows = trainer.micro_batch_size, trainer.rows_per_step
    share = f" / {steps} steps" if steps > 1 else ""
    if size is not None and trainer.micro_batch_prompts is not None:
        raise UserError(
            f"trainer.micro_batch_size={size} and trainer.micro_batch_prompts={trainer.micro_batch_prompts} are both "
            "given and both say how large a forward pass is. Give one."
        )
    if size is not None and rows % size:
        raise UserError(
            f"trainer.micro_batch_size={size} does not divide the batch: {prompts} prompts x "
            f"{trainer.num_generations} generations{share} = {rows} completions, {rows} / {size} = {rows / size:.4g}. "
            f"Use {listed(divisors(rows))}, or leave it out to pack by micro_batch_tokens."
        )
    size, prompts = trainer.micro_batch_prompts, trainer.prompts_per_optimizer_step
    if size is not None and prompts % size:
        taken = f"{trainer.prompts_per_step} prompts{share} = {prompts}, " if steps > 1 else ""
        raise UserError(
            f"trainer.micro_batch_prompts={size} does not divide the prompts of an optimizer step: {taken}{prompts} / "
            f"{size} = {prompts / size:.4g}. Use {listed(divisors(prompts))}, or leave it out to pack by "
            "micro_batch_tokens."
        )
    probed = trainer.gns_probe_prompts
    if trainer.gns_probe_steps is not None and probed >= prompts:
        raise UserError(
            f"trainer.gns_probe_prompts={probed} must be below the prompts of an optimizer step, {prompts}: the noise "
            "scale comes from two batches of different size."
        )


def divisors(number: int) -> list[int]:
    """Divisors of `number`, ascending."""
    small = [candidate for candidate in range(1, int(number**0.5) + 1) if number % candidate == 0]
    return sorted({*small, *(number // candidate for candidate in small)})


def listed(numbers: Iterable[int]) -> str:
    """Numbers as a person lists alternatives: `1, 2 or 4`."""
    shown = [str(number) for number in numbers]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"
