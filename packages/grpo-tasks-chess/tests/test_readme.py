"""What the package's README says about its tasks is true."""

import re
from pathlib import Path

from grpo_sdk import load_task
from grpo_tasks_chess.environment.rows import make_row as environment_row
from grpo_tasks_chess.formats import read_environment_line, read_policy_line, write_policy_line
from grpo_tasks_chess.rules import play

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_lines_shown_are_lines() -> None:
    (policy,) = re.findall(r"^P: .*$", README, re.MULTILINE)
    assert write_policy_line(*read_policy_line(policy)) == policy
    (environment,) = re.findall(r"^A: .*$", README, re.MULTILINE)
    transition, outcome = read_environment_line(environment)
    assert play(transition.fen, transition.move, transition.history) == outcome
    row = environment_row({"text": environment})
    assert load_task("chess.environment").score(row.gold or "", row).solved
