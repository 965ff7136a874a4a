"""The generated reference pages: current, complete, and every example in them works."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from grpo_core.cli import evaluate
from grpo_core.cli import main as entry
from grpo_core.cli.group import COMMANDS, load_command
from grpo_core.config import LoadedConfig, load_config
from grpo_core.config.keys import keys

DOCS = Path(__file__).parents[4] / "docs"


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS)  # as for a script: it imports its neighbours
        spec.loader.exec_module(module)
    return module


def test_the_pages_are_current() -> None:
    # A process of its own: what other tests have loaded and registered is not on the pages.
    done = subprocess.run([sys.executable, DOCS / "generate.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_stale_page_is_noticed_and_rewritten(
    generate: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = tmp_path / "docs" / "reference"
    monkeypatch.setattr(generate, "REFERENCE", reference)
    made = generate.pages()
    monkeypatch.setattr(generate, "pages", lambda: made)
    assert generate.main(["--check"]) == 1
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
    (reference / "cli.md").write_text("old")
    capsys.readouterr()
    assert generate.main(["--check"]) == 1
    assert capsys.readouterr().out == "docs/reference/cli.md is not current: run python docs/generate.py\n"


def test_every_setting_and_command_has_its_place(generate: ModuleType) -> None:
    page = generate.config_page()
    for name, key in keys().items():
        assert f"| `{name}` | " in page
        assert key.description in page
    for name in COMMANDS:
        assert f"## grpo {name}\n" in generate.cli_page()


def test_the_pages_do_not_depend_on_this_machine(generate: ModuleType) -> None:
    for page in generate.pages().values():
        assert str(Path.home()) not in page
        assert str(DOCS.parent) not in page


def test_the_example_file_is_read(generate: ModuleType, tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", generate.config_page(), re.DOTALL)
    (tmp_path / "run.yaml").write_text(example)
    loaded = load_config(config_file=tmp_path / "run.yaml", environ={}, dotenv_path=None)
    assert (loaded.config.trainer.num_generations, loaded.config.trainer.learning_rate) == (16, 5e-6)


def examples_in_help(name: str, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """The arguments of every example that the help of a command shows."""
    entry.main([name, "--help"])
    unfolded = re.sub(r"\\\n +", "", capsys.readouterr().out)
    found = re.findall(rf"^ +grpo {name}(?: (.*))?$", unfolded, re.MULTILINE)
    assert found
    return [shlex.split(example) for example in found]


def test_the_examples_in_the_help_of_run_and_eval_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_the_examples_in_the_help_of_the_others_parse(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("sample", "warm-start"):
        for arguments in examples_in_help(name, capsys):
            load_command(name).make_context(name, arguments)
