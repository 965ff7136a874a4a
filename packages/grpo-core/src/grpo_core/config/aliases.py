"""Names of our settings in the reference systems, accepted wherever a setting is.

A name is an alias only if it means the same as the setting. Otherwise it is refused with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from grpo_sdk.errors import UserError

SECTION = "trainer."
"""Section in which an alias may be written, like most settings; it may also stand alone."""


@dataclass(frozen=True, slots=True)
class Alias:
    """Another name of a setting.

    Attributes:
        word: The other name.
        key: Dotted key of the setting.
        values: Other system's value -> ours; other values are taken unchanged.
        convert: Function that converts the other system's number to ours.
        only: (key, values): the alias is accepted only if this key has one of these values.
        note: Explanation for the documentation; may be empty.
    """

    word: str
    key: str
    values: Mapping[Any, Any] | None = None
    convert: Callable[[float], float] | None = None
    only: tuple[str, tuple[str, ...]] | None = None
    note: str = ""

    def value(self, value: Any) -> Any:
        """Translate a value of the other system.

        Raises:
            UserError: it cannot be translated; names the allowed values.
        """
        if self.values is not None:
            if isinstance(value, str | bool) and value in self.values:
                return self.values[value]
            if set(self.values) == {True, False}:
                raise UserError(f"{self.word}={_quoted(value)}: must be true or false.")
            return value
        if self.convert is None or value is None:
            return value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise UserError(f"{self.word}={_quoted(value)}: must be a number, 0 or more.")
        return self.convert(value)


def _quoted(value: Any) -> str:
    """Format a value for an error message, bounded in length."""
    return str(value).lower() if isinstance(value, bool) else repr(value)[:80]


def _deviation(variance: float) -> float:
    """Return the bound that a deviation exceeds exactly if its variance is at or above `variance`."""
    return math.nextafter(math.sqrt(variance), 0.0) if variance > 0 else 0.0


_SAME = (
    "entropy_coef", "gae_lambda", "keep_last", "max_steps", "num_generations", "save_every", "stop_after", "top_k",
    "top_p", "use_gae", "value_loss_coef", "warmup_ratio", "weight_decay",
)  # fmt: skip
"""Settings with the same name there, but without a section. `temperature` is left out, since two settings have it."""

_RENAMED = {
    "batch_size": "prompts_per_step",
    "buffer_size": "prompts_per_step",
    "clip_+": "epsilon_high",
    "clip_eps": "epsilon",
    "clip_range": "epsilon",
    "epochs": "num_train_epochs",
    "grad_clip": "max_grad_norm",
    "k_samples": "num_generations",
    "kl_beta": "beta",
    "kl_coef": "beta",
    "lr": "learning_rate",
    "max_new_tokens": "max_completion_length",
    "microbatch_size": "micro_batch_prompts",
    "num_epochs": "num_train_epochs",
    "per_device_train_batch_size": "micro_batch_size",
    "ppo_epochs": "num_iterations",
    "save_steps": "save_every",
    "save_total_limit": "keep_last",
    "steps": "max_steps",
}

_CONVERTED = (
    Alias(
        "kl_target",
        "trainer.kl_controller_args.target",
        only=("trainer.kl_controller", ("proportional", "ppo_rule", "step_rule")),
        note="per token, in nats",
    ),
    Alias(
        "adaptive_kl",
        "trainer.kl_controller",
        {True: "step_rule", False: "constant"},
        note="true is the step rule: x1.5 above twice the target, x0.8 below half of it",
    ),
    Alias("eval_at_end", "eval.at_end"),
    Alias("eval_at_start", "eval.at_start"),
    Alias("eval_interval_steps", "eval.interval_steps"),
    Alias(
        "baseline_type",
        "trainer.baseline",
        {"learned": "value"},
        note="learned is value, which needs trainer.value_head=true",
    ),
    Alias(
        "ema_alpha",
        "trainer.advantage_args.alpha",
        only=("trainer.baseline", ("ema", "adaptive_shrink")),
        note="the weight of the newest rewards in a running mean",
    ),
    Alias(
        "kl_horizon",
        "trainer.kl_controller_args.horizon",
        only=("trainer.kl_controller", ("proportional",)),
        note="of the rule that has a horizon; it counts updates, or what trainer.kl_controller_args.n_steps says",
    ),
    Alias(
        "kl_type",
        "trainer.kl",
        {"forward": "k3", "reverse": "fkl_k3", "symmetric": "jeffreys"},
        note="forward is KL(pi, pi_ref) there, which textbooks call reverse: k3; reverse is KL(pi_ref, pi): fkl_k3; "
        "symmetric is half their sum: jeffreys",
    ),
    Alias("lr_scheduler", "trainer.lr_scheduler_type", {"const": "constant"}, note="const is constant"),
    Alias(
        "reward_var_thresh",
        "trainer.dynamic_sampling_min_std",
        convert=_deviation,
        note="a variance at or above it is a deviation above its square root; needs trainer.dynamic_sampling=true",
    ),
)

_TABLE = (
    *(Alias(word, f"{SECTION}{word}") for word in _SAME),
    *(Alias(word, f"{SECTION}{key}") for word, key in _RENAMED.items()),
    *_CONVERTED,
)

ALIASES: Mapping[str, Alias] = MappingProxyType({alias.word: alias for alias in sorted(_TABLE, key=lambda a: a.word)})
"""Aliases by their word."""

REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "baseline_update_freq": "a running baseline is updated after every batch, and read before; leave it out",
        "ent_coef": "the system that names it never uses it, so its value says nothing; an entropy bonus is "
        "trainer.entropy_coef",
        "eval_temperature": "held-out evaluation is greedy unless asked otherwise; it is eval.temperature, and makes "
        "results incomparable with others",
        "gradient_accumulation_steps": "a step is not counted in forward passes here: set trainer.prompts_per_step = "
        "per_device_train_batch_size x gradient_accumulation_steps x devices / num_generations, and "
        "trainer.micro_batch_size = per_device_train_batch_size",
        "reward_shaping": "how a reward is shaped belongs to its task",
        "rollout_batch_size": "sampling is batched by memory (engine.max_batch_tokens), which never changes what is "
        "sampled; leave it out",
        "tf_micro_batch": "old log-probs come from sampling or from the step's own forward passes "
        "(trainer.micro_batch_tokens); leave it out",
        "train_batch_size": "it counts completions in some systems and prompts in others: set "
        "trainer.prompts_per_step, which counts prompts",
        "total_steps": "it counts from the first run on where a run is resumed; the steps of this run are "
        "trainer.max_steps",
    }
)
"""Names without an equivalent setting here -> the reason, and what to set instead."""


def alias_of(name: str) -> Alias | None:
    """Return the alias of a name, which may have the prefix `trainer.`; None if it is not an alias.

    Raises:
        UserError: the name is known from another system, but means something else here.
    """
    word = name.removeprefix(SECTION)
    if word in REFUSED:
        raise UserError(f"{name}: {REFUSED[word]}.")
    return ALIASES.get(word)
