"""A run's folder whose checkpoints are empty, and their evaluation without a model, for tests."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from grpo_core.checkpoints import CheckpointStore
from grpo_core.config import EvalConfig, RunConfig, TrainerConfig, to_yaml
from grpo_core.evaluation.held_out import HeldOutTask
from grpo_core.evaluation.results import Evaluation
from grpo_core.evaluation.settings import ModelOptions
from grpo_sdk.callbacks import Callbacks
from grpo_sdk.endpoints.base import StopRequested
from grpo_sdk.task.row import Row
from grpo_sdk.task.score import Score

TASKS = """
from grpo_sdk import EvaluationDefaults, Invalid, Row, Task, reward

class Letter(Row):
    letter: str

def load(config) -> list[Letter]:
    first = {"train": 97, "validation": 105, "test": 113}[config.split]
    rows = [chr(first + index) for index in range(8)]
    return [Letter(id=letter, letter=letter, gold=letter, difficulty=1.0 + (index > 3)) for index, letter in
            enumerate(rows)]

def prompt(row):
    return row.letter * 2

def validate(text, row):
    if not text:
        raise Invalid("nothing")
    return text

@reward(1.0)
def right(answer, row):
    return float(answer[:1] == row.letter)

letters = Task("letters", load, prompt, validate, (right,), max_completion_length=4, default_model="tiny")
again = Task("again", load, prompt, validate, (right,), max_completion_length=4, default_model="tiny")
wishful = Task("wishful", load, prompt, validate, (right,), max_completion_length=4, default_model="tiny",
               evaluation=lambda config: EvaluationDefaults(size=3, split="validation", num_completions=2,
                                                            temperature=0.5))
"""


LOST = Score(None, why="the worker died", fault="infrastructure")


def evaluation_of(
    scores: Sequence[Score], n: int = 1, difficulties: Sequence[float] = (), **options: Any
) -> Evaluation:
    """An evaluation whose completions, `n` of each row, have these scores; `options` are other fields of it."""
    count, levels = len(scores), difficulties or [None] * (len(scores) // n)
    rows = [Row(id=str(index), difficulty=level) for index, level in enumerate(levels)]
    written = {"rows": rows, "texts": [""] * count, "lengths": [4] * count, "truncated": [False] * count}
    return Evaluation(scores=scores, n=n, **{**written, "temperature": 0.7, "split": "test", **options})


class FakeModels:
    """Takes the place of `evaluate_model`: notes what is asked for, and solves a share of the rows.

    Attributes:
        jobs: What was asked for, in order.
        shares: Checkpoint -> share of the rows that it solves, 0.5.
        errors: Checkpoint -> what its evaluation raises; `StopRequested` only when the time is up.
    """

    def __init__(self) -> None:
        self.jobs: list[dict[str, Any]] = []
        self.shares: dict[str, float] = {}
        self.errors: dict[str, Exception] = {}

    def __call__(
        self, model: str, adapter: str | None, tasks: Mapping[str, HeldOutTask], options: ModelOptions,
        callbacks: Callbacks, *, start: tuple[str, str | None], should_stop: Callable[[], bool],
    ) -> dict[str, Evaluation]:  # fmt: skip
        folder = Path(adapter or model).parent.name
        step = folder if folder.startswith("step_") else "base"
        settings = {label: asdict(task.settings) for label, task in tasks.items()}
        job = {"step": step, "model": model, "adapter": adapter, "start": start, "settings": settings}
        self.jobs.append({**job, "options": options})
        callbacks.on_progress("evaluating letters", 1, 2)
        error = self.errors.get(step)
        while isinstance(error, StopRequested) and not should_stop():
            time.sleep(0.01)
        if error is not None:
            raise error
        return {label: self._evaluation(task, self.shares.get(step, 0.5)) for label, task in tasks.items()}

    def _evaluation(self, task: HeldOutTask, share: float) -> Evaluation:
        rows, n = task.rows, task.settings.n
        scores = [Score(1.0 * solved, {}, True, solved) for index in range(len(rows))
                  for solved in [index < share * len(rows)] * n]  # fmt: skip
        sampled = {"temperature": task.settings.temperature, "split": task.settings.split}
        return evaluation_of(scores, n, rows=rows, seconds=1.0, **sampled)


def make_run(folder: Path, steps: tuple[int, ...] = (2, 10), *, final: bool = True, adapter: bool = False) -> Path:
    """A run with complete, empty checkpoints, which trained `./tasks.py:letters` in the working directory."""
    run = folder / "training_runs" / "run_2026-11-21_12-30-52"
    run.mkdir(parents=True)
    config = RunConfig(
        task=f"{folder}/tasks.py:letters", model="tiny", seed=5, output_dir=str(folder / "training_runs"),
        trainer=TrainerConfig(max_completion_length=8), eval=EvalConfig(size=8),
    )  # fmt: skip
    (folder / "tasks.py").write_text(TASKS)
    (run / "config.yaml").write_text(to_yaml(config))
    for step in (*steps, *(("final",) if final else ())):
        write_checkpoint(run, step, adapter=adapter)
    return run


def write_checkpoint(run: Path, which: int | Literal["final"], *, adapter: bool = False, **info: Any) -> None:
    """Write an empty checkpoint in place of one that is there; `info` is its training_info.json."""
    with CheckpointStore(run).writing(which) as checkpoint:
        (checkpoint / "model").mkdir()
        name = "adapter_config.json" if adapter else "config.json"
        (checkpoint / "model" / name).write_text("{}")
        if info:
            (checkpoint / "training_info.json").write_text(json.dumps(info))
