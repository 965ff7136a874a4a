"""Reading a configuration: command line > environment > .env > YAML file > preset > recipe > profile > default."""

from __future__ import annotations

import os
import typing
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from grpo_core.config.keys import (
    DEFAULT_SECTION,
    Key,
    choices,
    environment_name,
    find,
    keys,
    known_as,
    meaning,
    members,
    near,
    sections,
)
from grpo_core.config.layers import LoadedConfig, Settings, Source, SourceKind, explicit_settings
from grpo_core.config.models import RunConfig
from grpo_core.config.section import Section
from grpo_sdk.display.text import format_value
from grpo_sdk.environment import PREFIX, RESERVED_ENVIRONMENT, read_dotenv
from grpo_sdk.errors import UnknownNameError, UserError, near_match
from grpo_sdk.paths import kind_of, user_path
from grpo_sdk.records import yaml_text

PARSED = ("command line", "environment", ".env")
"""Kinds of source whose values are text, to be parsed as their setting's type."""


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

    @property
    def source(self) -> Source:
        """Source of the values."""
        return Source("profile", f"{self.name}: {self.why}" if self.why else self.name)


def load_config(
    cli: Mapping[str, Any] | None = None,
    *,
    config_file: Path | str | None = None,
    environ: Mapping[str, str] | None = None,
    dotenv_path: Path | str | None = Path(".env"),
) -> LoadedConfig:
    """Read all sources and validate the result, for what needs no model.

    Args:
        cli: As for `read_config`, like the next three.
        config_file: Path of a YAML file.
        environ: Environment.
        dotenv_path: Path of a .env file.

    Raises:
        UnknownNameError: a key does not exist; names its source and the closest match.
        UserError: a value is not allowed; names the value, its source, and the allowed values.
    """
    settings = read_config(cli, config_file=config_file, environ=environ, dotenv_path=dotenv_path)
    settings.add_recipe()
    loaded = settings.validated()
    loaded.check_complete()
    return loaded


def read_config(
    cli: Mapping[str, Any] | None = None,
    *,
    config_file: Path | str | None = None,
    environ: Mapping[str, str] | None = None,
    dotenv_path: Path | str | None = Path(".env"),
    section: str = DEFAULT_SECTION,
) -> Settings:
    """Read all sources; the result, to which `resolve` adds what is recommended, is not validated.

    Args:
        cli: Name -> value; text is parsed as YAML unless the setting itself is text.
        config_file: Path of a YAML file.
        environ: Environment with variables `GRPO_SECTION__KEY`; by default that of the process.
        dotenv_path: Path of a .env file, which need not exist; None reads none.
        section: Section that a name of `cli` without one is of, if it has a setting of this name.

    Raises:
        UnknownNameError: a key does not exist; names its source and the closest match.
        UserError: a key is given twice in one source, or a file cannot be read.
    """
    variables = os.environ if environ is None else environ
    settings = Settings()
    for name, value in (cli or {}).items():
        _put(settings, name, value, Source("command line"), section)
    settings.add_below(_environment(variables, "environment"))
    settings.add_below(_environment(read_dotenv(dotenv_path), ".env"))
    if config_file is not None:
        settings.add_below(_file(Path(config_file)))
    if folder := variables.get("GRPO_LOG_DIR"):  # which a cluster's job script sets
        runs = str(Path(folder).expanduser() / keys()["output_dir"].default)
        settings.add_below(Settings.of({"output_dir": runs}, Source("environment", "GRPO_LOG_DIR")))
    return settings


def with_settings(config: RunConfig, settings: Mapping[str, Any]) -> Settings:
    """Return a configuration's settings with others above them, by the names of Python's keyword arguments.

    Args:
        config: Configuration below; settings that it leaves at their defaults stay open.
        settings: Name -> value. A name is one of `read_config`, or a section with a mapping (`eval={"size": 64}`).

    Raises:
        UnknownNameError: no such setting; names the closest match.
        UserError: several sections have it, or it is given twice.
    """
    merged, source = Settings(), Source("python")
    for name, value in settings.items():
        if name in sections():
            values = value.model_dump(exclude_unset=True) if isinstance(value, Section) else value
            if not isinstance(values, Mapping):
                first = next(key for key in keys() if key.startswith(f"{name}.")).rpartition(".")[2]
                raise UserError(f"{name}= is a section of settings: give a mapping, as in {name}={{'{first}': …}}.")
            for key, inner in values.items():
                _put(merged, f"{name}.{key}", _plain(inner), source)
            continue
        if name not in keys() and meaning(name)[0] == name and len(same := known_as(name)) > 1:
            listed = " or ".join(f"{key.partition('.')[0]}={{'{name}': …}}" for key in same)
            raise UserError(f"{name}= is a setting of several sections: write {listed}.")
        _put(merged, name, _plain(value), source)
    merged.add_below(explicit_settings(config))
    return merged


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


