"""The generated reference pages name no machine, and every example in the help works."""

import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from grpo_core.cli import evaluate
from grpo_core.config import LoadedConfig
from grpo_sdk.cli import main as entry
from grpo_sdk.cli.group import load_command

DOCS = Path(__file__).parents[4] / "docs"


def test_the_pages_do_not_depend_on_this_machine() -> None:
    for page in (DOCS / "reference").rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert str(Path.home()) not in text and str(DOCS.parent) not in text


def examples_in_help(name: str, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """The arguments of every example that the help of a command shows."""
    entry.main([name, "--help"])
    unfolded = re.sub(r"\\\n +", "", capsys.readouterr().out)
    found = re.findall(rf"^ +grpo {name}(?: (.*))?$", unfolded, re.MULTILINE)
    assert found
    return [shlex.split(example) for example in found]


def test_the_examples_in_the_help_are_taken(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    pytest.importorskip("grpo_tasks_math", reason="the examples name its tasks")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text("seed: 1\n")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    for arguments in examples_in_help("run", capsys):
        assert entry.main(["run", "--show-config", *arguments]) == 0, capsys.readouterr().err
    run = tmp_path / "training_runs" / "run_2026-11-21_12-30-52"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text("seed: 1\n")
    evaluated: list[LoadedConfig] = []
    found = SimpleNamespace(results={}, failures={}, folders={}, has_any=True)
    monkeypatch.setattr(evaluate, "run_evaluation", lambda loaded, *_: evaluated.append(loaded) or {})
    monkeypatch.setattr(evaluate, "run_run_evaluation", lambda loaded, *_: evaluated.append(loaded) or found)
    examples = examples_in_help("eval", capsys)
    for arguments in examples:
        assert entry.main(["eval", *arguments]) == 0, capsys.readouterr().err
    assert len(evaluated) == len(examples)
    for name in ("sample", "warm-start"):
        for arguments in examples_in_help(name, capsys):
            load_command(name).make_context(name, arguments)
