"""`grpo sweep --slurm` without a cluster; test_slurm_cluster.py has one."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

SWEEP = ("sweep", "task=math.arithmetic", "model=tiny", "trainer.beta=0,0.1", "seed=0,1", "--output-dir", "s")


@pytest.fixture(autouse=True)
def queue(sbatch: Path) -> Path:
    """A file with what squeue prints."""
    (sbatch / "queue").write_text("4711_0\n4711_1\n4711_2\n4711_3\n")
    return sbatch / "queue"


@pytest.fixture
def grpo(call: Callable[..., Any]) -> Callable[..., Any]:
    return partial(call, *SWEEP)


def test_what_is_missing_is_submitted_once(grpo: Callable[..., Any], queue: Path) -> None:
    from submitit.core.utils import DelayedSubmission

    jobs = grpo("--slurm", "--time 30 --gpus 0 --parallel 2 --partition cpu")
    assert jobs == {
        "001_seed_0": "4711_0", "002_seed_0": "4711_1", "001_seed_1": "4711_2", "002_seed_1": "4711_3",
    }  # fmt: skip
    script = Path("seen/script").read_text()
    assert "#SBATCH --array=0-3%2" in script and "#SBATCH --partition=cpu" in script
    job = DelayedSubmission.load(Path("s/slurm/4711_1/4711_1_submitted.pkl").absolute()).function
    assert job.folder == Path("s/runs/002_seed_0").absolute()
    assert job.words == ["run", "task=math.arithmetic", "model=tiny", "trainer.beta=0.1", "seed=0"]
    assert grpo("--slurm", "--time 30") == {}, "all of them wait"
    shown = grpo("--show")
    assert {run["state"] for each in shown["configurations"] for run in each["runs"]} == {"queued"}

    queue.write_text("4711_1\n")
    assert set(grpo("--slurm", "--time 30")) == {"001_seed_0", "001_seed_1", "002_seed_1"}
    queue.unlink()
    assert "squeue failed" in grpo("--slurm", "--time 30", code=2)


def test_a_sweep_of_sharded_runs_is_repeated_by_slurm_alone_and_shown_here(
    grpo: Callable[..., Any], queue: Path
) -> None:
    odd = ("trainer.sharding=hybrid", "trainer.shard_size=3", "--slurm", "--time 30 --nodes 2 --gpus 4")
    assert "8 processes cannot be divided into groups of 3" in grpo(*odd, code=2)
    assert len(grpo("trainer.sharding=full", "--slurm", "--time 30 --gpus 2")) == 4
    assert "each run of a sweep is one. On a SLURM cluster it is N" in grpo("trainer.sharding=full", code=2)
    for name in ("001_seed_0", "001_seed_1", "002_seed_0", "002_seed_1"):
        run = Path("s/runs", name, "run_1")
        run.mkdir(parents=True)
        (run / "config.yaml").write_text("task: math.arithmetic\n")
        result = {"solved_rate": 0.5, "ci_low": 0.4, "ci_high": 0.6, "n": 16}
        (run / "summary.json").write_text(json.dumps({"tasks": {"math.arithmetic": {"final": result}}}))
    queue.write_text("")  # no job waits any more
    shown = grpo("trainer.sharding=full")
    assert {run["state"] for each in shown["configurations"] for run in each["runs"]} == {"finished"}
