"""Reading and writing YAML 1.2 without aliases and duplicate keys.

YAML 1.1, which PyYAML reads by default, reads 1e-6 as text, `no` as false and 12:30 as 750.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from grpo_sdk.errors import UserError, first_line

MAX_FILE_BYTES = 1 << 20
"""Largest file that is read; a configuration has about a hundred lines."""

_PLAIN = (
    ("tag:yaml.org,2002:null", re.compile(r"~|null|Null|NULL|"), ("~", "n", "N", "")),
    ("tag:yaml.org,2002:bool", re.compile(r"true|True|TRUE|false|False|FALSE"), tuple("tTfF")),
    ("tag:yaml.org,2002:int", re.compile(r"[-+]?[0-9]+"), tuple("-+0123456789")),
    (
        "tag:yaml.org,2002:float",
        re.compile(
            r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
        ),
        tuple("-+.0123456789"),
    ),
)
"""Tag, pattern and first characters of the plain scalars of the core schema, in order of precedence."""


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own protocol

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call] # untyped in types-PyYAML
            raise yaml.MarkedYAMLError(problem="aliases (*name) are not read here", problem_mark=event.start_mark)
        return super().compose_node(parent, index)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        return int(self.construct_scalar(node))  # in YAML 1.2, a leading 0 does not mean octal


class _Dumper(yaml.SafeDumper):
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own protocol


for _tag, _pattern, _first in _PLAIN:
    _anchored = re.compile(f"(?:{_pattern.pattern})\\Z")
    _Loader.add_implicit_resolver(_tag, _anchored, list(_first))
    _Dumper.add_implicit_resolver(_tag, _anchored, list(_first))
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


def parse_value(text: str) -> Any:
    """Parse a value as YAML; text that is not YAML is returned unchanged."""
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError):  # ValueError: int() refuses more than 4300 digits
        return text


def compose_file(text: str, name: str) -> yaml.MappingNode | None:
    """Parse a file into nodes, which have line numbers.

    Returns:
        The top-level mapping, or None for an empty file.

    Raises:
        UserError: it is not YAML, or not a mapping; names file and line.
    """
    try:
        node = yaml.compose(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark is not None else ""
        raise UserError(f"{name}{line}: not YAML that can be read here: {error.problem or error.context}.") from None
    except yaml.YAMLError as error:
        raise UserError(f"{name}: not YAML: {first_line(error)}.") from None
    except RecursionError:
        raise UserError(f"{name}: nested too deeply to be a configuration.") from None
    if node is None:
        return None
    if not isinstance(node, yaml.MappingNode):
        raise UserError(f"{name}: a configuration is 'key: value' lines; this file is {_kind(node)}.")
    return node


def text_of(path: Path, name: str) -> str:
    """Read the text of a configuration file.

    Raises:
        UserError: it is too large, cannot be read, or is not UTF-8.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UserError(f"{name}: cannot be read: {error.strerror or error}.") from None
    if len(content) > MAX_FILE_BYTES:
        raise UserError(f"{name}: more than {MAX_FILE_BYTES} bytes: not a configuration.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{name}: not UTF-8 text ({error.reason} at byte {error.start}).") from None


def read_mapping(file: Path) -> dict[str, Any]:
    """Read a YAML file as plain data, whatever its keys are.

    Raises:
        UserError: it cannot be read, or is no mapping.
    """
    top = compose_file(text_of(file, str(file)), str(file))
    return {} if top is None else dict(value_of(top, str(file)))


def entries(node: yaml.MappingNode, name: str) -> list[tuple[str, yaml.Node, int]]:
    """Return the (key, value node, line) of a mapping's entries.

    Raises:
        UserError: a key is given twice, or is not plain text; names file and lines.
    """
    items: list[tuple[str, yaml.Node, int]] = []
    lines: dict[str, int] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise UserError(f"{name}:{line}: a key is a word, not {_kind(key_node)}.")
        key = str(key_node.value)
        if key in lines:
            raise UserError(f"{name}:{line}: {key!r} is given twice, first in line {lines[key]}.")
        lines[key] = line
        items.append((key, value_node, line))
    return items


def value_of(node: yaml.Node, name: str) -> Any:
    """Return the plain Python value of a node.

    Raises:
        UserError: it has a tag that is not plain data, a duplicate key, or a number that is too long.
    """
    if isinstance(node, yaml.MappingNode):
        return {key: value_of(inner, name) for key, inner, _ in entries(node, name)}
    try:
        loader = _Loader("")
        try:
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        raise UserError(f"{name}:{node.start_mark.line + 1}: {error.problem}.") from None
    except (ValueError, RecursionError) as error:  # int() refuses more than 4300 digits
        raise UserError(f"{name}:{node.start_mark.line + 1}: {error}.") from None


def dump(data: Mapping[str, Any]) -> str:
    """Write plain data as YAML that `compose_file` reads back unchanged."""
    return str(yaml.dump(dict(data), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120))


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    return "a mapping" if isinstance(node, yaml.MappingNode) else "a single value"
