"""Two ranks that sample from one server are one process that does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import rank_runs
from launched_ranks import run_in
from resumed_runs import config, log, rollouts
from server_engines import sent_versions
from vllm_server import FakeVLLM, native_answers, serving

from grpo_core import train
from grpo_core.config import EngineConfig
from grpo_core.policy.fresh import byte_tokenizer

pytestmark = pytest.mark.timeout(240)

SUPPORT = Path(rank_runs.__file__).parent
SETTINGS = {"max_steps": 2}
AHEAD = {"max_steps": 3, "off_policy_steps": 1}


def launched(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    paths = f"{SUPPORT / 'fake_vllm'}:{SUPPORT}"
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths, **environment}
    return subprocess.run(
        [sys.executable, "-m", *arguments], env=variables, capture_output=True, text=True, timeout=220, check=False
    )


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, FakeVLLM]]:
    """One for each run, since a server belongs to one."""
    with ExitStack() as stack:
        names = ("alone", "whole", "ahead alone", "ahead", "sharded")
        yield {name: stack.enter_context(serving(native_answers(byte_tokenizer()))) for name in names}


@pytest.fixture(scope="module")
def runs(folder: Path, servers: dict[str, FakeVLLM], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs of one process, and those of two ranks in one launch."""
    path = tmp_path_factory.mktemp("runs")
    engines = {name: {"name": "vllm", "url": servers[name].url} for name in servers}
    for name, settings in (("alone", SETTINGS), ("ahead alone", AHEAD)):
        made = config(folder, path / name, "plain", **settings)
        train(made.model_copy(update={"engine": EngineConfig(**engines[name])}))
    todo = {"whole": SETTINGS, "sharded": {**SETTINGS, "sharding": "full"}, "ahead": {**AHEAD, "sharding": "full"}}
    jobs = [
        {"out": str(path / name), "variant": "plain", "settings": settings, "engine": engines[name]}
        for name, settings in todo.items()
    ]
    arguments = ["--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", rank_runs.__file__]
    done = launched("torch.distributed.run", *arguments, str(folder), json.dumps(jobs))
    assert done.returncode == 0, done.stderr
    return {name: run_in(path / name) for name in servers}


@pytest.mark.parametrize(("name", "like"), [("whole", "alone"), ("sharded", "alone"), ("ahead", "ahead alone")])
def test_two_ranks_are_one(runs: dict[str, Path], name: str, like: str) -> None:
    sampled = [
        [(line["step"], line["prompt_id"], line["text"]) for line in rollouts(runs[run])] for run in (name, like)
    ]
    assert sampled[0] == sampled[1]
    for own, other in zip(log(runs[name]), log(runs[like]), strict=True):
        assert own["loss"] == pytest.approx(other["loss"], rel=1e-4, abs=1e-6)
        assert own["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-4)


def test_weights_are_sent_once_for_each_version(runs: dict[str, Path], servers: dict[str, FakeVLLM]) -> None:
    for name in runs:
        steps = len(log(runs[name]))
        unused = [steps - 1] if "ahead" in name else []  # no batch follows the last step
        assert sent_versions(servers[name]) == [version for version in range(steps + 1) if version not in unused], name
        assert not Path(servers[name].folder).parent.exists()


def on_the_command_line(
    folder: Path, out: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    words = ["--task", f"{folder / 'tasks.py'}:letters", "--model", str(folder / "model"), "--output-dir", str(out)]
    words += ["eval.size=4", "trainer.prompts_per_step=2", "trainer.num_generations=2", "trainer.max_steps=2"]
    words += ["trainer.max_completion_length=4", "engine.max_batch_tokens=256", "device=cpu", "engine.name=vllm"]
    return launched("grpo_core", "run", "--nproc", "2", *words, *arguments, **environment)


def test_the_command_line_starts_the_ranks_and_the_first_one_a_server(folder: Path, tmp_path: Path) -> None:
    adapter = ("lora.enabled=true", "lora.r=4", "trainer.sharding=full")  # both are gathered
    done = on_the_command_line(folder, tmp_path, "--json", *adapter)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 2
    assert done.stderr.count("the vLLM server of the run's own, up after") == 1
    assert "ranks 2, gloo: started as several processes" in done.stderr
    assert "sharding 1 / 2 of the weights in each process" in done.stderr


@pytest.mark.slow  # a launch of its own; test_server_runs has one process, test_supervisor a rank that is killed
def test_a_server_that_dies_ends_all_ranks_in_one_line(folder: Path, tmp_path: Path) -> None:
    done = on_the_command_line(folder, tmp_path, "--quiet", FAKE_VLLM="dies")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: the vLLM server is gone or does not answer (its process ended, killed by SIGKILL")
