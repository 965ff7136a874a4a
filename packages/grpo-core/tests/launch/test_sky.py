"""`grpo launch sky`: the task and its scripts."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from grpo_core.tracking.runs import find_runs, read_run
from grpo_sdk.cli.main import main

CLUSTER = ("--gpus=A100:8", "--nodes=2", "--spot", "--volume=runs", "trainer.prompts_per_step=16")


def task_of(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["launch", "sky", "--dry-run", "--name=sums", *words]) == 0
    return dict(yaml.safe_load(capsys.readouterr().out))


def test_a_task_has_machines_and_a_volume(
    capsys: pytest.CaptureFixture[str], check_shell: Callable[[str], None]
) -> None:
    task = task_of(capsys, *CLUSTER, "--task", "it's $(a) `b`")
    for script in (task["setup"], task["run"]):
        check_shell(script)
    assert (task["num_nodes"], task["volumes"]) == (2, {"/runs": "runs"})
    assert task["resources"] == {"accelerators": "A100:8", "use_spot": True}
    assert task["run"].endswith("--nproc 8\n") and "runs=/runs/sums" in task["run"]
    assert task_of(capsys)["resources"] == {}
    assert "grpo-core[gcs]" in task_of(capsys, "--bucket=gs://mine/")["setup"]


def test_sky_is_given_the_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (sky := tmp_path / "sky").write_text('#!/bin/sh\necho "$@" > "$0.words"\ncat "$3" > "$0.task"\nexit 3\n')
    sky.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert main(["launch", "sky", "--spot", "--bucket=gs://mine", "--name=sums"]) == 3
    assert (tmp_path / "sky.words").read_text().startswith("jobs launch /")
    assert yaml.safe_load((tmp_path / "sky.task").read_text())["name"] == "sums"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_another_machine_continues_from_the_bucket(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--task=math.arithmetic", "--model=tiny", "--max-steps=3", "--stop-after=2", "eval.size=8"]
    script = task_of(capsys, "--bucket=s3://mine", *words)["run"].replace("s3://mine", f"file:{tmp_path}/bucket")
    (tmp_path / "bucket" / "sums").mkdir(parents=True)
    for machine, code, state in (("first", 130, "interrupted"), ("second", 0, "finished")):
        (home := tmp_path / machine).mkdir()
        (home / "grpo-env").symlink_to(sys.prefix)
        variables = {**os.environ, "HOME": str(home), "SKYPILOT_NUM_NODES": "1"}
        done = subprocess.run(["bash", "-c", script], cwd=home, env=variables, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        [run] = find_runs(home / "grpo-runs" / "sums")
        assert read_run(run).state == state
