"""`grpo launch slurm` on a real SLURM of this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_cluster import Cluster, ClusterError, slurm_cluster, until

from grpo_core.tracking.jsonl import read_jsonl
from grpo_core.tracking.runs import find_runs, read_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.xdist_group("slurm")]

SMALL = (
    "--task=math.arithmetic", "--model=tiny", "eval.size=8", "trainer.prompts_per_step=2",
    "trainer.num_generations=4", "trainer.max_completion_length=8",
)  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    try:
        with slurm_cluster() as cluster:
            yield cluster
    except ClusterError as error:
        pytest.skip(str(error))


@pytest.fixture
def launch(cluster: Cluster, tmp_path: Path):  # type: ignore[no-untyped-def] # a command line -> its jobs
    def launch(*words: str) -> list[dict[str, str]]:
        command = [sys.executable, "-m", "grpo_core", "launch", "slurm", "--json", "--gpus=0", "--time=10"]
        command += [*words, *SMALL, f"--output-dir={tmp_path}"]
        done = subprocess.run(command, env=cluster.environment, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        jobs: list[dict[str, str]] = json.loads(done.stdout)
        return jobs

    return launch


def steps(job: dict[str, str]) -> list[int]:
    """Steps that a job's run has logged, over all its starts."""
    runs = find_runs(folder) if (folder := Path(job["folder"])).is_dir() else []
    log = runs[-1] / "logs" / "train_log.jsonl" if runs else None
    return [line["step"] for _, line in read_jsonl(log)] if log is not None and log.is_file() else []


def after_steps(job: dict[str, str]) -> None:
    until(lambda: len(steps(job)) >= 2, 200, lambda: Path(job["log"]).read_text())


def log_of(job: dict[str, str]) -> str:
    return Path(job["log"]).read_text()


def check_went_on(cluster: Cluster, job: dict[str, str], planned: int) -> None:
    assert cluster.ended(job["job"]) == "COMPLETED", log_of(job)
    assert cluster.job(job["job"])["Restarts"] == "1"
    assert "grpo resume" in log_of(job)
    assert steps(job) == [*range(1, planned + 1)]
    assert [read_run(run).state for run in find_runs(Path(job["folder"]))] == ["finished"]


def test_a_run_that_reaches_its_time_limit_is_requeued_and_goes_on(cluster: Cluster, launch) -> None:  # type: ignore[no-untyped-def]
    [job] = launch("--max-steps=60")
    after_steps(job)

    cluster.run("scancel", "--signal=USR2", job["job"])  # as --signal=USR2@120 does before the limit

    check_went_on(cluster, job, 60)


def test_a_preempted_run_is_requeued_and_goes_on(cluster: Cluster, launch) -> None:  # type: ignore[no-untyped-def]
    [job] = launch("--max-steps=60", "--partition=low", "--sbatch=exclusive")
    after_steps(job)

    cluster.run("sbatch", "--partition=high", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 1")

    check_went_on(cluster, job, 60)
    assert "SIGTERM: the run is saved" in log_of(job)


def test_a_cancelled_run_is_saved_and_not_requeued(cluster: Cluster, launch) -> None:  # type: ignore[no-untyped-def]
    [job] = launch("--max-steps=100000")
    after_steps(job)

    cluster.run("scancel", job["job"])

    assert cluster.ended(job["job"]) == "CANCELLED"
    [run] = find_runs(Path(job["folder"]))
    until(lambda: read_run(run).state == "interrupted", 60, lambda: log_of(job))
    assert (run / "training_state" / "step_latest").exists()


def test_an_array_trains_each_seed_in_its_folder(cluster: Cluster, launch) -> None:  # type: ignore[no-untyped-def]
    jobs = launch("--max-steps=2", "--seeds=5,6", "--each=trainer.beta=0.5")

    assert [cluster.ended(job["job"]) for job in jobs] == ["COMPLETED", "COMPLETED"]
    runs = [read_run(*find_runs(Path(job["folder"]))) for job in jobs]
    assert [(run.state, run.settings["seed"], run.settings["trainer.beta"]) for run in runs] == [
        ("finished", 5, 0.5),
        ("finished", 6, 0.5),
    ]


def test_two_nodes_train_one_run_and_go_on_after_a_requeue(cluster: Cluster, launch) -> None:  # type: ignore[no-untyped-def]
    [job] = launch("--max-steps=40", "--nodes=2")
    after_steps(job)

    cluster.run("scancel", "--signal=USR2", job["job"])

    check_went_on(cluster, job, 40)
    assert "ranks 2, gloo" in log_of(job)


def test_a_run_that_fails_is_not_requeued(cluster: Cluster, launch) -> None:  # type: ignore[no-untyped-def]
    [job] = launch("--max-steps=2", "--adapter=./nowhere")

    assert cluster.ended(job["job"]) == "FAILED"
    assert cluster.job(job["job"])["Restarts"] == "0"
    assert "--adapter ./nowhere" in log_of(job)


def test_a_sweep_is_an_array_that_goes_on_where_it_was(cluster: Cluster, tmp_path: Path) -> None:
    def sweep(*words: str) -> str:
        small = [word.replace("--", "") for word in SMALL]
        command = [sys.executable, "-m", "grpo_core", "sweep", *small, "trainer.beta=0,0.1", "trainer.max_steps=80"]
        command += ["--output-dir", str(tmp_path / "s"), "--json", *words]
        done = subprocess.run(command, env=cluster.environment, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def runs() -> list[Path]:
        return sorted(tmp_path.glob("s/runs/0*/run_*"))

    def states() -> list[str]:
        shown = json.loads(sweep("--show"))
        return [run["state"] for each in shown["configurations"] for run in each["runs"]]

    options = "--gpus 0 --time 10 --max-requeues 0"
    jobs = json.loads(sweep("--slurm", options))
    assert set(jobs) == {"001", "002"}
    assert json.loads(sweep("--slurm", options)) == {}, "they are in the queue already"
    until(lambda: len(runs()) == 2 and all(len(steps({"folder": str(run.parent)})) > 2 for run in runs()), 200, states)
    cluster.run("scancel", *jobs.values())
    assert [cluster.ended(job) for job in jobs.values()] == ["CANCELLED", "CANCELLED"]
    until(lambda: states() == ["interrupted", "interrupted"], 60, states)

    again = json.loads(sweep("--slurm", options))
    assert [cluster.ended(job) for job in again.values()] == ["COMPLETED", "COMPLETED"]
    assert (states(), len(runs())) == (["finished", "finished"], 2), "resumed in their folders"
