"""Runs that version 0.1 stopped end as it would have ended them: `fixtures/runs_of_0_1`, made by its last commit."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
import torch

from grpo_core.errors import UserError
from grpo_core.training.resume import resume

FIXTURES = Path(__file__).parents[1] / "fixtures" / "runs_of_0_1"
EXPECTED = json.loads((FIXTURES / "expected.json").read_text())


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", EXPECTED)
def test_a_run_of_0_1_goes_on_bit_for_bit(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(FIXTURES / "model", tmp_path / "model")
    shutil.copytree(FIXTURES / name / "run", tmp_path / "run", symlinks=True)
    monkeypatch.chdir(tmp_path)  # the run names its model ./model
    stored = tmp_path / "run" / "training_state" / "step_2"
    info, state = (json.loads((stored / file).read_text()) for file in ("training_info.json", "trainer_state.json"))

    allowed = ["hardware", "versions", "conditions"]
    if name == "game":  # whose answers are read in another way since
        with pytest.raises(UserError, match=r"changed since the checkpoint.*--allow task"):
            resume("run", allow=allowed)
        allowed.append("task")
    result = resume("run", allow=allowed)

    assert result.summary["steps"] == 4 and not result.interrupted
    for label, results in state["evaluator"]["results"].items():
        assert result.summary["tasks"][label]["initial"] == results["base"], "the phase has another name now"
    weights = tmp_path / "run" / "training_state" / "step_final" / "model" / "model.safetensors"
    same_machine = info["hardware"]["cpu_capability"] == torch.backends.cpu.get_cpu_capability()
    if same_machine and info["versions"]["torch"] == metadata.version("torch"):
        assert hashlib.sha256(weights.read_bytes()).hexdigest() == EXPECTED[name]
