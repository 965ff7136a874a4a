"""The built-in tasks earn what they should: the fuzzer finds nothing in them that they don't declare."""

from pathlib import Path

import pytest
from dataset_rows import our_specs, with_rows
from harbor_folders import COUNT, write_folder

from grpo_sdk import load_task
from grpo_sdk.check.fuzz import fuzz

FAST = ("math.comparison", "math.countdown", "chess.policy")


def check(spec: str, attacks: int = 200) -> None:
    report = fuzz(load_task(spec), attacks, workers=2)
    assert not report.failures, [(each.kind, each.attack, each.completion[:200], each.why) for each in report.failures]


@pytest.mark.parametrize(
    "spec", [pytest.param(spec, marks=() if spec in FAST else pytest.mark.slow) for spec in our_specs()]
)
def test_a_built_in_task_pays_for_right_answers(spec: str, tmp_path: Path) -> None:
    check(with_rows(spec, tmp_path))


@pytest.mark.slow
def test_a_task_folder_of_harbor_pays_for_right_answers(tmp_path: Path) -> None:
    check(f"harbor.task?path={write_folder(tmp_path, COUNT)}", attacks=60)
