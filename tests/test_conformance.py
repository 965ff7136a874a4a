"""The law of tasks: each one of ours holds every check of `grpo check`, or says why not."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from dataset_rows import our_specs, with_rows

from grpo_sdk import BoundTask, load_task
from grpo_sdk.check.table import check_task
from grpo_sdk.check.texts import JUNK
from grpo_sdk.plugins.host import PluginHost
from grpo_sdk.plugins.task_objects import send
from grpo_sdk.task.exemptions import CHECKS

SPECS = our_specs()
FAST = [name for name in CHECKS if name not in ("determinism", "imports", "latency")]
"""Checks that need no process but those that score; the others are tried on all tasks at once, below."""


def task_of(spec: str, folder: Path) -> BoundTask:
    """A task with rows, which gives programs little time."""
    task = load_task(with_rows(spec, folder))
    return task.with_options(timeout_s=1) if "timeout_s" in type(task.config).model_fields else task


@pytest.mark.parametrize("spec", SPECS)
def test_a_task_holds_the_checks_on_few_rows(spec: str, tmp_path: Path, few_rows: Callable[[int], None]) -> None:
    few_rows(512 if spec == "code.prediction_game" else 8)  # few of its rows have demos
    report = check_task(task_of(spec, tmp_path), rows=2, checks=FAST)
    assert not report.failures
    assert report.rows > 0


PROBE = """
import json, sys
from grpo_sdk.check import worker
worker.REPEATS = 1
print(json.dumps([worker.probe(**request) for request in json.load(sys.stdin)]))
"""


def test_rows_prompts_and_scores_are_the_same_in_every_process_and_nothing_heavy_is_imported(tmp_path: Path) -> None:
    requests = []
    for place, spec in enumerate(SPECS):
        (folder := tmp_path / str(place)).mkdir()
        task = task_of(spec, folder).with_options(size=2 if spec == "chess.puzzle" else 4)
        texts = [task.rows()[0].gold or "", *list(JUNK.values())[:4]]
        predictions = None if task.opponent is None else ["1"] * task.opponent.samples
        requests.append(
            {"sent": send(task), "rows": 4, "texts": texts, "places": [0] * len(texts), "predictions": predictions}
        )

    def answers(hash_seed: str) -> list[dict[str, object]]:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", PROBE]
        done = subprocess.run(command, env=environment, input=json.dumps(requests), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found: list[dict[str, object]] = json.loads(done.stdout)
        return found

    for spec, first, second in zip(SPECS, answers("1"), answers("2"), strict=True):
        assert [first[name] for name in ("rows", "prompts", "scores")] == [
            second[name] for name in ("rows", "prompts", "scores")
        ], spec
        assert first["again"] == first["scores"], spec
        assert first["heavy"] == [], spec


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("spec", SPECS)
def test_a_task_holds_all_checks(spec: str, tmp_path: Path) -> None:
    assert not check_task(load_task(with_rows(spec, tmp_path))).failures


def test_the_tasks_are_ours_and_no_completion_abstains_by_taking_too_long() -> None:
    host = PluginHost(only=("math", "code", "chess", "games"))
    ours = {name: task.on_timeout for plugin in host.names for name, task in host.tasks(plugin).items()}
    assert ours.keys() <= {spec.partition("?")[0] for spec in SPECS}
    assert len(ours) >= 20 and {*ours.values()} == {"fail"}, ours
