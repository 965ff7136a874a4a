"""What the package's README says about its tasks is true."""

from __future__ import annotations

import re
from pathlib import Path

from grpo_core import TaskConfig, load_task
from grpo_core.data import DatasetConfig
from grpo_tasks_chess.environment.rows import make_row as environment_row
from grpo_tasks_chess.environment.task import METRICS, THRESHOLDS
from grpo_tasks_chess.formats import read_environment_line, read_policy_line, write_policy_line
from grpo_tasks_chess.plugin import grpo_tasks
from grpo_tasks_chess.policy.task import metrics as policy_metrics
from grpo_tasks_chess.rules import play

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_every_task_and_every_option_of_its_own_is_there() -> None:
    common = {*TaskConfig.model_fields, *DatasetConfig.model_fields}
    for task in grpo_tasks():
        assert f"| `chess.{task.name}` |" in README
        for option in set(task.config.model_fields) - common:
            assert re.search(rf"`{option}[=`]", README), (task.name, option)


def test_every_reward_and_every_metric_is_there() -> None:
    for name in ("policy", "environment"):
        for spec in load_task(f"chess.{name}").rewards:
            assert spec.weight == 0 or f"| `{spec.name}` |" in README, spec.name
    task = load_task("chess.policy?rows=packaged&size=1")
    row = task.rows()[0]
    names = [*policy_metrics([task.score(row.gold or "", row)]), *(f"chess_environment/{name}" for name in METRICS)]
    for name in names:
        assert f"`{name}`" in README or f"`…/{name.partition('/')[2]}`" in README, name
    assert ", ".join(map(str, THRESHOLDS[:3])) in README


def test_the_lines_shown_are_lines() -> None:
    (policy,) = re.findall(r"^P: .*$", README, re.MULTILINE)
    assert write_policy_line(*read_policy_line(policy)) == policy
    (environment,) = re.findall(r"^A: .*$", README, re.MULTILINE)
    transition, outcome = read_environment_line(environment)
    assert play(transition.fen, transition.move, transition.history) == outcome
    row = environment_row({"text": environment})
    assert load_task("chess.environment").score(row.gold or "", row).solved
