"""Settings by dotted key, each with its source: merged by precedence, then validated once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from grpo_core.config.keys import ALIASES, DEFAULT_SECTION, Key, choices, find, keys
from grpo_core.config.models import RunConfig
from grpo_core.config.recipes import recipe
from grpo_core.config.trainer import EXCLUSIVE, LATER, needless
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
class Settings:
    """Values by dotted key, not validated, with their sources; each argument of a variant has a key of its own."""

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)

    @classmethod
    def of(cls, values: Mapping[str, Any], source: Source) -> Settings:
        """Return the values of one source.

        Raises:
            UnknownNameError: no such key.
        """
        settings = cls()
        for name, value in values.items():
            settings.put(name, value, source)
        return settings

    def copy(self) -> Settings:
        """Return the same settings, to be changed apart."""
        return Settings(dict(self.values), dict(self.sources))

    def put(self, name: str, value: Any, source: Source) -> None:
        """Add a value; a mapping of arguments is split into its entries.

        Raises:
            UnknownNameError: no such key.
            UserError: the key has a value already.
        """
        key = find(name, source.where)
        if key.is_mapping and name == key.name and isinstance(value, Mapping):
            for argument, inner in value.items():
                self.put(f"{name}.{argument}", inner, source)
            return
        if name in self.values:
            raise UserError(f"{name} is given twice: by {self.sources[name]}, and by {source}.")
        self.values[name], self.sources[name] = value, source

    def override(self, name: str, value: Any, source: Source) -> None:
        """Set a value in place of any other."""
        self.values[name], self.sources[name] = value, source

    def source(self, name: str) -> Source:
        """Return the source of a value, or that of a default."""
        return self.sources.get(name, DEFAULT)

    def text(self, name: str) -> str | None:
        """Return a value that is text; for another one, which validation refuses, the default."""
        value = self.values.get(name)
        return value if isinstance(value, str) else keys()[name].default

    def add_below(self, lower: Settings) -> None:
        """Add settings that rank below these: those that these neither have, nor exclude, nor make needless."""
        excluded = {
            f"trainer.{other}"
            for first, second, _ in EXCLUSIVE
            for name, other in ((first, second), (second, first))
            if self.values.get(f"trainer.{name}") is not None
        }
        reasons = needless(self.values.get)
        for name, value in lower.values.items():
            source, section = lower.sources[name], name.rpartition(".")[0]  # of a variant's argument
            is_needless = source.kind in RECOMMENDED and (name in reasons or section in reasons)
            if name not in self.values and name not in excluded and not is_needless:
                self.values[name], self.sources[name] = value, source

    def add_recipe(self) -> None:
        """Add those of the preset and the recipe that these name, the preset above the recipe.

        Raises:
            UnknownNameError: there is no such preset or recipe.
            UserError: these change a setting that defines the recipe.
        """
        chosen, name = self.text("preset"), self.text("recipe")
        options = {} if name is None else recipe(name).options
        if chosen is not None:
            steps = self.values.get(_STEPS, options.get(_STEPS, 1))
            sizes = preset(chosen).options(steps if isinstance(steps, int) else 1)
            self.add_below(Settings.of(sizes, Source("preset", chosen)))
        if name is None:
            return
        for key in recipe(name).defining:
            wanted = options[key]
            if key in self.values and self.values[key] != wanted:
                raise UserError(
                    f"the recipe {name} is {key}={format_value(wanted)}, but {self.sources[key]} says "
                    f"{key}={format_value(self.values[key])}: it would no longer be {name}. Leave out {key}, or the "
                    "recipe."
                )
        self.add_below(Settings.of(options, Source("recipe", name)))

    def validated(self) -> LoadedConfig:
        """Check each value by itself, and names of variants; `check_complete` compares values with one another.

        Raises:
            UserError: a value has the wrong type or is out of its limits.
        """
        try:
            config = RunConfig.model_validate(_nested(self.values), context={LATER: True})
        except ValidationError as error:
            raise _explain(error, self) from None
        return LoadedConfig(config, {**dict.fromkeys(keys(), DEFAULT), **self.sources})


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration with the source of each value.

    Attributes:
        config: Validated configuration.
        sources: Dotted key -> source, for every key.
    """

    config: RunConfig
    sources: Mapping[str, Source]

    def check_complete(self) -> None:
        """Compare the values with one another, when no more are to come.

        Raises:
            UserError: they contradict one another; names the sources of those that do.
        """
        try:
            self.config.trainer.check()
        except GrpoError as error:
            raise type(error)(f"{error}{_provenance(str(error), self.sources)}") from None
        for key, source in self.sources.items():
            alias = ALIASES.get(source.alias.removeprefix(f"{DEFAULT_SECTION}."))
            if alias is None or alias.only is None:
                continue
            needed, words = alias.only
            if (value := value_of(self.config, needed)) not in words:
                raise UserError(
                    f"{source.alias} ({replace(source, alias='')}) is {key} only with {needed}={' or '.join(words)}; "
                    f"it is {value}. Leave it out, or set {needed}."
                )


def explicit_settings(config: RunConfig, sources: Mapping[str, Source] | None = None) -> Settings:
    """Return the values of a configuration that were set, not left at their defaults.

    Args:
        config: The configuration.
        sources: Dotted key -> source; by default values come from Python.
    """
    settings, sources = Settings(), sources or {}
    for name, section, last in _fields(config):
        if last not in section.model_fields_set:
            continue
        value, source = getattr(section, last), sources.get(name, Source("python"))
        if isinstance(value, dict):
            for argument, inner in value.items():
                settings.put(f"{name}.{argument}", inner, sources.get(f"{name}.{argument}", source))
        else:
            settings.put(name, value, source)
    return settings


def flatten(config: RunConfig) -> dict[str, Any]:
    """Return all values by dotted key; the arguments of a variant are one mapping."""
    return {name: getattr(section, last) for name, section, last in _fields(config)}


def value_of(config: RunConfig, name: str) -> Any:
    """Return the value of a dotted key, or of an argument of a variant."""
    value: Any = config
    for part in name.split("."):
        value = value[part] if isinstance(value, dict) else getattr(value, part)
    return value


def _fields(config: RunConfig) -> Iterable[tuple[str, BaseModel, str]]:
    """Yield (dotted key, its section, its name in the section) of every value."""
    for name, key in keys().items():
        yield name, getattr(config, key.section) if key.section else config, name.rpartition(".")[2]


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


def _explain(error: ValidationError, settings: Settings) -> GrpoError:
    problem = error.errors(include_url=False)[0]
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, GrpoError):
        return type(cause)(f"{cause}{_provenance(str(cause), settings.sources)}")
    location = [str(part) for part in problem["loc"]]
    key = next(keys()[name] for end in range(len(location), 0, -1) if (name := ".".join(location[:end])) in keys())
    name = key.name
    if key.is_mapping and len(location) > 2:
        name = f"{key.name}.{location[2]}"
    source = settings.sources.get(name, settings.sources.get(key.name, DEFAULT))
    from_where = "" if source.kind in ("command line", "default") else f" ({source})"
    value = settings.values.get(name)
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


def _provenance(message: str, sources: Mapping[str, Source]) -> str:
    """Return the sources of the values named in a message, except those on the command line."""
    named = [
        f"{name}: {source}"
        for name in dict.fromkeys(_DOTTED.findall(message))
        if (source := sources.get(name, DEFAULT)).kind not in ("command line", "python", "default")
    ]
    return f" [{'; '.join(named)}]" if named else ""
