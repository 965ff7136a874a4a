"""What the tests of training share: a model that is smaller than any preset, with tasks, and short runs of it."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from resumed_runs import config, model_and_tasks

from grpo_core import train
from grpo_core.training.result import RunResult
from grpo_sdk.callbacks import Callback

PROGRAMS = Path(__file__).parent / "programs"
SIZES = {
    "max_steps": 2, "prompts_per_step": 4, "num_generations": 4, "max_completion_length": 4, "learning_rate": 1e-3,
    "device": "cpu", "scoring": {"workers": 1}, "eval": {"at_start": False, "at_end": False, "surprisal": False},
}  # fmt: skip


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `model` and the `tasks.py` of `resumed_runs`, which nobody changes."""
    return model_and_tasks(tmp_path_factory.mktemp("shared"))


@pytest.fixture(scope="session")
def trained(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., RunResult]:
    """Trains two short steps without evaluations, on tasks of `programs` or others: `trained("letters.py:coins")`."""

    def run(task: str = "letters.py:letters", callbacks: Sequence[Callback] = (), **settings: Any) -> RunResult:
        spec = ",".join(str(PROGRAMS / each) if ".py:" in each else each for each in task.split(","))
        given = {"model": str(folder / "model"), "output_dir": str(tmp_path_factory.mktemp("run")), **SIZES, **settings}
        return train(spec, callbacks, progress=False, **given)

    return run


@pytest.fixture(scope="session")
def straight(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Trains a variant of `resumed_runs` to its end, once: `straight("LoRA", save_every=2)` is its folder."""

    @cache
    def run(variant: str = "plain", **settings: Any) -> Path:
        return train(config(folder, tmp_path_factory.mktemp("straight"), variant, **settings)).run_dir

    return run
