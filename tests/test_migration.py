"""The pages of docs/migrate name every option of the other libraries, and settings of ours that mean the same."""

import ast
import inspect
import re
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest
import trl
from wheels import call

from grpo_core.config.keys import ALIASES, REFUSED, keys
from grpo_core.config.trainer import TrainerConfig
from grpo_core.training.trl_settings import LOSS_ARGUMENTS, OURS, algorithm_arguments
from grpo_tasks_gym.foreign.packages import import_library

MIGRATE = Path(__file__).parents[1] / "docs" / "migrate"


@cache
def mapping(page: str) -> Mapping[str, str]:
    """Option of another library -> the cell beside it, of every table of a page whose first column is `theirs`."""
    found: dict[str, str] = {}
    text = (MIGRATE / f"{page}.md").read_text(encoding="utf-8")
    for table in re.findall(r"^\| theirs \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE):
        for row in table.splitlines():
            theirs, ours = row.split(" | ")[:2]
            for name in re.findall(r"`([^`]+)`", theirs):
                assert name not in found, f"{page}: {name} stands twice"
                found[name] = ours
    return found


def test_every_argument_of_trl_is_mapped() -> None:
    arguments = {each.name for each in fields(trl.GRPOConfig)}
    parameters = inspect.signature(trl.GRPOTrainer.__init__).parameters.keys() - {"self"}
    assert set(mapping("trl")) == arguments | parameters


def test_trl_arguments_are_mapped_to_what_the_backend_makes_of_them() -> None:
    page = mapping("trl")
    ours = {name: key for name, key in OURS.items() if key in keys()}
    ours |= {name: f"trainer.{name}" for name in algorithm_arguments(TrainerConfig()) if f"trainer.{name}" in keys()}
    ours |= dict.fromkeys(LOSS_ARGUMENTS.values(), "trainer.loss_args")
    ours |= {"gradient_accumulation_steps": "trainer.prompts_per_step"}  # where the user counts it
    assert {name: page[name] for name, key in ours.items() if f"`{key}" not in page[name]} == {}


def test_what_trl_is_said_to_take_is_not_refused() -> None:
    passed = {name for name, ours in mapping("trl").items() if ours.startswith("`trainer.backend_args`")}
    decided = OURS.keys() | algorithm_arguments(TrainerConfig()).keys()
    assert passed and not passed & decided
    assert not {name for name in passed if name in keys() or f"trainer.{name}" in keys()}


PAGES = ("pippa", "rl-practice", "rl-coding-games", "rookworld")


@pytest.mark.parametrize("word", [*ALIASES, *REFUSED])
def test_names_of_the_reference_systems_are_on_their_pages(word: str) -> None:
    """Those that a run takes, with the setting that it takes them for, and those that it refuses."""
    cells = [mapping(page)[word] for page in PAGES if word in mapping(page)]
    assert cells or word == "reward_shaping"
    assert word in REFUSED or all(ALIASES[word].key in cell for cell in cells)


def test_every_data_set_and_public_function_of_reasoning_gym_is_mapped() -> None:
    reasoning_gym, *modules = map(import_library, ("reasoning_gym", "reasoning_gym.composite", "reasoning_gym.dataset"))
    page = " ".join(mapping("reasoning-gym"))
    public = {name for name in reasoning_gym.__all__ if inspect.isfunction(getattr(reasoning_gym, name))}
    for module in modules:
        public |= {name for name, each in vars(module).items() if getattr(each, "__module__", "") == module.__name__}
    assert public == {name for name in public if name in page or len(name) == 1}


@pytest.mark.network
@pytest.mark.peers
def test_every_option_of_vf_eval_is_mapped(tmp_path: Path) -> None:
    call("uv", "pip", "install", "--no-deps", "--target", str(tmp_path), "verifiers==0.4.0", cwd=tmp_path)
    tree = ast.parse((tmp_path / "verifiers/v1/configs/cli/eval.py").read_text(encoding="utf-8"))
    (config,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "EvalConfig")
    options = {
        each.target.id for each in config.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    assert len(options) > 10 and options <= mapping("verifiers").keys()
    scripts = (next(tmp_path.glob("verifiers-*.dist-info")) / "entry_points.txt").read_text()
    assert set(re.findall(r"^(vf-\w+) =", scripts, re.MULTILINE)) <= mapping("verifiers").keys()
