"""The model so far of a warm start: what a kill, a full disk and the time leave in its folder."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from resumed_runs import TASKS
from small_policies import saved_model

from grpo_core.callbacks import Callback
from grpo_core.policy.load import load_policy
from grpo_core.training import model_folder
from grpo_core.training.model_folder import SAVE_AFTER_S, ModelFolder
from grpo_core.training.warm_start import RECORD, warm_start

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inside TRL and datasets


@pytest.fixture
def task(tmp_path: Path) -> str:
    (tmp_path / "tasks.py").write_text(TASKS)
    return f"{tmp_path / 'tasks.py'}:letters"


def test_a_killed_warm_start_leaves_the_model_of_its_last_save(task: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["--task", task, "--preset", "tiny", "--out", str(out), "--batch-size", "2", "--max-steps", "5000"]
    command = [sys.executable, "-c", "import sys; from grpo_core.cli.main import main; sys.exit(main())"]
    command += ["warm-start", *words, "--save-every", "1", "--device", "cpu", "--quiet"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    seen = set()
    while len(seen) < 3:  # the folder is read while it is replaced
        assert process.poll() is None, process.communicate()
        if out.exists():
            seen.add(json.loads((out / RECORD).read_text())["steps"])
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()

    record = json.loads((out / RECORD).read_text())
    assert record["steps"] >= max(seen) and record["interrupted"] and record["evaluation"] == {}
    assert load_policy(str(out), device="cpu").model.dtype == torch.float32
    again = warm_start(task, tmp_path / "next", model=str(out), max_steps=1, eval_size=1, device="cpu")
    assert again["start"]["steps"] == record["steps"]


class Watch(Callback):
    """Notes warnings, and the steps that the folder's record has when a later step is reported."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.warnings, self.steps = folder, list[str](), list[int | None]()

    def on_warning(self, message: str) -> None:
        self.warnings.append(message)

    def on_progress(self, what: str, done: int, total: int) -> None:
        if what.startswith("supervised"):
            record = self.folder / RECORD
            self.steps.append(json.loads(record.read_text())["steps"] if record.exists() else None)


def test_a_save_that_fails_is_told_and_the_training_goes_on(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = [0, 0, errno.ENOSPC]
    monkeypatch.setattr("grpo_core.checkpoints.reservation.allocate", lambda file, size: held.pop(0) if held else 0)
    watch = Watch(tmp_path / "out")
    options: dict[str, Any] = {"max_steps": 5, "batch_size": 2, "eval_size": 1, "device": "cpu", "save_every": 2}
    record = warm_start(task, watch.folder, preset="tiny", save_dtype="float16", callbacks=[watch], **options)
    assert watch.steps == [None, None, 2, 2, 4]
    assert [each for each in watch.warnings if each.startswith("the model needs")] == [watch.warnings[0]]
    assert watch.warnings[0].endswith(f"The training goes on; what {watch.folder} has, stays.")
    assert not record["interrupted"] and len(record["evaluation"]) == 1
    assert json.loads((watch.folder / RECORD).read_text()) == record
    assert json.loads((watch.folder / "config.json").read_text())["dtype"] == "float16"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "tasks.py"]


def test_a_folder_that_was_there_stays_the_same_one(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path / "out")
    before = (tmp_path / "out").stat().st_ino
    options: dict[str, Any] = {"max_steps": 2, "batch_size": 2, "eval_size": 1, "device": "cpu", "save_every": 1}
    record = warm_start(task, ".", preset="tiny", **options)
    assert (tmp_path / "out").stat().st_ino == before
    assert json.loads(Path(RECORD).read_text()) == record and load_policy(".", device="cpu")
    assert not [path for path in Path().iterdir() if path.name.startswith(".")]


def test_the_model_is_written_every_ten_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved_model(tmp_path / "model")
    now = 0.0
    monkeypatch.setattr(model_folder.time, "monotonic", lambda: now)
    steps = []
    with ExitStack() as resources:
        policy = load_policy(str(tmp_path / "model"), device="cpu")
        folder = ModelFolder(tmp_path / "out", policy, 0, None, resources, pytest.fail)
        for step in range(1, 40):
            now = step * SAVE_AFTER_S / 10
            folder.after_step(step, lambda step=step: steps.append(step) or {"steps": step})  # type: ignore[misc]
    assert steps == [10, 20, 30]
    assert json.loads((tmp_path / "out" / RECORD).read_text()) == {"steps": 30}
