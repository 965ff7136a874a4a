"""The structure that docs/explanation/architecture.md promises: no circles, few imports, sizes that only fall.

A ceiling falls with the number that it holds, and rises only by what an issue states.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGES = Path(__file__).parents[1] / "packages"

CODE_LINES = {
    "grpo-core": 28_574,
    "grpo-sdk": 23_966,
    "grpo-tasks-chess": 3_354,
    "grpo-tasks-code": 7_954,
    "grpo-tasks-games": 1_464,
    "grpo-tasks-gym": 3_000,
    "grpo-tasks-math": 3_828,
}
"""Most lines with a token, without comments and docstrings, of each package."""

FAN_OUT, WIDE = 20, 0
"""Modules of ours that one module imports, re-exports looked through; modules that still import more."""

LONELY_LINES, LONELY = 60, 19
"""Code lines below which a module with a single importer is part of that one; modules that still are apart."""


@cache
def sources() -> dict[str, tuple[Path, ast.Module]]:
    """Dotted name -> (file, syntax tree) of every module of every package."""
    modules = {}
    for path in sorted(PACKAGES.glob("*/src/**/*.py")):
        parts = path.relative_to(PACKAGES).with_suffix("").parts[2:]
        modules[".".join(part for part in parts if part != "__init__")] = (path, ast.parse(path.read_text()))
    return modules


@cache
def code_lines(module: str) -> int:
    path, tree = sources()[module]
    lines = enumerate(path.read_text().splitlines(), start=1)
    coded = {number for number, line in lines if line.strip() and not line.lstrip().startswith("#")}
    documentation: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            documentation.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, ast.Constant) and "\n" in str(node.value):  # its empty lines and those with # count, too
            coded.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(coded - documentation)


@cache
def imports(module: str) -> frozenset[str]:
    """The modules of ours that one names anywhere, each where the name is defined."""
    tree, found = sources()[module][1], set()
    aliases = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            aliases |= {alias.asname or alias.name: alias.name for alias in node.names}
            found |= {alias.name for alias in node.names if alias.name in sources()}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {home for alias in node.names if (home := defined_in(node.module, alias.name))}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            found |= {home} if (home := defined_in(aliases[node.value.id], node.attr)) else set()
    return frozenset(found - {module})


def defined_in(package: str, name: str) -> str:
    """The module that defines a name of a package or module, through its re-exports; empty of others' packages."""
    if f"{package}.{name}" in sources():
        return f"{package}.{name}"
    if package not in sources():
        return ""
    path, tree = sources()[package]
    if path.name == "__init__.py":
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    if (alias.asname or alias.name) == name and (home := defined_in(node.module, alias.name)):
                        return home
    return package


def modules() -> Iterator[str]:
    """Every module but the faces of packages, whose imports are for others."""
    return (name for name, (path, _) in sources().items() if path.name != "__init__.py")


def test_packages_do_not_grow() -> None:
    sizes: Counter[str] = Counter()
    for name, (path, _) in sources().items():
        sizes[path.relative_to(PACKAGES).parts[0]] += code_lines(name)
    assert not {package: lines for package, lines in sizes.items() if lines > CODE_LINES[package]}


def test_modules_import_few_others() -> None:
    wide = {name: len(imports(name)) for name in modules() if len(imports(name)) > FAN_OUT}
    assert len(wide) <= WIDE, wide


def test_a_short_module_of_one_importer_is_part_of_it() -> None:
    importers = Counter(target for name in modules() for target in imports(name))
    lonely = [name for name in modules() if importers[name] == 1 and code_lines(name) < LONELY_LINES]
    assert len(lonely) <= LONELY, lonely


def test_no_import_goes_in_a_circle() -> None:
    """Imports inside functions and for type checking count, too."""
    sorter: TopologicalSorter[str] = TopologicalSorter({name: imports(name) for name in modules()})
    try:
        sorter.prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_no_message_names_a_page_of_this_repository() -> None:
    named = []
    for module, (_, tree) in sources().items():
        documented = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node not in documented)
        named += [f"{module}:{node.lineno}" for node in texts if isinstance(node.value, str) and "docs/" in node.value]
    assert not named, "who installed the package has no such page: say what helps, or COMMAND --help"
