"""The tasks of the documentation and of examples hold the checks of `grpo check`, all in this process."""

import ast
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from documentation_pages import PAGES, ROOT, blocks

from grpo_sdk import load_task
from grpo_sdk.check.table import check_task
from grpo_sdk.plugins.task_files import tasks_of_file
from grpo_sdk.task.exemptions import CHECKS

TASKS = ROOT / "examples" / "tasks"

KNOWN = {"docs/how-to/fuzz-a-task.md": {"split"}}
"""Checks that the example of a page fails on purpose."""

FEW = 4
"""Rows of an example up to which all splits are the same."""


def up_to_its_tasks(code: str) -> str:
    """A block that makes tasks without what it does with them, among it to train; nothing if it makes none."""

    def makes_a_task(part: ast.AST) -> bool:
        called = [each.func for each in ast.walk(part) if isinstance(each, ast.Call)]
        return any(isinstance(name, ast.Name) and name.id in ("Task", "Game") for name in called)

    code = code.replace(", train\n", "\n")
    parts = [part for part in ast.parse(code).body if makes_a_task(part)]
    last = parts[-1] if parts else None
    hook = "(task,) = grpo_tasks()" if isinstance(last, ast.FunctionDef) and last.name == "grpo_tasks" else ""
    if last is None or (isinstance(last, ast.FunctionDef) and not hook):
        return ""
    return "\n".join([*code.split("\n")[: last.end_lineno], hook])


def examples() -> Iterator[tuple[str, str]]:
    """(Where an example stands, its code)."""
    notebook = json.loads((ROOT / "examples/notebook.ipynb").read_text(encoding="utf-8"))
    yield from (("examples/notebook.ipynb", "".join(cell["source"])) for cell in notebook["cells"] if "outputs" in cell)
    for file in (ROOT / "examples").glob("*/*.py"):
        yield str(file.relative_to(ROOT)), file.read_text(encoding="utf-8")
    for page in PAGES:
        yield from ((page, code) for source, code in blocks(page, "python") if not source and ">>>" not in code)


EXAMPLES = [(place, text) for place, code in examples() if "from grpo_" in code and (text := up_to_its_tasks(code))]


def test_every_example_file_is_among_them() -> None:
    assert {f"examples/tasks/{file.name}" for file in TASKS.glob("*.py")} <= {place for place, _ in EXAMPLES}


@pytest.mark.parametrize(("place", "code"), EXAMPLES, ids=[place for place, _ in EXAMPLES])
def test_an_example_holds_the_checks(place: str, code: str, tmp_path: Path, few_rows: Callable[[int], None]) -> None:
    few_rows(64)
    (file := tmp_path / "example.py").write_text(code, encoding="utf-8")
    for name in tasks_of_file(str(file), place):
        task = load_task(f"{file}:{name}")
        skipped = {"determinism", "imports", "latency", *KNOWN.get(place, ())}
        skipped |= {"split"} if len(task.rows()) <= FEW else set()
        report = check_task(task, rows=2, checks=CHECKS.keys() - skipped)
        assert not report.failures, report.failures
