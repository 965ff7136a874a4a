"""Who may import what: docs/explanation/architecture.md states the laws, these hold them."""

import configparser
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import grpo_core
import grpo_sdk

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
    for package in (grpo_core, grpo_sdk):
        assert all(hasattr(package, name) for name in package.__all__)
        with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'tarin'"):
            _ = package.tarin
    assert grpo_core.Task is grpo_sdk.Task and {*grpo_core.__all__} > {*grpo_sdk.__all__}


@pytest.mark.parametrize("name", ["data", "interop", "interop.verl", "judges", "rewards", "testing.fuzz"])
def test_a_second_name_is_the_same_module_and_leaves_its_spec_alone(name: str) -> None:
    second = importlib.import_module(f"grpo_core.{name}")
    first = importlib.import_module(f"grpo_sdk.{name.replace('testing', 'check')}")
    assert second is first and first.__spec__ is not None and first.__spec__.name == first.__name__


def test_a_second_name_can_be_run() -> None:
    subprocess.run([sys.executable, "-m", "grpo_core.interop.verl"], check=True)


def test_the_documented_layers_are_those_that_are_checked(root: Path) -> None:
    page = (root / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    drawn = re.findall(r"```layers\n(.*?)```", page, re.DOTALL)
    checked = configparser.ConfigParser()
    checked.read(root / ".importlinter")

    for name, picture in zip(("layers", "sdk"), drawn, strict=True):
        layers = [line for line in checked[f"importlinter:contract:{name}"]["layers"].splitlines() if line]
        assert [re.split(r"\s{2,}", line)[0] for line in picture.splitlines()] == layers
