"""Who may import what: docs/explanation/architecture.md states the laws, these hold them."""

import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest

import grpo_core

HEAVY = ("torch", "transformers", "trl", "peft", "datasets", "vllm", "sympy", "math_verify")


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True)


def test_importing_and_scoring_every_procedural_task_is_free_of_torch() -> None:
    done = python(str(Path(__file__).parent / "programs" / "score_every_task.py"))

    assert done.returncode == 0, done.stderr
    scored, *imported = done.stdout.split()
    assert int(scored) >= 3 * 9 and not {*imported} & {*HEAVY}


HELP = """
import sys
from grpo_sdk.cli.main import main
code = main(["--help"])
print(code, *sorted(set(sys.modules) & {"pydantic", "pluggy", "torch", "rich"}), file=sys.stderr)
"""


def test_help_comes_from_the_remembered_list_of_plugins() -> None:
    assert python("-c", HELP).returncode == 0  # remembers it, where nobody has
    done = python("-c", HELP)

    assert "warm-start" in done.stdout and "chess" in done.stdout
    assert done.stderr == "0\n"


def test_public_names_are_there_and_others_are_attribute_errors() -> None:
    assert all(hasattr(grpo_core, name) for name in grpo_core.__all__)
    with pytest.raises(AttributeError, match="module 'grpo_core' has no attribute 'tarin'"):
        _ = grpo_core.tarin


def test_the_contracts_between_modules_are_kept(root: Path) -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_documented_layers_are_those_that_are_checked(root: Path) -> None:
    page = (root / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    drawn = re.search(r"```layers\n(.*?)```", page, re.DOTALL)
    assert drawn is not None
    checked = configparser.ConfigParser()
    checked.read(root / ".importlinter")

    layers = [line for line in checked["importlinter:contract:layers"]["layers"].splitlines() if line]
    assert [re.split(r"\s{2,}", line)[0] for line in drawn[1].splitlines()] == layers
