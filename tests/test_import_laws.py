"""Who may import what: docs/explanation/architecture.md states the laws, these hold them."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "transformers", "trl", "peft", "datasets", "vllm", "sympy", "math_verify")

EVERY_TASK = f"""
import sys
import grpo_core
from grpo_core.data import ProceduralConfig
from grpo_core.plugins.host import default_host

scored = 0
for plugin, facts in default_host().facts().items():
    assert not facts.error, facts.error
    for name, task in default_host().tasks(plugin).items():
        if issubclass(task.config, ProceduralConfig):
            bound = grpo_core.load_task(name + "?size=3")
            for row in bound.rows():
                bound.prompt(row)
                assert row.gold is None or bound.score(row.gold, row).solved, (name, row)
                bound.score("certainly not", row)
                scored += 1
import grpo_tasks_math.rewards
import grpo_core.rewards, grpo_core.scoring, grpo_core.config, grpo_core.prompts.mixture
import grpo_core.plugins.variants, grpo_core.cli.main
print(scored, *sorted(set(sys.modules) & {set(HEAVY)!r}))
"""

EVERY_NAME = """
import sys
import grpo_core
before = "torch" in sys.modules
for name in grpo_core.__all__:
    getattr(grpo_core, name)
print(before, "torch" in sys.modules)
"""


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], env={**os.environ, **environment}, capture_output=True, text=True
    )


def test_importing_and_scoring_every_procedural_task_is_free_of_torch() -> None:
    done = python("-c", EVERY_TASK)

    assert done.returncode == 0, done.stderr
    scored, *imported = done.stdout.split()
    assert int(scored) >= 3 * 9 and imported == []


HELP = """
import sys
from grpo_core.cli.main import main
code = main(["--help"])
print(code, *sorted(set(sys.modules) & {"pydantic", "pluggy", "torch", "rich"}), file=sys.stderr)
"""


def test_help_comes_from_the_remembered_list_of_plugins() -> None:
    assert python("-c", HELP).returncode == 0  # remembers it, where nobody has
    done = python("-c", HELP)

    assert "warm-start" in done.stdout and "chess" in done.stdout
    assert done.stderr == "0\n"


def test_public_names_that_cost_an_import_are_loaded_when_touched() -> None:
    done = python("-c", EVERY_NAME)

    assert (done.stdout, done.stderr) == ("False True\n", "")


def test_a_name_that_the_package_does_not_have_is_an_attribute_error() -> None:
    import grpo_core

    with pytest.raises(AttributeError, match="module 'grpo_core' has no attribute 'tarin'"):
        _ = grpo_core.tarin


def test_the_contracts_between_modules_are_kept(root: Path) -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache"],
        cwd=root,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_documented_layers_are_those_that_are_checked(root: Path) -> None:
    page = (root / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    drawn = re.search(r"```layers\n(.*?)```", page, re.DOTALL)
    assert drawn is not None
    checked = configparser.ConfigParser()
    checked.read(root / ".importlinter")

    layers = [line for line in checked["importlinter:contract:layers"]["layers"].splitlines() if line]
    assert [re.split(r"\s{2,}", line)[0] for line in drawn[1].splitlines()] == layers


@pytest.mark.parametrize("module", ["data.py", "cli/main.py", "scoring/scorer.py"])
def test_the_linter_refuses_torch_at_the_top_of_a_light_module(root: Path, module: str) -> None:
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("ruff")),
            "check",
            "--no-cache",
            "--output-format=concise",
            f"--stdin-filename=packages/grpo-core/src/grpo_core/{module}",
            "-",
        ],
        cwd=root,
        input='"""A module."""\n\nimport torch\n\nprint(torch)\n',
        capture_output=True,
        text=True,
    )

    assert done.returncode == 1 and "TID253" in done.stdout
