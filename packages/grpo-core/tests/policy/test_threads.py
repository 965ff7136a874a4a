"""The threads of a model on a CPU, and how they wait."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from grpo_core import train
from grpo_core.callbacks import Callback, RunInfo
from grpo_core.config import EvalConfig, RunConfig, ScoringConfig, TrainerConfig
from grpo_core.policy import threads
from grpo_core.policy.threads import computing_with, update_threads
from grpo_core.training.resume import resume


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_AT_START", 2)
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


@pytest.mark.parametrize(
    ("parameters", "tokens", "device", "environment", "expected"),
    [
        (900_000, 1536, "cpu", {}, 2),  # 2.8e9 operations, and two cores
        (900_000, 600, "cpu", {}, None),  # one thread's worth
        (6_000_000, 1536, "cpu", {}, None),  # on all threads already
        (900_000, 1536, "cuda", {}, None),
        (900_000, 1536, "cpu", {"OMP_NUM_THREADS": "2"}, None),  # chosen by the user
        (900_000, 1536, "cpu", {"OMP_WAIT_POLICY": "ACTIVE"}, None),  # they would spin
        (900_000, 1536, "cpu", {"OMP_WAIT_POLICY": "ACTIVE", "GOMP_SPINCOUNT": "0"}, 2),
    ],
)
def test_updates_of_a_small_model_have_a_thread_for_each_gigaflop(
    two_cores: None,
    monkeypatch: pytest.MonkeyPatch,
    parameters: int,
    tokens: int,
    device: str,
    environment: dict[str, str],
    expected: int | None,
) -> None:
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    assert update_threads(parameters, tokens, torch.device(device)) == expected


def test_the_number_is_as_before_after_a_failure() -> None:
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError), computing_with(before + 1):
        assert torch.get_num_threads() == before + 1
        raise ZeroDivisionError
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("imports", "given", "expected"),
    [
        ("grpo_core", {}, "PASSIVE 2000"),
        ("torch, grpo_core", {}, "None None"),  # too late: torch has read the environment
        ("grpo_core", {"OMP_WAIT_POLICY": "active"}, "active None"),
        ("grpo_core", {"GOMP_SPINCOUNT": "1000"}, "None 1000"),
    ],
)
def test_threads_sleep_while_they_wait_unless_the_user_says_otherwise(
    imports: str, given: dict[str, str], expected: str
) -> None:
    kept = {name: text for name, text in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    code = f"import {imports}, os; print(*map(os.environ.get, ('OMP_WAIT_POLICY', 'GOMP_SPINCOUNT')))"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**kept, **given}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == expected


class Choices(Callback):
    def on_run_start(self, info: RunInfo) -> None:
        self.threads = [choice.value for choice in info.choices if choice.what == "threads"]


def test_a_run_says_its_threads_and_resumes_with_the_same(
    two_cores: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "OPERATIONS_OF_THREAD", 1e6)
    sizes = {"max_steps": 2, "stop_after": 1, "prompts_per_step": 2, "num_generations": 2, "max_completion_length": 4}
    config = RunConfig(
        task="math.arithmetic",
        output_dir=str(tmp_path),
        device="cpu",
        trainer=TrainerConfig(**sizes),
        scoring=ScoringConfig(workers=1),
        eval=EvalConfig(at_start=False, at_end=False),
    )
    choices, resumed, outside = Choices(), Choices(), torch.get_num_threads()
    run = train(config, (choices,)).run_dir
    monkeypatch.setattr(threads, "_AT_START", 3)
    resume(run, callbacks=(resumed,))
    assert choices.threads == resumed.threads == ["1 for sampling, 2 for updates"], "those that it began with"
    torch.set_num_threads(outside)
