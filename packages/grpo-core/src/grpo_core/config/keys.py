"""The dotted keys of the configuration, as `trainer.learning_rate`, derived from the models, and what else calls them.

A setting may be called by its last word alone, or by the name that another system has for it. Such a name is accepted
only if it means the same here; otherwise it is refused with the reason.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, Literal

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from grpo_core.config.models import RunConfig
from grpo_core.config.section import VariantArguments, either
from grpo_sdk.errors import UnknownNameError, UserError

DEFAULT_SECTION = "trainer"
"""Section of a name that stands alone, where it has a setting of this name."""


@dataclass(frozen=True, slots=True)
class Alias:
    """Another system's name of a setting.

    Attributes:
        key: Dotted key of the setting.
        translate: Other system's value -> ours; raises ValueError with the allowed values. By default they are equal.
        only: (key, values): the alias is accepted only if this key has one of these values.
        note: Explanation for the documentation; may be empty.
    """

    key: str
    translate: Callable[[Any], Any] | None = None
    only: tuple[str, tuple[str, ...]] | None = None
    note: str = ""


def _step_rule(value: Any) -> str:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return "step_rule" if value else "constant"


def _deviation(variance: Any) -> float | None:
    """Return the bound that a deviation exceeds exactly if its variance is at or above `variance`."""
    if variance is None:
        return None
    if isinstance(variance, bool) or not isinstance(variance, int | float) or not 0 <= variance < math.inf:
        raise ValueError("must be a number, 0 or more")
    return math.nextafter(math.sqrt(variance), 0.0) if variance > 0 else 0.0


def _words(**ours: str) -> Callable[[Any], Any]:
    """Return a translation of words; other values are taken unchanged."""
    return lambda value: ours.get(value, value) if isinstance(value, str) else value


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
"""Other system's name -> setting of `trainer`."""

ALIASES: Mapping[str, Alias] = {
    **{name: Alias(f"trainer.{setting}") for name, setting in _RENAMED.items()},
    "adaptive_kl": Alias(
        "trainer.kl_controller",
        _step_rule,
        note="true is the step rule: x1.5 above twice the target, x0.8 below half of it",
    ),
    "baseline_type": Alias(
        "trainer.baseline", _words(learned="value"), note="learned is value, which needs trainer.value_head=true"
    ),
    "ema_alpha": Alias(
        "trainer.advantage_args.alpha",
        only=("trainer.baseline", ("ema", "adaptive_shrink")),
        note="the weight of the newest rewards in a running mean",
    ),
    "kl_horizon": Alias(
        "trainer.kl_controller_args.horizon",
        only=("trainer.kl_controller", ("proportional",)),
        note="of the rule that has a horizon; it counts updates, or what trainer.kl_controller_args.n_steps says",
    ),
    "kl_target": Alias(
        "trainer.kl_controller_args.target",
        only=("trainer.kl_controller", ("proportional", "ppo_rule", "step_rule")),
        note="per token, in nats",
    ),
    "kl_type": Alias(
        "trainer.kl",
        _words(forward="k3", reverse="fkl_k3", symmetric="jeffreys"),
        note="forward is KL(pi, pi_ref) there, which textbooks call reverse: k3; reverse is KL(pi_ref, pi): fkl_k3; "
        "symmetric is half their sum: jeffreys",
    ),
    "lr_scheduler": Alias("trainer.lr_scheduler_type", _words(const="constant"), note="const is constant"),
    "reward_var_thresh": Alias(
        "trainer.dynamic_sampling_min_std",
        _deviation,
        note="a variance at or above it is a deviation above its square root; needs trainer.dynamic_sampling=true",
    ),
}
"""Names that mean a setting, alone or as `trainer.NAME`."""

