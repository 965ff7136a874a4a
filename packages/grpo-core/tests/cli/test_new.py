import json
import tomllib
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from grpo_sdk import load_task
from grpo_sdk.check import check_task
from grpo_sdk.check.fuzz import fuzz
from grpo_sdk.cli.main import main
from grpo_sdk.plugins.host import PluginHost

Grpo = Callable[..., str]

KINDS = {
    "task": ((), "reverse"),
    "game": (("--game",), "heap"),
    "turns": (("--multi-turn",), "reverse"),
    "tools": (("--tools",), "search"),
    "rows": (("--from-jsonl", "rows.jsonl"), "questions"),
    "choices": (("--from-jsonl", "choices.jsonl"), "questions"),
    "gym": (("--from-reasoning-gym", "leg_counting"), "puzzle"),
}

QUICK = ("gold", "junk", "ladder", "bounds", "hostile", "split", "leak", "feedback", "demos", "perfect")
"""Checks that start no other process."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Path:
    records = [{"prompt": f"How many feet are {yards} yards?", "gold": 3 * yards} for yards in range(1, 60)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, records)))
    colors = {"question": "Pick one?", "choices": ["red", "green", "blue"]}
    picked = [colors | {"question": f"Pick {n}?", "answer": "ABC"[n % 3]} for n in range(60)]
    (tmp_path / "choices.jsonl").write_text("\n".join(map(json.dumps, picked)))
    return tmp_path


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_plugin_passes_its_checks(
    kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options, task = KINDS[kind]
    plugin = f"grpo-tasks-new-{kind}"  # as packages of ours are called
    module = plugin.replace("-", "_")
    monkeypatch.setattr("grpo_sdk.display.progress.REPORT_FIRST_S", 600.0)  # however slow this machine: no progress
    assert not main(["new", plugin, *options])
    printed = capsys.readouterr()
    assert f"grpo check {module}.{task} --fuzz 200" in printed.out and printed.err == ""

    written = sorted(str(path.relative_to(folder / plugin)) for path in (folder / plugin).rglob("*.*"))
    source = [f"src/{module}/__init__.py", *([f"src/{module}/rows.jsonl"] if kind in ("rows", "choices") else [])]
    assert written == ["README.md", "pyproject.toml", *source, f"src/{module}/task.py", "tests/test_task.py"]

    for name, most in (("subject.LOADED_ROWS", 64), ("subject.MAX_COUNTED", 64), ("checks.rows.SPLIT_ROWS", 50)):
        monkeypatch.setattr(f"grpo_sdk.check.{name}", most)
    bound = load_task(f"./{plugin}/src/{module}/task.py:{task}")
    report = check_task(bound, rows=2, checks=QUICK)  # all of them: tests/test_new_plugin.py
    assert not report.failures and report.count("passed") >= 3
    assert not fuzz(bound, 40, workers=1).findings

    project = tomllib.loads((folder / plugin / "pyproject.toml").read_text())
    assert project["project"]["optional-dependencies"] == {"dev": ["pytest>=8"], "train": ["grpo-core[trl]"]}
    ((name, target),) = project["project"]["entry-points"]["grpo"].items()
    monkeypatch.syspath_prepend(str(folder / plugin / "src"))
    assert list(PluginHost([EntryPoint(name, target, "grpo")]).tasks(module)) == [f"{module}.{task}"]
    text = (folder / plugin / "tests" / "test_task.py").read_text()
    compile(text, "test_task.py", "exec")
    assert f'test_conformance = conformance("{module}.{task}")' in text


@pytest.mark.parametrize("missing", ["grpo-core", "trl", ""])
def test_how_to_install_the_trainer_is_said_where_it_is_missing(
    missing: str, monkeypatch: pytest.MonkeyPatch, grpo: Grpo
) -> None:
    monkeypatch.setattr("grpo_sdk.cli.new.version_of", lambda name: None if name == missing else "1.0")
    assert ("pip install -e './mine[train]'  # grpo-core" in grpo("new", "mine")) == bool(missing)


def test_what_is_guessed_about_a_file_is_said(grpo: Grpo) -> None:
    said = [" ".join(line.split()) for line in grpo("new", "yards", "--from-jsonl", "rows.jsonl").splitlines()]
    assert "fields question from column prompt, answer from column gold" in said
    assert "verifier number: every answer is a number" in said and "rows 59 of rows.jsonl" in said
    task = load_task("./yards/src/yards/task.py:questions")
    assert task.prompt(task.rows()[0]).endswith(" yards?\nAnswer:")
    assert task.task.default_model is None  # that of core.qa has never seen these questions
    moved = load_task("./yards/src/yards/task.py:questions?path=rows.jsonl")
    assert [row.id for row in moved.rows()] == [row.id for row in task.rows()]


def test_columns_and_verifier_can_be_given(folder: Path, grpo: Grpo) -> None:
    (folder / "cities.csv").write_text("Question,question,label,answer\nno,Capital of France?,Paris,no\n")
    out = grpo("new", "cities", "--from-jsonl", "cities.csv", "--fields", "answer:label", "--verifier", "exact")
    assert "verifier  exact: as given" in out and "question from column question," in out
    assert json.loads((folder / "cities/src/cities/rows.jsonl").read_text())["label"] == "Paris"


def test_questions_of_a_file_may_be_messages(folder: Path, grpo: Grpo) -> None:
    messages = [{"role": "user", "content": "1 + 1?"}]
    (folder / "chat.jsonl").write_text(json.dumps({"prompt": messages, "gold": 2}))
    grpo("new", "chatty", "--from-jsonl", "chat.jsonl")
    task = load_task("./chatty/src/chatty/task.py:questions?path=chat.jsonl")
    assert task.prompt(task.rows()[0]) == tuple(messages)


def test_a_data_set_without_golds_is_trained_with_a_model(folder: Path, grpo: Grpo) -> None:
    out = grpo("new", "colors", "--from-reasoning-gym", "graph_color")
    assert "run --task colors.puzzle --model MODEL" in out and "--quick" not in out
    assert "$ grpo run --task colors.puzzle --model MODEL" in (folder / "colors" / "README.md").read_text()
