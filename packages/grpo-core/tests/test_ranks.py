"""Two ranks on the CPU are one: same rollouts, loss and gradient, weights up to the order of a sum."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from test_resume import TASKS, config, log

from grpo_core import train
from grpo_core.policy.fresh import fresh_model
from grpo_core.training.resume import resume
from grpo_core.training.world import World

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ranks")
    model, tokenizer = fresh_model("tiny", seed=0)
    model.save_pretrained(path / "model")
    tokenizer.save_pretrained(path / "model")
    (path / "tasks.py").write_text(TASKS)
    return path


def launched(*arguments: str, size: int = 2) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={size}", "--rdzv-backend=c10d"]
    command += ["--rdzv-endpoint=localhost:0", "--monitor-interval=0.1", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def two_ranks(folder: Path, out: Path, variant: str, **settings: int) -> Path:
    words = [f"{name}={value}" for name, value in settings.items()]
    process = launched(str(Path(__file__).with_name("rank_runs.py")), str(folder), str(out), variant, *words)
    _, stderr = process.communicate(timeout=170)
    assert process.returncode == 0, stderr
    (run,) = out.glob("run_*")
    return run


def weights(run: Path) -> dict[str, torch.Tensor]:
    (path,) = (run / "training_state" / "step_final" / "model").glob("*model.safetensors")
    return load_file(path)


@pytest.mark.parametrize(
    "variant",
    [
        "ema, adaptive KL and entropy",
        pytest.param("two iterations, two steps a batch", marks=pytest.mark.slow),
        pytest.param("dynamic sampling, noise scale", marks=pytest.mark.slow),
    ],
)
def test_two_ranks_are_one(folder: Path, tmp_path: Path, variant: str) -> None:
    alone = train(config(folder, tmp_path / "alone", variant)).run_dir
    together = two_ranks(folder, tmp_path / "together", variant)
    assert len(log(together)) == len(log(alone))
    for one, other in zip(log(alone), log(together), strict=True):
        assert one.keys() == other.keys()
        assert [name for name in one if one[name] is None] == [name for name in other if other[name] is None]
        there = {name: value for name, value in one.items() if value is not None}
        assert there == pytest.approx({name: other[name] for name in there}, rel=2e-3, abs=2e-5)
    # The first step is the same up to the order of a sum; later ones amplify it through Adam.
    first, other = log(alone)[0], log(together)[0]
    assert first["loss"] == pytest.approx(other["loss"], rel=1e-6, abs=1e-9)
    assert first["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-5)
    ours, theirs = weights(alone), weights(together)
    for name, tensor in ours.items():
        assert torch.allclose(tensor, theirs[name], atol=5e-4), name


def test_a_rank_that_fails_ends_the_run_at_once_with_its_error(folder: Path, tmp_path: Path) -> None:
    script = str(Path(__file__).with_name("rank_runs.py"))
    started = time.monotonic()
    process = launched(script, str(folder), str(tmp_path), "plain", "max_steps=1000", "fail_at=2", "save_every=1")
    _, stderr = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "this rank's accelerator fell off" in stderr
    assert time.monotonic() - started < 100
    (run,) = tmp_path.glob("run_*")
    assert (run / "training_state" / "step_latest").resolve().name == "step_2"


@pytest.mark.slow
def test_a_signal_stops_all_ranks_together_and_the_run_goes_on(folder: Path, tmp_path: Path) -> None:
    script = str(Path(__file__).with_name("rank_runs.py"))
    process = launched(script, str(folder), str(tmp_path), "plain", "max_steps=2000")
    log_file: list[Path] = []
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and not (log_file and log_file[0].stat().st_size):
        log_file = list(tmp_path.glob("run_*/logs/train_log.jsonl"))
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=100)
    (run,) = tmp_path.glob("run_*")
    stopped = (run / "training_state" / "step_latest").resolve()
    state = json.loads((stopped / "trainer_state.json").read_text())
    assert len(state["random"]) == 2  # of each rank
    assert [line["step"] for line in log(run)] == list(range(1, state["step"] + 1))
    with pytest.raises(Exception, match=r"world_size is 1 now and was 2.*--allow hardware"):
        resume(run)
    resume(run, additional_steps=1, allow=["hardware"])
    assert log(run)[-1]["step"] == state["step"] + 1


def test_the_command_line_starts_the_ranks_itself(folder: Path, tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "grpo_core", "run", "--nproc", "2", "--json", "--output-dir", str(tmp_path),
        "--max-steps", "1", "--task", f"{folder / 'tasks.py'}:letters", "--model", str(folder / "model"), "eval.size=4",
        "trainer.prompts_per_step=2", "trainer.num_generations=2", "trainer.max_completion_length=4",
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 1
    assert "ranks 2, gloo: started as several processes" in done.stderr


def test_a_mistake_in_several_processes_is_one_line_and_its_exit_code(folder: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "grpo_core",
        "run",
        "--nproc",
        "3",
        "--model",
        str(folder / "model"),
        "eval.size=4",
    ]
    command += ["--task", f"{folder / 'tasks.py'}:letters", "--output-dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 2
    assert "3 ranks cannot share the 8 prompts of an optimizer step: 8 / 3 = 2.667" in done.stderr
    assert "Traceback" not in done.stderr


def test_shares_are_disjoint_and_whole() -> None:
    for n, size in ((8, 2), (7, 3), (1, 4), (0, 2)):
        shares = [World(rank=rank, size=size).share(n) for rank in range(size)]
        assert [index for share in shares for index in share] == list(range(n))
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
