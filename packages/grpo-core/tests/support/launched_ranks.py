"""Several ranks in processes of their own, started by torchrun, and what their runs must have in common with one."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import rank_runs
import torch
from resumed_runs import log, rollouts
from safetensors.torch import load_file

VARIANT = "ema, adaptive KL and entropy"
STEPS = 3

LESS_EXACT = ("bfloat16", "float16", "float16 that overflows")
"""Cases of `sharded_updates` in mixed precision."""


def jobs(folder: Path, *todo: Mapping[str, Any], size: int = 2) -> subprocess.Popen[str]:
    """Start ranks that do these jobs of `rank_runs`, and may start a stand-in for vLLM's server."""
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={size}", "--rdzv-backend=c10d"]
    command += [
        "--rdzv-endpoint=localhost:0",
        "--monitor-interval=0.1",
        rank_runs.__file__,
        str(folder),
        json.dumps(todo),
    ]
    support = Path(rank_runs.__file__).parent
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{support / 'fake_vllm'}:{support}"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def edited(run: Path, old: str, new: str) -> None:
    path = run / "config.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def run_in(path: Path) -> Path:
    (run,) = path.glob("run_*")
    return run


def weights(run: Path) -> dict[str, torch.Tensor]:
    (path,) = (run / "training_state" / "step_final" / "model").glob("*model.safetensors")
    return load_file(path)


def assert_one(alone: Path, together: Path, *, exact_steps: int = 1) -> None:
    """Two runs differ by the order of sums alone: in all numbers, in what was sampled, in the weights."""
    sampled = [[(line["step"], line["prompt_id"], line["text"]) for line in rollouts(run)] for run in (alone, together)]
    assert sampled[0] == sampled[1]
    assert len(log(together)) == len(log(alone))
    for one, other in zip(log(alone), log(together), strict=True):
        assert one.keys() == other.keys()
        assert [name for name in one if one[name] is None] == [name for name in other if other[name] is None]
        there = {name: value for name, value in one.items() if value is not None}
        assert there == pytest.approx({name: other[name] for name in there}, rel=2e-3, abs=2e-5)
    # The first steps are the same up to the order of a sum; later ones amplify it through Adam.
    for first, other in zip(log(alone)[:exact_steps], log(together), strict=False):
        assert first["loss"] == pytest.approx(other["loss"], rel=1e-6, abs=1e-9)
        assert first["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-5)
    ours, theirs = weights(alone), weights(together)
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert torch.allclose(tensor, theirs[name], atol=5e-4), name
