"""`grpo launch slurm` on a real SLURM of this machine."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import Cluster, ClusterError, slurm_cluster, until

from grpo_core.tracking.runs import find_runs, read_run
from grpo_sdk.records.jsonl import read_jsonl

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


def grpo(cluster: Cluster, folder: Path, *words: str) -> Any:
    """What a command prints, as data."""
    command = [sys.executable, "-m", "grpo_core", *words, f"--output-dir={folder}", "--json"]
    done = subprocess.run(command, env=cluster.environment, cwd=folder.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def after_steps(cluster: Cluster, folder: Path, *words: str) -> dict[str, str]:
    """Launch a run, and wait until it has logged steps."""
    [job] = grpo(cluster, folder, "launch", "slurm", "--gpus=0", "--time=10", *words, *SMALL)
    until(lambda: len(steps(Path(job["folder"]))) >= 2, 200, lambda: log_of(job))
    return dict(job)


def steps(folder: Path) -> list[int]:
    """Steps that a job's run has logged, over all its starts."""
    runs = find_runs(folder) if folder.is_dir() else []
    log = runs[-1] / "logs" / "train_log.jsonl" if runs else None
    return [line["step"] for line in read_jsonl(log)] if log is not None and log.is_file() else []


def log_of(job: dict[str, str]) -> str:
    return Path(job["log"]).read_text()


def check_went_on(cluster: Cluster, job: dict[str, str], planned: int) -> None:
    assert cluster.ended(job["job"]) == "COMPLETED", log_of(job)
    assert cluster.job(job["job"])["Restarts"] == "1"
    assert "grpo resume" in log_of(job)
    assert steps(Path(job["folder"])) == [*range(1, planned + 1)]
    assert [read_run(run).state for run in find_runs(Path(job["folder"]))] == ["finished"]


def test_a_preempted_run_is_requeued_and_goes_on(cluster: Cluster, tmp_path: Path) -> None:
    job = after_steps(cluster, tmp_path / "runs", "--max-steps=60", "--partition=low", "--sbatch=exclusive")
    cluster.run("sbatch", "--partition=high", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 1")
    check_went_on(cluster, job, 60)
    assert "SIGTERM: the run is saved" in log_of(job)


def test_two_nodes_train_one_run_and_go_on_after_their_time_limit(cluster: Cluster, tmp_path: Path) -> None:
    job = after_steps(cluster, tmp_path / "runs", "--max-steps=40", "--nodes=2")
    cluster.run("scancel", "--signal=USR2", job["job"])  # as --signal=USR2@120 does before the limit
    check_went_on(cluster, job, 40)
    assert "ranks 2, gloo" in log_of(job)
