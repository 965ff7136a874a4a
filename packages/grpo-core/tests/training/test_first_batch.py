"""A first batch without anything to learn from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grpo_core import Row, Task, reward, train
from grpo_core.callbacks import Callback
from grpo_core.config import EvalConfig, RunConfig, TrainerConfig
from grpo_core.config.resolution import EXAMPLE_MODEL
from grpo_core.errors import UserError
from grpo_core.plugins.task_objects import name_tasks
from grpo_core.tracking.advice import a_start

FILE = """
from grpo_core import Row, Task, reward


@reward()
def never(answer):
    return 0.0


@reward()
def counted(answer):
    return sum(map(ord, answer)) % 7 / 7


def task(name, part):
    rows = lambda config: [Row(id=str(index), gold="a") for index in range(16)]
    return Task(name, rows, lambda row: f"{row.id}2 + 3{row.id} =", lambda text, row: text, (part,), row=Row)


impossible, possible = task("impossible", never), task("possible", counted)
"""


@reward()
def long(answer):
    return float(len(answer) > 9)


class Warnings(Callback):
    def __init__(self) -> None:
        self.messages: list[str] = []

    def on_warning(self, message: str) -> None:
        self.messages.append(message)


def run(folder: Path, name: str, prompts: int = 16, **given: Any) -> list[str]:
    (folder / "hard.py").write_text(FILE)
    warnings = Warnings()
    config = RunConfig(
        task=f"{folder / 'hard.py'}:{name}",
        output_dir=str(folder / "runs"),
        trainer=TrainerConfig(max_steps=1, prompts_per_step=prompts, num_generations=4, max_completion_length=6),
        eval=EvalConfig(at_start=False, at_end=False),
        device="cpu",
        **given,
    )
    train(config, callbacks=[warnings])
    return [message for message in warnings.messages if "nothing to learn from" in message]


def test_a_model_that_was_chosen_and_cannot_learn_ends_the_run_with_advice(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        run(tmp_path, "impossible")
    message = str(caught.value)
    assert message.startswith("all 64 completions of the first 16 prompts by tiny earn 0. ")
    assert f"grpo warm-start --task {tmp_path / 'hard.py'}:impossible --preset tiny --out ./warm" in message


def test_a_model_that_was_named_is_trained_with_a_warning(tmp_path: Path) -> None:
    assert len(run(tmp_path, "impossible", model="tiny")) == 1


def test_a_batch_with_differences_says_nothing(tmp_path: Path) -> None:
    assert run(tmp_path, "possible") == []


def test_a_few_completions_say_nothing(tmp_path: Path) -> None:
    assert run(tmp_path, "impossible", 15) == []


def test_advice_for_an_object_is_python(tmp_path: Path) -> None:
    task = Task("mine", lambda config: [Row(id="1")], lambda row: "?", lambda text, row: text, (long,), row=Row)
    named = name_tasks(task)
    assert a_start(named.spec) == (
        'fine-tune a start on the task\'s golds, grpo_core.warm_start(mine, "./warm", preset="tiny"), or name a model '
        f'that sometimes succeeds: model="{EXAMPLE_MODEL}".'
    )