def _environment(variables: Mapping[str, str], kind: SourceKind) -> Settings:
    settings = Settings()
    for variable in sorted(variables):
        if variable.upper() in _variables() and not variable.startswith(PREFIX):
            raise UnknownNameError(
                f"{kind}: {variable} is written {variable.upper()}, in capitals. Rename or unset it."
            )
        if not variable.startswith(PREFIX) or variable in RESERVED_ENVIRONMENT:
            continue
        name = variable.removeprefix(PREFIX).lower().replace("__", ".")
        try:
            _put(settings, name, variables[variable], Source(kind, variable))
        except UnknownNameError:
            likely = [environment_name(each) for each in near(name)]
            hint = f" Did you mean {' or '.join(map(repr, likely))}?" if likely else near_match(variable, _variables())
            raise UnknownNameError(
                f"{kind}: no setting {variable}.{hint} A setting is GRPO_SECTION__KEY (GRPO_TRAINER__BETA, GRPO_SEED); "
                f"reserved are {', '.join(RESERVED_ENVIRONMENT)}. Unset it, or correct it."
            ) from None
    return settings


@cache
def _variables() -> frozenset[str]:
    """Return the names of all environment variables that are read."""
    return frozenset([*RESERVED_ENVIRONMENT, *map(environment_name, keys())])


def _file(path: Path) -> Settings:
    path = user_path(str(path), "--config")
    if (kind := kind_of(path)) != "a file":
        siblings = [str(each) for each in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
        what = f"it is {kind}; give a file" if kind else "there is no such file"
        raise UserError(f"--config {path}: {what}.{near_match(str(path), siblings)}")
    settings = Settings()
    top = yaml_text.compose_file(yaml_text.text_of(path, f"--config {path}"), str(path))
    if top is not None:
        _walk(top, "", str(path), settings)
    return settings


def _walk(mapping: yaml.MappingNode, prefix: str, path: str, settings: Settings) -> None:
    for word, node, line in yaml_text.entries(mapping, path):
        name = f"{prefix}{word}"
        if name in sections():
            if isinstance(node, yaml.MappingNode):
                _walk(node, f"{name}.", path, settings)
                continue
            if yaml_text.value_of(node, path) is None:
                continue  # all lines of the section are commented out
        _put(settings, name, yaml_text.value_of(node, path), Source("file", f"{path}:{line}"))


def _put(settings: Settings, name: str, value: Any, source: Source, section: str = DEFAULT_SECTION) -> None:
    """Add a value under the key that its name means."""
    try:
        dotted, alias = meaning(name, section)
        translate = None if alias is None else alias.translate
        if isinstance(value, str) and source.kind in PARSED:
            value = yaml_text.parse_value(value) if translate else _typed(find(dotted, ""), dotted, value)
        if translate is not None:
            value = _translated(name, value, translate)
    except UserError as error:
        where = "" if source.kind == "command line" else source.where
        raise type(error)(f"{where}: {error}" if where else str(error)) from None
    settings.put(dotted, value, source if alias is None else Source(source.kind, source.where, name))


def _translated(name: str, value: Any, translate: typing.Callable[[Any], Any]) -> Any:
    """Translate another system's value to ours."""
    try:
        return translate(value)
    except ValueError as error:
        shown = str(value).lower() if isinstance(value, bool) else repr(value)[:80]
        raise UserError(f"{name}={shown}: {error}.") from None


def _typed(key: Key, name: str, text: str) -> Any:
    """Parse a value as YAML, unless its setting is text.

    Raises:
        UserError: the value is empty, as that of an unset variable; null has to be written out.
    """
    if not text.strip():
        null = ", or null" if key.is_nullable else ""
        raise UserError(f"{name} is empty: give a value{null}, or leave it out. Default: {format_value(key.default)}.")
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
