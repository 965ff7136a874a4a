from __future__ import annotations

import json
import re
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from grpo_core import load_task
from grpo_core.cli.main import main
from grpo_core.plugins.host import PluginHost
from grpo_core.testing import check_task
from grpo_core.testing.fuzz import fuzz

KINDS = {
    "task": ((), "reverse"),
    "game": (("--game",), "heap"),
    "turns": (("--multi-turn",), "reverse"),
    "rows": (("--from-jsonl", "rows.jsonl"), "questions"),
    "choices": (("--from-jsonl", "choices.jsonl"), "questions"),
    "gym": (("--from-reasoning-gym", "leg_counting"), "puzzle"),
}

QUICK = ("gold", "junk", "ladder", "bounds", "hostile", "split", "leak", "feedback", "demos", "perfect")
"""Checks that start no other process."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    records = [{"prompt": f"How many feet are {yards} yards?", "gold": 3 * yards} for yards in range(1, 60)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, records)))
    letters = [
        {"question": f"Pick {n}?", "choices": ["red", "green", "blue", f"x{n}"], "answer": "ABCD"[n % 4]}
        for n in range(60)
    ]
    (tmp_path / "choices.jsonl").write_text("\n".join(map(json.dumps, letters)))
    (tmp_path / "latin1.jsonl").write_bytes('{"question": "café?", "answer": "x"}'.encode("latin-1"))
    (tmp_path / "nested.jsonl").write_text('{"question": "a?", "answer": ["x", "y"]}')
    return tmp_path


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_plugin_passes_its_checks(
    kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options, task = KINDS[kind]
    module = f"new_{kind}"
    monkeypatch.setattr("grpo_core.display.progress.REPORT_FIRST_S", 600.0)  # however slow this machine: no progress
    assert not main(["new", f"new-{kind}", *options])
    printed = capsys.readouterr()
    assert f"grpo check {module}.{task} --fuzz 200" in printed.out and printed.err == ""

    written = sorted(str(path.relative_to(folder / f"new-{kind}")) for path in (folder / f"new-{kind}").rglob("*.*"))
    source = [f"src/{module}/__init__.py", *([f"src/{module}/rows.jsonl"] if kind in ("rows", "choices") else [])]
    assert written == ["README.md", "pyproject.toml", *source, f"src/{module}/task.py", "tests/test_task.py"]

    bound = load_task(f"./new-{kind}/src/{module}/task.py:{task}")
    report = check_task(bound, rows=2, checks=QUICK)  # all of them: tests/test_new_plugin.py
    assert not report.failures and report.count("passed") >= 3
    assert not fuzz(bound, 100, workers=1).findings

    project = tomllib.loads((folder / f"new-{kind}" / "pyproject.toml").read_text())
    ((name, target),) = project["project"]["entry-points"]["grpo"].items()
    monkeypatch.syspath_prepend(str(folder / f"new-{kind}" / "src"))
    assert list(PluginHost([EntryPoint(name, target, "grpo")]).tasks(module)) == [f"{module}.{task}"]
    text = (folder / f"new-{kind}" / "tests" / "test_task.py").read_text()
    compile(text, "test_task.py", "exec")
    assert f'test_conformance = conformance("{module}.{task}")' in text


def test_what_is_guessed_about_a_file_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert not main(["new", "yards", "--from-jsonl", "rows.jsonl"])
    out = capsys.readouterr().out
    assert re.search(r"^fields +question from column prompt, answer from column gold$", out, re.MULTILINE)
    assert re.search(r"^verifier +number: every answer is a number$", out, re.MULTILINE)
    assert re.search(r"^rows +59 of rows.jsonl$", out, re.MULTILINE)
    task = load_task("./yards/src/yards/task.py:questions")
    assert task.prompt(task.rows()[0]).endswith(" yards?\nAnswer:")
    assert task.task.default_model is None  # that of core.qa has never seen these questions
    moved = load_task("./yards/src/yards/task.py:questions?path=rows.jsonl")
    assert [row.id for row in moved.rows()] == [row.id for row in task.rows()]


def test_columns_and_verifier_can_be_given(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "cities.csv").write_text("text,label,answer\nCapital of France?,Paris,no\nCapital of Peru?,Lima,no\n")
    given = ["--fields", "question:text,answer:label", "--verifier", "exact"]
    assert not main(["new", "cities", "--from-jsonl", "cities.csv", *given])
    assert "verifier  exact: as given" in capsys.readouterr().out
    assert json.loads((folder / "cities/src/cities/rows.jsonl").read_text().splitlines()[0])["label"] == "Paris"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["math"], "name 'math' is that of a plugin: grpo-tasks-math"),
        (["maths"], "name 'maths' is too near to the plugin 'math'"),
        (["class"], "name 'class' is a word of Python"),
        (["json"], "name 'json' is a module of Python"),
        (["numpy"], "name 'numpy' is that of an installed package; try my-numpy"),
        (["2fast"], "name '2fast': use up to 60 letters"),
        (["../up"], "name '../up': use up to 60 letters"),
        (["a" * 61], "use up to 60 letters"),
        (["one", "--game", "--multi-turn"], "--game and --multi-turn: give one of them"),
        (["one", "--verifier", "exact"], "about the file of --from-jsonl, which is missing"),
        (["one", "--from-jsonl", "rwos.jsonl"], "no file rwos.jsonl"),
        (["one", "--from-jsonl", "rows.jsonl", "--fields", "question"], "--fields 'question': write FIELD:COLUMN"),
        (
            ["one", "--from-jsonl", "rows.jsonl", "--fields", "question:promt,answer:gold"],
            "--fields question:promt: rows.jsonl has no column 'promt'",
        ),
        (["one", "--from-jsonl", "rows.jsonl", "--fields", "qestion:prompt"], "no field 'qestion'. Did you mean"),
        (["one", "--from-jsonl", "latin1.jsonl"], "latin1.jsonl:1: not UTF-8 text; save the file as UTF-8"),
        (["one", "--from-jsonl", "nested.jsonl"], "nested.jsonl:1: column 'answer' is a list"),
        (["one", "--from-jsonl", "rows.jsonl", "--verifier", "choice"], "must be a letter from A to J"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(
    arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(folder.iterdir())
    assert main(["new", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert sorted(folder.iterdir()) == before


def test_questions_of_a_file_may_be_messages(folder: Path) -> None:
    messages = [{"role": "user", "content": "1 + 1?"}]
    (folder / "chat.jsonl").write_text(json.dumps({"prompt": messages, "gold": 2}))
    assert not main(["new", "chatty", "--from-jsonl", "chat.jsonl"])
    task = load_task("./chatty/src/chatty/task.py:questions?path=chat.jsonl")
    assert task.prompt(task.rows()[0]) == tuple(messages)


def test_a_column_of_the_exact_name_is_taken(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "two.jsonl").write_text('{"question": "a?", "Question": "b?", "answer": "x"}')
    assert not main(["new", "two", "--from-jsonl", "two.jsonl"])
    assert "question from column question," in capsys.readouterr().out


def test_a_data_set_without_golds_is_trained_with_a_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not main(["new", "colors", "--from-reasoning-gym", "graph_color"])
    out = capsys.readouterr().out
    assert "run --task colors.puzzle --model MODEL" in out and "--quick" not in out
    assert "$ grpo run --task colors.puzzle --model MODEL" in (folder / "colors" / "README.md").read_text()


def test_nothing_is_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "mine").mkdir()
    (folder / "link").symlink_to("nowhere")
    for name in ("mine", "link"):
        assert main(["new", name]) == 2
        assert f"{name} exists already, and nothing is overwritten" in capsys.readouterr().err
