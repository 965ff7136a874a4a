"""Sizes and imports that docs/explanation/architecture.md promises: what a reader has to hold in mind stays small."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGES = Path(__file__).parents[1] / "packages"
CORE = PACKAGES / "grpo-core" / "src" / "grpo_core"

MODULE_LINES, CLASS_LINES, FUNCTION_LINES, PARAMETERS = 420, 200, 60, 8

FACADES = {"evaluate", "evaluate_run", "publish", "train", "warm_start"}
"""Public functions whose parameters are a user's options, with a line of documentation each."""

VARIANTS = {
    "algorithms.losses", "algorithms.sequence_losses", "algorithms.kl", "engines.servers.vllm",
}  # fmt: skip
"""Registered by name and called by the names of their parameters."""

AUTOGRAD = ("forward", "backward")

REASON = "One class because"


@cache
def sources() -> dict[str, tuple[Path, ast.Module]]:
    """Dotted name -> (file, syntax tree) of every module of every package."""
    modules = {}
    for path in sorted(PACKAGES.glob("*/src/**/*.py")):
        parts = path.relative_to(path.parents[len(path.parts) - path.parts.index("src") - 2]).with_suffix("").parts
        modules[".".join(part for part in parts if part != "__init__")] = (path, ast.parse(path.read_text()))
    return modules


def nodes(*kinds: type[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    """(module, node) of every node of some kinds."""
    for name, (_, tree) in sources().items():
        for node in ast.walk(tree):
            if isinstance(node, kinds):
                yield name, node


def test_modules_are_short() -> None:
    long = {name: lines for name, (path, _) in sources().items() if (lines := _lines(path)) > MODULE_LINES}
    assert not long


def test_the_training_loop_is_read_in_one_sitting() -> None:
    assert _lines(CORE / "training" / "trainer.py") <= 250


def test_classes_are_short_or_say_why_not() -> None:
    for module, node in nodes(ast.ClassDef):
        assert isinstance(node, ast.ClassDef)
        lines = (node.end_lineno or 0) - node.lineno + 1
        assert lines <= CLASS_LINES or REASON in (ast.get_docstring(node) or ""), f"{module}.{node.name}: {lines} lines"


def test_functions_are_short() -> None:
    for module, node in nodes(ast.FunctionDef, ast.AsyncFunctionDef):
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        lines = (node.end_lineno or 0) - node.lineno + 1
        assert lines <= FUNCTION_LINES or node.name in FACADES, f"{module}.{node.name}: {lines} lines"


def test_functions_have_few_parameters() -> None:
    for module, node in nodes(ast.FunctionDef, ast.AsyncFunctionDef):
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        is_command = any("click" in ast.unparse(decorator) for decorator in node.decorator_list)
        is_variant = module.removeprefix("grpo_core.") in VARIANTS
        if is_command or is_variant or node.name in FACADES or node.name in AUTOGRAD:
            continue
        names = [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        count = len([name for name in names if name not in ("self", "cls")])
        assert count <= PARAMETERS, f"{module}.{node.name}: {count} parameters"


def test_no_import_goes_in_a_circle() -> None:
    """Imports inside functions and for type checking count, too."""
    sorter: TopologicalSorter[str] = TopologicalSorter(
        {name: set(_imports(name, tree)) for name, (_, tree) in sources().items()}
    )
    try:
        sorter.prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_the_root_has_few_modules() -> None:
    modules = {path.name for path in CORE.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert len(modules) <= 6, sorted(modules)


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def _imports(module: str, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        targets: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            targets = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        for target in targets:
            while target and target not in sources():
                target = target.rpartition(".")[0]
            # A package's __init__ imports its own modules, which then may name it: the first import decides.
            if target and target != module:
                yield target
