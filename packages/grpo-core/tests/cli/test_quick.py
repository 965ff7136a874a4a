"""`grpo run --quick`, with the fine-tuning, the trial and the training faked."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from grpo_core.cli import run
from grpo_core.cli.start import main_run
from grpo_core.config import ResolvedConfig
from grpo_sdk.errors import UserError

TASKS = Path(__file__).parent / "programs" / "quick_tasks.py"

Capture = pytest.CaptureFixture[str]


class Fakes:
    def __init__(self, solved: float) -> None:
        self.solved, self.interrupted = solved, False
        self.warm: dict[str, Any] = {}
        self.configs: list[ResolvedConfig] = []

    def evaluate(self, task: str, model: str, **options: Any) -> dict[str, Any]:
        return {task: {"solved_rate": self.solved}}

    def warm_start(self, task: str, folder: Path, **options: Any) -> dict[str, Any]:
        self.warm = {"folder": folder, **options}
        (folder / "config.json").write_text("{}")
        return {"steps": 50, "interrupted": self.interrupted, "sampled_solved_rate": {"25": 0.1, "50": 0.41}}

    def train(self, config: ResolvedConfig, callbacks: Any) -> Any:
        self.configs.append(config)
        raise UserError("far enough")


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fakes:
    (tmp_path / "mine.py").write_bytes(TASKS.read_bytes())
    fakes = Fakes(solved=0.0)
    monkeypatch.setattr(import_module("grpo_core.training.warm_start"), "warm_start", fakes.warm_start)
    monkeypatch.setattr(import_module("grpo_core.evaluation.evaluate"), "evaluate", fakes.evaluate)
    monkeypatch.setattr(run, "train", fakes.train)
    return fakes


def test_a_task_without_a_model_gets_a_new_one_that_is_then_trained(fakes: Fakes, capsys: Capture) -> None:
    assert main_run(["--quick", "--task", "./mine.py:letters", "--seed", "3"]) == 2
    assert (fakes.warm["preset"], fakes.warm["model"], fakes.warm["seed"]) == ("tiny", None, 3)
    config = fakes.configs[0].config
    assert config.model == "./training_runs/warm_mine.py_letters_1" and config.trainer.max_steps == 200
    assert "50 steps, 0.41 solved" in capsys.readouterr().err
    main_run(["--quick", "--task", "./mine.py:letters", "--max-minutes", "1"])
    config = fakes.configs[1].config
    assert config.model == "./training_runs/warm_mine.py_letters_2" and config.trainer.max_steps is None


def test_an_interrupted_fine_tuning_is_not_trained(fakes: Fakes, capsys: Capture) -> None:
    fakes.interrupted = True
    assert main_run(["--quick", "--task", "./mine.py:letters"]) == 130
    assert fakes.configs == [] and "interrupted" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--model", "tiny"], ["model=tiny"]])
def test_a_named_model_is_fine_tuned_only_where_it_fails(fakes: Fakes, words: list[str]) -> None:
    main_run(["--quick", "--task", "./mine.py:letters", *words])
    assert (fakes.warm["preset"], fakes.warm["model"]) == (None, "tiny")
    fakes.warm, fakes.solved = {}, 0.3
    main_run(["--quick", "--task", "./mine.py:letters", *words])
    assert fakes.warm == {}
    assert [each.config.model for each in fakes.configs] == ["./training_runs/warm_mine.py_letters_1", "tiny"]


def test_a_task_with_a_model_of_its_own_is_trained_at_once(fakes: Fakes) -> None:
    main_run(["--quick", "--task", "./mine.py:known"])
    assert fakes.warm == {} and fakes.configs[0].config.model == "tiny"


def test_a_run_that_would_be_refused_is_so_before_the_fine_tuning(fakes: Fakes, capsys: Capture) -> None:
    assert main_run(["--quick", "--task", "./mine.py:trained"]) == 2
    assert "held-out rows are trained on" in capsys.readouterr().err and fakes.warm == {}
