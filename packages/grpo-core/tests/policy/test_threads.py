"""The threads of a model on a CPU, and how they wait."""

import os
import runpy
import sys
from pathlib import Path

import pytest
import resumed_runs
import torch
from heard import Heard

import grpo_core
from grpo_core import resume, train
from grpo_core.policy import threads
from grpo_core.policy.threads import computing_with

VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


def test_the_number_is_as_before_after_a_failure() -> None:
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError), computing_with(before + 1):
        assert torch.get_num_threads() == before + 1
        raise ZeroDivisionError
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(("has_torch", "given", "expected"), [
    (False, {}, ["PASSIVE", "2000"]),
    (True, {}, [None, None]),  # too late: torch has read the environment
    (False, {"OMP_WAIT_POLICY": "active"}, ["active", None]),
    (False, {"GOMP_SPINCOUNT": "1000"}, [None, "1000"]),
])  # fmt: skip
def test_threads_sleep_while_they_wait_unless_the_user_says_otherwise(
    has_torch: bool, given: dict[str, str], expected: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_torch:
        monkeypatch.delitem(sys.modules, "torch")
    for name in VARIABLES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)  # and after the test it is as it was
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    runpy.run_path(grpo_core.__file__)
    assert [os.environ.get(name) for name in VARIABLES] == expected


def test_a_run_resumes_with_its_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_AT_START", 2)
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(threads, "OPERATIONS_OF_THREAD", 1e6)
    resumed_runs.model_and_tasks(tmp_path)
    config = resumed_runs.config(tmp_path, tmp_path / "run", "plain", max_steps=2, stop_after=1)
    begun, resumed, outside = Heard(), Heard(), torch.get_num_threads()
    run = train(config, (begun,)).run_dir
    monkeypatch.setattr(threads, "_AT_START", 3)
    resume(run, callbacks=(resumed,))
    for said in (begun, resumed):
        assert said.choices["threads"].value == "1 for sampling, 2 for updates", "those that it began with"
    torch.set_num_threads(outside)
