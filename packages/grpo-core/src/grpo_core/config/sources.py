"""Reading a configuration: command line > environment > .env > YAML file > recipe > profile > default."""

from __future__ import annotations

import os
import typing
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from grpo_core.config.aliases import Alias, alias_of
from grpo_core.config.keys import Key, choices, environment_name, find, keys, members, near, sections
from grpo_core.config.layers import Layer, LoadedConfig, Source, build, explicit_values, with_recipe
from grpo_core.config.models import RunConfig
from grpo_core.config.section import Section
from grpo_sdk.display.text import format_value
from grpo_sdk.environment import PREFIX, RESERVED_ENVIRONMENT, read_dotenv, text_of
from grpo_sdk.errors import UnknownNameError, UserError, near_match
from grpo_sdk.paths import kind_of, user_path
from grpo_sdk.records import yaml_text


@dataclass(frozen=True, slots=True)
class Profile:
    """Recommended values for a model or a platform, which rank below all settings of the user.

    Attributes:
        name: Name of the model or platform.
        values: Dotted key -> value.
        why: Reason, shown beside each value.
    """

    name: str
    values: Mapping[str, object]
    why: str = ""

    def layer(self) -> Layer:
        """Return the values as a layer."""
        layer = Layer()
        source = Source("profile", f"{self.name}: {self.why}" if self.why else self.name)
        for name, value in self.values.items():
            layer.put(name, value, source)
        return layer


def load_config(
    cli: Mapping[str, Any] | None = None,
    *,
    config_file: Path | str | None = None,
    environ: Mapping[str, str] | None = None,
    dotenv_path: Path | str | None = Path(".env"),
    profiles: Sequence[Profile] = (),
    is_complete: bool = True,
) -> LoadedConfig:
    """Read all sources and validate the result.

    Args:
        cli: Dotted key -> value; text is parsed as YAML unless the setting itself is text.
        config_file: Path of a YAML file.
        environ: Environment with variables `GRPO_SECTION__KEY`; by default that of the process.
        dotenv_path: Path of a .env file, which need not exist; None reads none.
        profiles: Recommended values; the first profile takes precedence.
        is_complete: False leaves it to `resolve` to compare the trainer's settings with one another, as some may be
            recommended for the model.

    Raises:
        UnknownNameError: a key does not exist; names its source and the closest match.
        UserError: a value is not allowed; names the value, its source, and the allowed values.
    """
    layers = [
        _cli_layer(cli or {}),
        _environment_layer(os.environ if environ is None else environ, "environment"),
        _environment_layer(read_dotenv(dotenv_path), ".env"),
    ]
    if config_file is not None:
        layers.append(_file_layer(Path(config_file)))
    below = [*(profile.layer() for profile in profiles), _log_layer(os.environ if environ is None else environ)]
    loaded = build([*with_recipe(layers), *below], is_complete=is_complete)
    _check_aliases(loaded)
    return loaded


def with_settings(config: RunConfig, settings: Mapping[str, Any]) -> RunConfig:
    """Set settings by the names of Python's keyword arguments.

    Args:
        config: Configuration to change; settings that it leaves at their defaults stay open.
        settings: Name -> value. A name is a setting (`model`), one of `trainer` (`max_steps`), one that a single other
            section has (`interval_steps`), an alias, a dotted key, or a section with a mapping (`eval={"size": 64}`).

    Raises:
        UnknownNameError: no such setting; names the closest match.
        UserError: several sections have it, it is given twice, or a value is not allowed.
    """
    layer, below = Layer(), Layer()
    for name, value in settings.items():
        if name in sections():
            if isinstance(value, Section):
                value = value.model_dump(exclude_unset=True)
            if not isinstance(value, Mapping):
                raise UserError(
                    f"{name}= is a section of settings: give a mapping, as in {name}={{'{_first(name)}': …}}."
                )
            for key, inner in value.items():
                _put(layer, f"{name}.{key}", _plain(inner), Source("python"))
        else:
            _put(layer, _key_of(name), _plain(value), Source("python"))
    for name, value in explicit_values(config).items():
        below.put(name, value, Source("python"))
    loaded = build([layer, below], is_complete=False)
    _check_aliases(loaded)
    return loaded.config


def _key_of(name: str) -> str:
    """The dotted key of a keyword argument."""
    trainer = f"trainer.{name}"
    if name in keys() or trainer in keys() or "." in name or alias_of(name) is not None:
        return trainer if name not in keys() and trainer in keys() else name
    named_so = [key for key in keys() if key.rpartition(".")[2] == name]
    if len(named_so) > 1:
        listed = " or ".join(f"{key.partition('.')[0]}={{'{name}': …}}" for key in named_so)
        raise UserError(f"{name}= is a setting of several sections: write {listed}.")
    return named_so[0] if named_so else name


def _first(section: str) -> str:
    """The name of a section's first setting."""
    return next(key for key in keys() if key.startswith(f"{section}.")).rpartition(".")[2]


def _plain(value: Any) -> Any:
    """A value with paths as text, which a bare name does not look like."""
    if not isinstance(value, os.PathLike):
        return value
    path = os.fspath(value)
    return path if os.path.isabs(path) else os.path.join(".", path)


def to_yaml(config: RunConfig, *, leave_out: Collection[str] = ()) -> str:
    """Write all values as YAML, which `load_config(config_file=…)` reads back as an equal configuration.

    Args:
        config: Configuration to write.
        leave_out: Dotted keys to omit, so that they stay at their defaults.
    """
    values = config.model_dump(mode="json")
    for name in leave_out:
        section, _, key = name.partition(".")
        del values[section][key]
    return yaml_text.dump(values)


