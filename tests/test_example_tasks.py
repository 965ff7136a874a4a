"""The tasks of the documentation and of examples hold the checks of `grpo check`, all in this process."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from documentation_pages import PAGES, ROOT, blocks

from grpo_sdk import load_task
from grpo_sdk.check.table import check_task
from grpo_sdk.check.texts import JUNK
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
def test_an_example_holds_the_checks(place: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in (("subject.LOADED_ROWS", 64), ("subject.MAX_COUNTED", 64), ("checks.rows.SPLIT_ROWS", 50)):
        monkeypatch.setattr(f"grpo_sdk.check.{name}", most)
    monkeypatch.setattr("grpo_sdk.check.checks.processes.POSITIONS", 20_000)
    monkeypatch.setattr("grpo_sdk.killable.pool.default_workers", lambda: 1)
    (file := tmp_path / "example.py").write_text(code, encoding="utf-8")
    for name in tasks_of_file(str(file), place):
        task = load_task(f"{file}:{name}")
        skipped = {"determinism", "imports", "latency", *KNOWN.get(place, ())}
        skipped |= {"split"} if len(task.rows()) <= FEW else set()
        report = check_task(task, rows=2, checks=CHECKS.keys() - skipped)
        assert not report.failures, report.failures


@pytest.mark.parametrize("name", ["units.py:convert", "pattern.py:match"])
def test_golds_are_solved_and_others_are_not(name: str) -> None:
    train, test = (load_task(f"{TASKS / name}?split={split}&size=100") for split in ("train", "test"))
    rows = test.rows()
    assert rows and not {row.id for row in rows} & {row.id for row in train.rows()}
    assert all(test.score(row.gold or "", row).solved for row in rows)
    assert not any(test.score(wrong, row).solved for row in rows for wrong in ("", "zzz", f"{row.gold} ."))
    assert not any(test.score(junk, row).value for row in rows for junk in JUNK.values())
