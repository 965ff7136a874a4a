"""What the package's README says about its tasks is true."""

import re
from pathlib import Path

import pytest

from grpo_sdk import load_task
from grpo_tasks_code.execution import metrics as execution_metrics
from grpo_tasks_code.mbpp.environment import MBPPEnvironment
from grpo_tasks_code.prediction_game.game import metrics as game_metrics
from grpo_tasks_code.prediction_game.gates import MODULES

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
HOW_TO = (Path(__file__).parents[3] / "docs" / "how-to" / "code-tasks.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["execution", "prediction_game", "mbpp"])
def test_defaults_are_as_said(name: str) -> None:
    config = load_task(f"code.{name}").config
    (rows,) = re.findall(rf"^\| `code\.{name}` \| .*\n(?:\| \| .*\n)*", README.split("## Options")[1], re.MULTILINE)
    said = dict(re.findall(r"`(\w+)=([-\d.]+)`", rows))
    for option, value in said.items():
        if option != "shots":  # an example
            assert float(getattr(config, option)) == float(value), option
    assert len(said) >= 2


def test_metrics_and_modules_are_named() -> None:
    for name in (*execution_metrics([]), *game_metrics([]), "prediction_game/valid_rate", "prediction_game/win_rate"):
        assert name.rpartition("/")[2] in README and name.partition("/")[0] + "/" in README, name
    (listed,) = re.findall(r"it imports no more than\s+(.*?),\s+and uses neither", README, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", listed)) == MODULES


def test_every_variable_of_mbpp_is_in_the_how_to() -> None:
    for field in MBPPEnvironment.model_fields:
        assert f"`MBPP_{field.upper()}`" in HOW_TO, field
