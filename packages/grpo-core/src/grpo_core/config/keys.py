"""The dotted keys of the configuration, as `trainer.learning_rate`, derived from the models."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, Literal

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from grpo_core.config.aliases import ALIASES
from grpo_core.config.models import RunConfig
from grpo_core.config.section import VariantArguments, either
from grpo_sdk.errors import UnknownNameError

_HINTS = {
    "accum_steps": ("trainer.steps_per_generation",),
    "batch": ("trainer.prompts_per_step",),
    "ckpt": ("adapter",),
    "cliprange": ("trainer.epsilon",),
    "eval_size": ("eval.size",),
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

    @property
    def environment_name(self) -> str:
        """Name of its environment variable: `GRPO_TRAINER__BETA`."""
        return environment_name(self.name)


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
    same = tuple(key for key in keys() if _last(key) == last)
    if not same and last in ALIASES:
        return (ALIASES[last].key,)
    return same or _HINTS.get(last, ())


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
            field.description or "",
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
