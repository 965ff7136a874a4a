"""The temporary checkpoint that a run writes every so many minutes, where no steps are given for one."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from heard import Heard
from resumed_runs import STEPS, assert_same, config

from grpo_core import resume, train
from grpo_core.checkpoints import CheckpointStore
from grpo_core.checkpoints.names import Step
from grpo_sdk.callbacks import StepRecord

AFTER_EACH_STEP = {"save_minutes": 1e-6}


@pytest.fixture(autouse=True)
def takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo_core.training.run_checkpoints.LARGEST_SHARE", 1e9)


def checkpoints(run: Path) -> list[str]:
    return sorted(path.name for path in run.glob("training_state/*"))


class Watch(Heard):
    """Notes the checkpoints that there are when a step is reported, and copies the run after step 3."""

    def __init__(self, runs: Path) -> None:
        super().__init__()
        self.runs, self.seen = runs, list[list[str]]()

    def on_step(self, record: StepRecord) -> None:
        (run,) = self.runs.glob("run_*")
        self.seen.append(checkpoints(run))
        if record.step == 4:
            shutil.copytree(run, self.runs / "killed", symlinks=True)


def test_a_killed_run_goes_on_from_it_and_at_the_end_it_is_gone(folder: Path, tmp_path: Path) -> None:
    watch, killed = Watch(tmp_path), tmp_path / "killed"
    run = train(config(folder, tmp_path, "plain", **AFTER_EACH_STEP), [watch]).run_dir
    assert watch.seen == [[], *([f"step_{step}", "step_latest"] for step in range(1, STEPS))]
    assert checkpoints(run) == ["step_final", "step_latest"]

    assert checkpoints(killed) == ["step_3", "step_latest"]
    assert resume(killed, stop_after=1).interrupted, "at a step that has one of both kinds"
    assert checkpoints(killed) == ["step_4", "step_latest"]
    assert not resume(killed).interrupted
    assert checkpoints(killed) == ["step_4", "step_final", "step_latest"]
    assert_same(run, killed)


@pytest.mark.parametrize(("settings", "left"), [({}, []), ({**AFTER_EACH_STEP, "save_every": 2}, ["step_2", "step_4"])])
def test_there_is_none_early_or_beside_others(folder: Path, tmp_path: Path, settings: Any, left: list[str]) -> None:
    watch = Watch(tmp_path)
    run = train(config(folder, tmp_path, "plain", **settings), [watch]).run_dir
    assert {name for seen in watch.seen for name in seen} <= {*left, "step_latest"}
    assert checkpoints(run) == [*left, "step_final", "step_latest"]


def test_a_full_disk_ends_them_and_not_the_run(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writing, tried = CheckpointStore.writing, list[Step]()

    @contextmanager
    def full_at_2(store: CheckpointStore, step: Step) -> Iterator[Path]:
        with writing(store, step) as path:
            yield path
            tried.append(step)
            if step == 2:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(CheckpointStore, "writing", full_at_2)
    watch = Watch(tmp_path)
    result = train(config(folder, tmp_path, "plain", **AFTER_EACH_STEP), [watch])
    assert tried == [1, 2, "final"]
    (said,) = [each for each in watch.warnings if "cannot save step_2" in each]
    assert said.endswith("The run goes on, and tries no other before its end.")
    assert watch.seen[-1] == ["step_1", "step_latest"] and checkpoints(result.run_dir) == ["step_final", "step_latest"]
    assert result.summary["steps"] == STEPS
