"""`grpo launch sky`: the task, its scripts, and what SkyPilot itself says of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from grpo_core.cli.main import main
from grpo_core.launch import sky

CLUSTER = ("--gpus=A100:8", "--nodes=2", "--spot", "--bucket=s3://mine/runs", "--resource=infra=aws/us-east-1")

HOSTILE = "it's $(touch hacked) `touch hacked`; touch hacked"

FAKE_GRPO = """#!/bin/bash
printf '%s\\n' "$@" > ~/words
state=~/grpo-runs/sums/run_2/training_state
mkdir -p "$state/step_$STEP"
echo 1 > "$state/step_$STEP/checksums.json"
ln -sfn "step_$STEP" "$state/step_latest"
eval "$THEN"
"""

FAKE_RSYNC = """#!/bin/bash
case "${@: -1}" in */bucket/*) [ -z "$BROKEN" ] || exit 1;; esac
mkdir -p "${@: -1}" && cd "${@: -2:1}" || exit 1
find . -name '.?*' -prune -o -type f -exec cp -p --parents -t "${@: -1}" {} +
"""
"""Copies files, neither hidden ones nor links, and deletes nothing."""

VALIDATE = """
import sys, sky
for path in sys.argv[1:]:
    try:
        task = sky.Task.from_yaml(path)
        task.validate()
    except ValueError as error:
        print("refused", error)
        continue
    [resources] = task.resources
    print(task.num_nodes, resources.accelerators, resources.use_spot, resources.infra.cloud, *task.storage_mounts)
"""

CATALOG = "AcceleratorName,AcceleratorCount,Clouds\nL4,1,AWS\nA100,8,AWS\n"
"""Of SkyPilot's names of GPUs, which it would download."""


def task_of(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, str]:
    code = main(["launch", "sky", "--dry-run", *words, "trainer.prompts_per_step=16"])
    printed, problem = capsys.readouterr()
    assert code == 0, problem
    task = yaml.safe_load(printed)
    assert isinstance(task, dict)
    for script in (task["setup"], task["run"]):
        command = [Path(sys.executable).parent / "shellcheck", "--shell=bash", "--exclude=SC2016", "-"]
        done = subprocess.run(command, input=script, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
    return task


def test_a_task_of_one_machine(capsys: pytest.CaptureFixture[str]) -> None:
    task = task_of(capsys, "--gpus=L4:2", "--name=sums", "--package=grpo-core")
    assert {*task} == {"name", "resources", "workdir", "setup", "run"}
    assert task["resources"] == {"accelerators": "L4:2"}
    assert task["run"].endswith('~/grpo-env/bin/grpo "${words[@]}" --nproc 2\n')
    assert "--python ~/grpo-env/bin/python grpo-core\n" in task["setup"]


def test_a_task_of_several_machines_with_a_bucket(capsys: pytest.CaptureFixture[str]) -> None:
    task = task_of(capsys, *CLUSTER)
    assert task["num_nodes"] == 2
    assert task["resources"] == {"accelerators": "A100:8", "use_spot": True, "infra": "aws/us-east-1"}
    assert task["file_mounts"] == {"/checkpoints": {"source": "s3://mine/runs", "mode": "MOUNT"}}
    assert "--nnodes=2 \\\n  --nproc-per-node=8 \\\n" in task["run"]


class Cloud:
    """A bucket and machines with a fake grpo, and a fake rsync where there is none or it is to fail."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.saved = folder, folder / "bucket" / "sums"
        self.saved.parent.mkdir()
        monkeypatch.setattr(sky, "MOUNT", str(self.saved.parent))

    def run(self, machine: str, step: int, *, then: str = ":", is_broken: bool = False) -> list[str]:
        """Run the task on a machine, where grpo saves a step and then does something; grpo's words."""
        script = sky.run_script(["run", "--task", HOSTILE], sky.SkyOptions(bucket="s3://mine", name="sums"))
        home = self.folder / machine
        programs = {home / "grpo-env" / "bin" / "grpo": FAKE_GRPO}
        if is_broken or shutil.which("rsync") is None:
            programs[home / "bin" / "rsync"] = FAKE_RSYNC
        for path, text in programs.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        variables = {"PATH": f"{home / 'bin'}:{os.environ['PATH']}", "HOME": str(home), "SKYPILOT_NODE_RANK": "0"}
        variables |= {"STEP": str(step), "THEN": then, "BROKEN": "1" if is_broken else ""}
        done = subprocess.run(["bash", "-c", script], cwd=home, env=variables, capture_output=True, text=True)
        assert (done.returncode != 0) == is_broken, done.stderr
        return (home / "words").read_text().splitlines()

    def steps(self) -> list[str]:
        """The checkpoints in the bucket."""
        return sorted(str(path.relative_to(self.saved)) for path in self.saved.glob("run_*/training_state/step_*"))


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    return Cloud(tmp_path, monkeypatch)