REFUSED: Mapping[str, str] = {
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
"""Names without an equivalent setting here -> the reason, and what to set instead."""

_HINTS = {
    "accum_steps": ("trainer.steps_per_generation",),
    "batch": ("trainer.prompts_per_step",),
    "ckpt": ("adapter",),
    "cliprange": ("trainer.epsilon",),
    "g": ("trainer.num_generations",),
    "group_size": ("trainer.num_generations",),
    "max_tokens": ("trainer.max_completion_length",),
    "minutes": ("trainer.max_minutes",),
    "rank": ("lora.r",),
    "report_to": ("tracking.trackers",),
    "track": ("tracking.trackers",),
    "wandb_project": ("tracking.project",),
    "warmup": ("trainer.warmup_steps", "trainer.warmup_ratio"),
    "wd": ("trainer.weight_decay",),
}
"""Names in other trainers -> keys to suggest in an error; unlike `ALIASES`, they are not accepted."""


@dataclass(frozen=True, slots=True)
class Key:
    """One value of the configuration.

    Attributes:
        name: Dotted name: `trainer.beta`.
        section: Part before the last dot, or an empty string.
        annotation: Type annotation.
        default: Default value.
        description: One line of documentation.
        allowed: Allowed values, in words.
        why: Reason of the limit, if it is not obvious.
    """

    name: str
    section: str
    annotation: Any
    default: Any
    description: str
    allowed: str
    why: str

    @property
    def is_mapping(self) -> bool:
        """Whether the value is a mapping: the arguments of a variant."""
        return bool(self.annotation == VariantArguments)

    @property
    def is_nullable(self) -> bool:
        """Whether the value may be null."""
        return type(None) in members(self.annotation)


def environment_name(key: str) -> str:
    """Return the environment variable of a dotted key: `GRPO_SECTION__KEY`."""
    return "GRPO_" + key.upper().replace(".", "__")


@cache
def keys() -> Mapping[str, Key]:
    """Return all keys by their dotted name, in the order of the models."""
    return types.MappingProxyType({key.name: key for key in _walk(RunConfig, "")})


@cache
def sections() -> tuple[str, ...]:
    """Return the names of the sections, in order."""
    return tuple(dict.fromkeys(key.section for key in keys().values() if key.section))


def meaning(name: str, section: str = DEFAULT_SECTION) -> tuple[str, Alias | None]:
    """Return the dotted name that a name means, and the alias that it is; an unknown name means itself.

    A name is a dotted key, the last word of one in `section`, an alias, the last word of a single key of the other
    sections, or a section and a key joined by an underscore, as in `eval_size`.

    Raises:
        UserError: the name is known from another system, but means something else here.
    """
    if name in keys():
        return name, None
    if f"{section}.{name}" in keys():
        return f"{section}.{name}", None
    word = name.removeprefix(f"{DEFAULT_SECTION}.")
    if word in REFUSED:
        raise UserError(f"{name}: {REFUSED[word]}.")
    if word in ALIASES:
        return ALIASES[word].key, ALIASES[word]
    parent, _, argument = name.rpartition(".")
    if parent:
        own, _ = meaning(parent, section)
        return (f"{own}.{argument}" if own in keys() and keys()[own].is_mapping else name), None
    if len(same := _named(name)) == 1:
        return same[0], None
    joined = name.replace("_", ".", 1)
    return (joined if joined in keys() else name), None


def find(name: str, where: str) -> Key:
    """Return the key that a dotted name sets; for `trainer.loss_args.delta` that is `trainer.loss_args`.

    Args:
        name: Dotted name.
        where: Place where it was written, for the message; may be empty.

    Raises:
        UnknownNameError: there is no such key; names the closest match and the existing keys.
    """
    if name in keys():
        return keys()[name]
    parent, _, argument = name.rpartition(".")
    if argument and parent in keys() and keys()[parent].is_mapping:
        return keys()[parent]
    prefix = f"{where}: " if where else ""
    if name in sections():
        inside = ", ".join(_last(key.name) for key in keys().values() if key.section == name)
        raise UnknownNameError(f"{prefix}{name} is a section; set one of its keys, {name}.KEY=value. Keys: {inside}")
    raise UnknownNameError(f"{prefix}no setting {name!r}.{_hint(near(name))} {_available(name)}")


def known_as(name: str) -> tuple[str, ...]:
    """Return the keys with this name in any section, or those that other trainers call so."""
    last = _last(name).lower()
    if same := _named(last):
        return same
    return (ALIASES[last].key,) if last in ALIASES else _HINTS.get(last, ())


def _named(last: str) -> tuple[str, ...]:
    return tuple(key for key in keys() if _last(key) == last)


def near(name: str) -> tuple[str, ...]:
    """Return the keys that an unknown dotted name may refer to, the most likely first."""
    if same := known_as(name):
        return same
    if close := get_close_matches(name, keys(), n=1, cutoff=0.75):
        return tuple(close)
    close = get_close_matches(_last(name).lower(), {_last(key) for key in keys()}, n=1, cutoff=0.6)
    return tuple(key for key in keys() if _last(key) in close)


def members(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union, without `Annotated`; any other type is its only member."""
    if typing.get_origin(annotation) is typing.Annotated:
        return members(typing.get_args(annotation)[0])
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        return tuple(inner for each in typing.get_args(annotation) for inner in members(each))
    return (annotation,)


def choices(annotation: Any) -> tuple[str, ...]:
    """Return the allowed words of a literal type; empty for other types."""
    return tuple(
        word for each in members(annotation) if typing.get_origin(each) is Literal for word in typing.get_args(each)
    )


def _walk(model: type[BaseModel], prefix: str) -> Iterable[Key]:
    for name, field in model.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from _walk(annotation, f"{prefix}{name}.")
            continue
        extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        yield Key(
            f"{prefix}{name}",
            prefix.rstrip("."),
            annotation,
            field.get_default(call_default_factory=True, validated_data={}),
            " ".join((field.description or "").split()),
            str(extra.get("allowed") or _allowed(field)),
            str(extra.get("why", "")),
        )


def _allowed(field: FieldInfo) -> str:
    """Describe the allowed values of a field: `a whole number, 1 or more`."""
    if field.annotation == VariantArguments:
        return "name: value pairs, as the variant's function takes them"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    alternatives: list[str] = []
    for each in members(field.annotation):
        if typing.get_origin(each) is Literal:
            alternatives.append(either(typing.get_args(each)))
        elif typing.get_origin(each) is tuple:
            arguments = typing.get_args(each)
            noun = {float: "numbers", str: "names"}[arguments[0]]
            alternatives.append(f"a list of {noun}" if Ellipsis in arguments else f"a list of {len(arguments)} {noun}")
        elif each is not type(None):
            alternatives.append(words[each])
    text = " or ".join(alternatives) + _limits(field.metadata)
    return f"{text}, or null" if type(None) in members(field.annotation) else text


def _limits(metadata: Iterable[Any]) -> str:
    words: list[str] = []
    for limit in metadata:
        match limit:
            case Ge(ge=bound):
                words.append(f", {bound} or more")
            case Gt(gt=bound):
                words.append(f" above {bound}")
            case Le(le=bound):
                words.append(f"{' and' if words else ''} at most {_plain(bound)}")
            case Lt(lt=bound):
                words.append(f"{' and' if words else ''} below {bound}")
            case MinLen():
                words.append(", not empty")
    return "".join(words)


def _plain(bound: Any) -> str:
    """Format a bound: 10^9, not 1000000000."""
    digits = f"{bound:.0f}"
    return f"10^{len(digits) - 1}" if bound >= 10_000 and not digits[1:].strip("0") and digits[0] == "1" else str(bound)


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _hint(names: Iterable[str]) -> str:
    quoted = [repr(name) for name in names]
    return f" Did you mean {either(quoted)}?" if quoted else ""


def _available(name: str) -> str:
    section = name.rpartition(".")[0]
    if section in sections():
        inside = ", ".join(_last(key.name) for key in keys().values() if key.section == section)
        return f"In {section}: {inside}"
    top = ", ".join(key.name for key in keys().values() if not key.section)
    return f"Available: {top}, and the sections {', '.join(sections())}; grpo run --show-config lists everything."
