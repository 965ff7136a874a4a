"""Layers of settings with their sources, merged by precedence and validated."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from grpo_core.config.keys import Key, choices, find, keys
from grpo_core.config.models import RunConfig
from grpo_core.config.recipes import recipe
from grpo_core.config.trainer import EXCLUSIVE, IS_COMPLETE, needless
from grpo_core.profiles.presets import preset
from grpo_sdk.display.text import format_value
from grpo_sdk.errors import GrpoError, UserError, near_match
from grpo_sdk.records.yaml_text import parse_value

SourceKind = Literal[
    "command line", "environment", ".env", "file", "preset", "recipe", "profile", "python", "chosen", "default"
]

_STEPS = "trainer.steps_per_generation"

_DOTTED = re.compile(r"\b[a-z_]+(?:\.[a-z_]+)+\b")


@dataclass(frozen=True, slots=True)
class Source:
    """Source of a value.

    Attributes:
        kind: Kind of the layer.
        where: Place in the layer: a variable, file:line, the name of a profile or the reason of a choice.
        alias: Alias that was written instead of the setting's name, or an empty string.
    """

    kind: SourceKind
    where: str = ""
    alias: str = ""

    def __str__(self) -> str:
        match self.kind:
            case "file":
                place = self.where
            case "chosen":
                place = f"chosen: {self.where}"
            case _:
                place = f"{self.kind} {self.where}".strip()
        return f"{place} as {self.alias}" if self.alias else place


DEFAULT = Source("default")
RECOMMENDED: tuple[SourceKind, ...] = ("preset", "recipe", "profile")
"""Kinds of source that recommend values."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Values from one source, by dotted key; each argument of a variant has a key of its own."""

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)

    def put(self, name: str, value: Any, source: Source) -> None:
        """Add a value; a mapping of arguments is split into its entries.

        Raises:
            UnknownNameError: no such key.
            UserError: the layer already has the key.
        """
        key = find(name, source.where)
        if key.is_mapping and name == key.name and isinstance(value, Mapping):
            for argument, inner in value.items():
                self.put(f"{name}.{argument}", inner, source)
            return
        if name in self.values:
            raise UserError(f"{name} is given twice: by {self.sources[name]}, and by {source}.")
        self.values[name], self.sources[name] = value, source

    def drop(self, name: str) -> None:
        """Remove a value, if present."""
        self.values.pop(name, None)
        self.sources.pop(name, None)


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration with the source of each value.

    Attributes:
        config: Validated configuration.
        sources: Dotted key -> source, for every key.
    """

    config: RunConfig
    sources: Mapping[str, Source]


def build(layers: Sequence[Layer], *, is_complete: bool = True) -> LoadedConfig:
    """Merge layers, where the first one takes precedence, and validate the result.

    Args:
        layers: Where values come from.
        is_complete: Whether no more come. Else settings of the trainer are not compared with one another yet, as those
            that are missing may be recommended for the model.

    Raises:
        UserError: a value has the wrong type or is out of its limits, or values contradict one another.
    """
    merged = _merge(layers)
    try:
        config = RunConfig.model_validate(_nested(merged.values), context={IS_COMPLETE: is_complete})
    except ValidationError as error:
        raise _explain(error, merged) from None
    return LoadedConfig(config, {**dict.fromkeys(keys(), DEFAULT), **merged.sources})


def with_recipe(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """Append the layers of the preset and the recipe that the layers name, the preset above the recipe.

    Raises:
        UnknownNameError: there is no such preset or recipe.
        UserError: the layers change a setting that defines the recipe.
    """
    merged = _merge(layers)
    chosen, name = merged.values.get("preset"), merged.values.get("recipe")
    if isinstance(chosen, str):
        of_recipe = recipe(name).options if isinstance(name, str) else {}
        steps = merged.values.get(_STEPS, of_recipe.get(_STEPS, 1))
        sizes = preset(chosen).options(steps if isinstance(steps, int) else 1)
        layers = (*layers, _layer_of(sizes, Source("preset", chosen)))
        merged = _merge(layers)
    if not isinstance(name, str):
        return tuple(layers)  # no recipe, or a value that validation will refuse
    options = recipe(name).options
    for key in recipe(name).defining:
        wanted = options[key]
        if key in merged.values and merged.values[key] != wanted:
            raise UserError(
                f"the recipe {name} is {key}={format_value(wanted)}, but {merged.sources[key]} says "
                f"{key}={format_value(merged.values[key])}: it would no longer be {name}. Leave out {key}, or the "
                "recipe."
            )
    return (*layers, _layer_of(options, Source("recipe", name)))


def _layer_of(values: Mapping[str, Any], source: Source) -> Layer:
    layer = Layer()
    for key, value in values.items():
        layer.put(key, value, source)
    return layer


def explicit_values(config: RunConfig) -> dict[str, Any]:
    """Return the values that were set explicitly, by dotted key."""
    return {
        name: getattr(section, field) for name, section, field in _fields(config) if field in section.model_fields_set
    }


def flatten(config: RunConfig) -> dict[str, Any]:
    """Return all values by dotted key; the arguments of a variant are one mapping."""
    return {name: getattr(section, field) for name, section, field in _fields(config)}


def _fields(config: RunConfig) -> Iterable[tuple[str, BaseModel, str]]:
    """Yield (dotted key, its section, its name in the section) of every value."""
    for name, key in keys().items():
        yield name, getattr(config, key.section) if key.section else config, name.rpartition(".")[2]


def _merge(layers: Sequence[Layer]) -> Layer:
    merged = Layer()
    for layer in layers:
        excluded = {
            f"trainer.{other}"
            for first, second, _ in EXCLUSIVE
            for name, other in ((first, second), (second, first))
            if merged.values.get(f"trainer.{name}") is not None
        }
        reasons = needless(merged.values.get)
        for name, value in layer.values.items():
            section = name.rpartition(".")[0]  # of a variant's argument
            if (name in reasons or section in reasons) and layer.sources[name].kind in RECOMMENDED:
                continue
            if name not in merged.values and name not in excluded:
                merged.values[name], merged.sources[name] = value, layer.sources[name]
    return merged


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, value in sorted(values.items(), key=lambda item: -item[0].count(".")):
        *sections, last = name.split(".")
        node = tree
        for section in sections:
            node = node.setdefault(section, {})
        if isinstance(node.get(last), dict) and value is None:
            continue  # `loss_args: null` in one layer does not remove the arguments of another
        node[last] = value
    return tree


def _explain(error: ValidationError, merged: Layer) -> GrpoError:
    problem = error.errors(include_url=False)[0]
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, GrpoError):
        return type(cause)(f"{cause}{_provenance(str(cause), merged)}")
    location = [str(part) for part in problem["loc"]]
    key = next(keys()[name] for end in range(len(location), 0, -1) if (name := ".".join(location[:end])) in keys())
    name = key.name
    if key.is_mapping and len(location) > 2:
        name = f"{key.name}.{location[2]}"
    source = merged.sources.get(name, merged.sources.get(key.name, DEFAULT))
    from_where = "" if source.kind in ("command line", "default") else f" ({source})"
    value = merged.values.get(name)
    shown = format_value(value)
    if isinstance(value, str) and not isinstance(parse_value(shown), str):
        shown = f'"{shown}"'  # as it stands in the file: the quotes are the mistake
    return UserError(f"{name}={shown}{from_where}: {_wanted(key, value)}")


def _wanted(key: Key, value: Any) -> str:
    if key.is_mapping:
        return "must be a number, text, true, false or null."
    why = f"; {key.why}" if key.why else ""
    words = choices(key.annotation)
    hint = near_match(value, words) if isinstance(value, str) else ""
    return f"must be {key.allowed}{why}. Default: {format_value(key.default)}.{hint}"


def _provenance(message: str, merged: Layer) -> str:
    """Return the sources of the values named in a message, except those on the command line."""
    sources = {
        name: source
        for name in dict.fromkeys(_DOTTED.findall(message))
        if (source := merged.sources.get(name)) is not None and source.kind not in ("command line", "python")
    }
    return f" [{'; '.join(f'{name}: {source}' for name, source in sources.items())}]" if sources else ""