def test_a_run_goes_on_from_the_bucket_on_another_machine(cloud: Cloud) -> None:
    words = cloud.run("first", 4)
    assert words == ["run", "--task", HOSTILE, "--output-dir", str(cloud.folder / "first" / "grpo-runs" / "sums")]
    assert (cloud.saved / "run_2" / "training_state" / "step_4" / "checksums.json").is_file()
    words = cloud.run("second", 8)
    run = cloud.folder / "second" / "grpo-runs" / "sums" / "run_2"
    assert words == ["resume", str(run), "--allow", "hardware"]
    assert not [*cloud.folder.rglob("hacked")]


def test_the_bucket_loses_what_the_run_has_deleted_and_nothing_else(cloud: Cloud) -> None:
    first, fourth, eighth = (f"run_{run}/training_state/step_{step}" for run, step in ((1, 3), (2, 4), (2, 8)))
    (cloud.saved / first).mkdir(parents=True)
    (cloud.saved / first / "checksums.json").write_text("1")
    cloud.run("first", 4)
    prune = "rm -r $state/step_4"
    assert cloud.steps() == [first, fourth]
    cloud.run("second", 8, then=prune, is_broken=True)
    assert cloud.steps() == [first, fourth], "the copy has failed"
    cloud.run("third", 8, then="rm -r ~/grpo-runs/sums/*")
    assert cloud.steps() == [first, fourth], "the machine has no runs"
    cloud.run("fourth", 8, then="rm -r $state/step_*")
    assert cloud.steps() == [first, fourth], "the run has no other checkpoint"
    cloud.run("fifth", 8, then=f"{prune} ~/grpo-runs/sums/run_1")
    assert cloud.steps() == [first, eighth], "nor is a run lost that the machine does not have"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--gpus", "A100:0"), "give a name and a number"),
        (("--gpus", "8xA100"), "give a name and a number"),
        (("--spot",), "--spot needs --bucket"),
        (("--bucket", "s3:mine"), "give the address of a bucket: s3://"),
        (("--bucket", "ftp://mine"), "give the address of a bucket: s3://"),
        (("--name", "A b"), "use lower-case letters"),
        (("--resource", "infra"), "give NAME=VALUE"),
        (("--gpu", "L4"), "Did you mean '--gpus'?"),
        (("--nodes", "3"), "3 ranks cannot share"),
        ((), "there is no sky here: uv tool install"),
    ],
)
def test_mistakes_are_one_line(
    words: Sequence[str], problem: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert main(["launch", "sky", *words]) == 2
    assert problem in capsys.readouterr().err


def test_sky_is_given_the_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "sky"
    fake.write_text(
        f'#!/bin/sh\necho "$@" > {tmp_path}/words\ncat "$3" > {tmp_path}/task || cat "$4" > {tmp_path}/task\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert main(["launch", "sky", "--spot", "--bucket=gs://mine", "--name=sums"]) == 0
    assert (tmp_path / "words").read_text().startswith("jobs launch /")
    assert yaml.safe_load((tmp_path / "task").read_text())["name"] == "sums"


@pytest.mark.network
@pytest.mark.timeout(900)
def test_skypilot_validates_the_tasks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "UV_PYTHON"}
    python = tmp_path / "sky" / "bin" / "python"
    for command in (["venv", "-q", tmp_path / "sky"], ["pip", "install", "-q", "--python", python, "skypilot"]):
        # In another folder: uv would hold SkyPilot to the constraints of this workspace, and so to an old version.
        subprocess.run(["uv", *command], cwd=tmp_path, env=environment, check=True)
    (catalog := tmp_path / ".sky" / "catalogs" / "v8" / "common").mkdir(parents=True)
    (catalog / "accelerators.csv").write_text(CATALOG)
    tasks = []
    for number, words in enumerate([["--gpus=L4"], [*CLUSTER[:4], "--resource=infra=aws"]]):
        assert main(["launch", "sky", "--dry-run", *words, "trainer.prompts_per_step=16"]) == 0
        tasks.append(tmp_path / f"{number}.yaml")
        tasks[-1].write_text(capsys.readouterr().out)
    tasks.append(tmp_path / "wrong.yaml")
    tasks[-1].write_text(tasks[1].read_text().replace("num_nodes: 2", "num_nodes: two"))

    home = {**environment, "HOME": str(tmp_path), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    done = subprocess.run([python, "-c", VALIDATE, *tasks], cwd=tmp_path, env=home, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr[-2000:]
    one, several, wrong = done.stdout.strip().splitlines()[:3]
    assert one == "1 {'L4': 1} False None"
    assert several == "2 {'A100': 8} True AWS /checkpoints"
    assert wrong.startswith("refused")