def _cli_layer(cli: Mapping[str, Any]) -> Layer:
    layer = Layer()
    source = Source("command line")
    for name, value in cli.items():
        _put(layer, name, _Text(value) if isinstance(value, str) else value, source)
    return layer


def _environment_layer(variables: Mapping[str, str], kind: str) -> Layer:
    layer = Layer()
    for variable in sorted(variables):
        if variable.upper() in _names() and not variable.startswith(PREFIX):
            raise UnknownNameError(
                f"{kind}: {variable} is written {variable.upper()}, in capitals. Rename or unset it."
            )
        if not variable.startswith(PREFIX) or variable in RESERVED_ENVIRONMENT:
            continue
        name = variable.removeprefix(PREFIX).lower().replace("__", ".")
        source = Source("environment" if kind == "environment" else ".env", variable)
        try:
            _put(layer, name, _Text(variables[variable]), source)
        except UnknownNameError:
            raise _unknown_variable(variable, name, kind) from None
    return layer


def _log_layer(variables: Mapping[str, str]) -> Layer:
    """Return the layer with `output_dir` inside GRPO_LOG_DIR, which a cluster's job script sets."""
    layer = Layer()
    if folder := variables.get("GRPO_LOG_DIR"):
        runs = Path(folder).expanduser() / RunConfig.model_fields["output_dir"].default
        layer.put("output_dir", str(runs), Source("environment", "GRPO_LOG_DIR"))
    return layer


@cache
def _names() -> frozenset[str]:
    """Return the names of all environment variables that are read."""
    return frozenset([*RESERVED_ENVIRONMENT, *map(environment_name, keys())])


class _Text(str):
    """A value from the command line or a variable, still to be parsed as its setting's type."""


def _put(layer: Layer, name: str, value: Any, source: Source) -> None:
    """Add a value to a layer under the name of its setting, for which an alias may have been written."""
    where = "" if source.kind == "command line" else source.where
    alias = None if name in keys() else _alias(name, where)
    if alias is None:
        layer.put(name, _typed(find(name, where), name, value, where) if isinstance(value, _Text) else value, source)
        return
    if isinstance(value, _Text):
        translated = alias.values is not None or alias.convert is not None
        value = yaml_text.parse_value(value) if translated else _typed(find(alias.key, where), alias.key, value, where)
    try:
        value = alias.value(value)
    except UserError as error:
        raise UserError(f"{where}: {error}" if where else str(error)) from None
    layer.put(alias.key, value, replace(source, alias=name))


def _check_aliases(loaded: LoadedConfig) -> None:
    """Refuse aliases whose condition on another setting is not met."""
    for key, source in loaded.sources.items():
        only = None if not source.alias or (alias := alias_of(source.alias)) is None else alias.only
        if only is None:
            continue
        section, _, last = only[0].rpartition(".")
        value = getattr(getattr(loaded.config, section), last)
        if value not in only[1]:
            raise UserError(
                f"{source.alias} ({replace(source, alias='')}) is {key} only with {only[0]}={' or '.join(only[1])}; it "
                f"is {value}. Leave it out, or set {only[0]}."
            )


def _alias(name: str, where: str) -> Alias | None:
    try:
        return alias_of(name)
    except UserError as error:
        raise UserError(f"{where}: {error}" if where else str(error)) from None


def _unknown_variable(variable: str, name: str, kind: str) -> UnknownNameError:
    likely = [environment_name(each) for each in near(name)]
    hint = f" Did you mean {' or '.join(map(repr, likely))}?" if likely else near_match(variable, _names())
    return UnknownNameError(
        f"{kind}: no setting {variable}.{hint} A setting is GRPO_SECTION__KEY (GRPO_TRAINER__BETA, GRPO_SEED); "
        f"reserved are {', '.join(RESERVED_ENVIRONMENT)}. Unset it, or correct it."
    )


def _file_layer(path: Path) -> Layer:
    path = user_path(str(path), "--config")
    if (kind := kind_of(path)) != "a file":
        siblings = [str(each) for each in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
        what = f"it is {kind}; give a file" if kind else "there is no such file"
        raise UserError(f"--config {path}: {what}.{near_match(str(path), siblings)}")
    layer = Layer()
    top = yaml_text.compose_file(text_of(path, f"--config {path}"), str(path))
    if top is not None:
        _walk_file(top, "", str(path), layer)
    return layer


def _walk_file(mapping: yaml.MappingNode, prefix: str, path: str, layer: Layer) -> None:
    for word, node, line in yaml_text.entries(mapping, path):
        name = f"{prefix}{word}"
        if name in sections():
            if isinstance(node, yaml.MappingNode):
                _walk_file(node, f"{name}.", path, layer)
                continue
            if yaml_text.value_of(node, path) is None:
                continue  # all lines of the section are commented out
        _put(layer, name, yaml_text.value_of(node, path), Source("file", f"{path}:{line}"))


def _typed(key: Key, name: str, text: str, where: str) -> Any:
    """Parse a value as YAML, unless its setting is text.

    Raises:
        UserError: the value is empty, as that of an unset variable; null has to be written out.
    """
    if not text.strip():
        null = ", or null" if key.is_nullable else ""
        place = f"{where}: " if where else ""
        raise UserError(
            f"{place}{name} is empty: give a value{null}, or leave it out. Default: {format_value(key.default)}."
        )
    value = yaml_text.parse_value(text)
    if key.is_mapping and name != key.name:
        return value
    if value is None:
        return None if key.is_nullable else text
    kinds = members(key.annotation)
    is_number = isinstance(value, int) and not isinstance(value, bool) and int in kinds
    is_text = str in kinds or (bool(choices(key.annotation)) and not is_number)
    takes_list = any(typing.get_origin(kind) is tuple for kind in kinds)
    return text if is_text and not (takes_list and isinstance(value, list)) else value
