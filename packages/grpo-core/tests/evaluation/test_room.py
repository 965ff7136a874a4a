"""Held-out prompts against the model's context: told before anything is sampled, and never an error in the middle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from grpo_core import UserError, evaluate
from grpo_core.callbacks import Callback, ResolvedDefault
from grpo_core.config import EvalConfig, RunConfig, TrainerConfig
from grpo_core.engines.compatibility import max_context
from grpo_core.errors import DataError
from grpo_core.policy.load import load_policy
from grpo_core.training.trainer import train

CONTEXT = 512
"""Of the model `tiny`, whose prompts are a token a character."""

TASKS = """
from grpo_core import Row, Task, TaskConfig, reward

class Config(TaskConfig):
    lengths: str = "20,30"

class Sized(Row):
    prompt: str

def load(config) -> list[Sized]:
    sizes = config.lengths if config.split == "test" else "20,21,22,23"
    return [
        Sized(id=f"{config.split}{number}", prompt=("1 2 3 4 5 6 7 8 9 " * 400)[number:][: int(size)])
        for number, size in enumerate(sizes.split(","))
    ]

@reward()
def any_answer(answer):
    return 1.0

sized = Task("sized", load, lambda row: row.prompt, lambda text, row: text, (any_answer,), config=Config,
             max_completion_length=64)
plain = Task("plain", load, lambda row: row.prompt, lambda text, row: text, (any_answer,), config=Config)
"""


class Watch(Callback):
    def __init__(self) -> None:
        self.choices: list[ResolvedDefault] = []
        self.warnings: list[str] = []

    def on_choices(self, choices: Sequence[ResolvedDefault]) -> None:
        self.choices += choices

    def on_run_start(self, info: Any) -> None:
        self.choices += info.choices

    def on_warning(self, message: str) -> None:
        self.warnings.append(message)

    def held_out(self) -> list[str]:
        return [choice.value.partition(": ")[2] for choice in self.choices if choice.what == "held-out"]


@pytest.fixture
def task(tmp_path: Path) -> str:
    (tmp_path / "tasks.py").write_text(TASKS)
    return f"{tmp_path}/tasks.py:sized"


def results(task: str, watch: Watch, **settings: Any) -> Mapping[str, Any]:
    (found,) = evaluate(task, "tiny", callbacks=(watch,), device="cpu", surprisal=False, **settings).values()
    return found


def test_the_context_of_the_model() -> None:
    assert max_context(load_policy("tiny", device="cpu").model) == CONTEXT


def test_prompts_that_leave_room_are_answered_without_a_word(task: str) -> None:
    watch = Watch()
    assert results(task, watch)["abstained"] == 0
    assert watch.held_out() == []


def test_a_prompt_that_leaves_less_room_is_answered_with_it(task: str) -> None:
    watch = Watch()
    found = results(f"{task}?lengths=20,{CONTEXT - 5},{CONTEXT - 9}", watch)
    assert (found["n"], found["abstained"]) == (3, 0)
    assert found["max_length"] <= 64
    assert watch.held_out() == ["2 of 3 answers have room for fewer than 64 tokens"]
    (choice,) = watch.choices[-1:]
    assert choice.why.endswith("leaves 5")


def test_a_prompt_that_leaves_no_room_is_not_scored(task: str) -> None:
    watch = Watch()
    found = results(f"{task}?lengths=20,{CONTEXT},1000", watch)
    assert (found["n"], found["abstained"]) == (1, 2)
    assert watch.held_out() == ["2 of 3 rows cannot be answered and are not scored"]
    assert any(f"the model's context is {CONTEXT}" in said for said in watch.warnings)


def test_no_row_that_can_be_answered_is_refused(task: str) -> None:
    with pytest.raises(UserError, match=r"none of its 2 held-out rows .* shortest prompt has 600 tokens.* is 512"):
        results(f"{task}?lengths=600,700", Watch())


def run(task: str, folder: Path, **trainer: Any) -> RunConfig:
    return RunConfig(
        task=task,
        model="tiny",
        device="cpu",
        output_dir=str(folder / "runs"),
        trainer=TrainerConfig(
            **{"prompts_per_step": 1, "num_generations": 2, "max_completion_length": 16, "max_steps": 1, **trainer}
        ),
        eval=EvalConfig(at_start=False, surprisal=False),
    )


def test_a_training_checks_them_before_it_starts(task: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="none of its 2 held-out rows can be answered"):
        train(run(f"{task}?lengths=600,700", tmp_path))
    assert not (tmp_path / "runs").exists(), "refused before anything is written"


def test_a_training_evaluates_with_the_room_that_there_is(task: str, tmp_path: Path) -> None:
    watch = Watch()
    made = train(run(f"{task}?lengths=20,{CONTEXT - 5},{CONTEXT}", tmp_path), (watch,))
    (entry,) = made.summary["tasks"].values()
    assert (entry["final"]["n"], entry["final"]["abstained"]) == (2, 1)
    assert watch.held_out()[-2:] == [
        "1 of 3 answers have room for fewer than 16 tokens",
        "1 of 3 rows cannot be answered and are not scored",
    ]


@pytest.mark.parametrize(
    ("trainer", "following"),
    [
        ({"max_completion_length": 500}, {"max_completion_length": 492}),
        ({"max_prompt_length": 10}, {"max_prompt_length": 20}),
        (
            {"max_completion_length": 500, "max_prompt_length": 4},
            {"max_completion_length": 492, "max_prompt_length": 20},
        ),
    ],
)
def test_the_advice_on_training_rows_helps(
    task: str, tmp_path: Path, trainer: dict[str, int], following: dict[str, int]
) -> None:
    with pytest.raises(DataError) as refused:
        train(run(task.replace("sized", "plain"), tmp_path, **trainer))
    for name, value in following.items():
        assert f"trainer.{name}={value} or " in str(refused.value)
    assert train(run(task.replace("sized", "plain"), tmp_path, **{**trainer, **following})).summary["steps"] == 1
