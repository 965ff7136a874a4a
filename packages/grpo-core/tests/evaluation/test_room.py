"""Held-out prompts against the model's context: told before anything is sampled, and never an error in the middle."""

from pathlib import Path
from typing import Any

import pytest
from ears import Ears

from grpo_core import evaluate, train
from grpo_core.config import EvalConfig, RunConfig, TrainerConfig
from grpo_sdk import UserError
from grpo_sdk.errors import DataError

TASKS = Path(__file__).parent / "programs" / "sized_tasks.py"

CONTEXT = 512
"""Of the model `tiny`, whose prompts are a token a character."""


def held_out(ears: Ears) -> list[str]:
    return [choice.value.partition(": ")[2] for choice in ears.choices if choice.what == "held-out"]


@pytest.mark.parametrize(("lengths", "scored", "abstained", "said"), [
    ("20,30", 2, 0, []),
    (f"20,{CONTEXT - 5},{CONTEXT - 9}", 3, 0, ["2 of 3 answers have room for fewer than 64 tokens"]),
    (f"20,{CONTEXT},1000", 1, 2, ["2 of 3 rows cannot be answered and are not scored"]),
])  # fmt: skip
def test_a_prompt_is_answered_with_the_room_it_leaves(
    lengths: str, scored: int, abstained: int, said: list[str]
) -> None:
    ears = Ears()
    (found,) = evaluate(
        f"{TASKS}:sized?lengths={lengths}", "tiny", callbacks=(ears,), device="cpu", surprisal=False
    ).values()
    assert (found["n"], found["abstained"], held_out(ears)) == (scored, abstained, said)
    assert found["max_length"] <= 64
    assert any(f"the model's context is {CONTEXT}" in each for each in ears.said) == (abstained > 0)


def test_no_row_that_can_be_answered_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none of its 2 held-out rows .* shortest prompt has 600 tokens.* is 512"):
        evaluate(f"{TASKS}:sized?lengths=600,700", "tiny", device="cpu")
    with pytest.raises(UserError, match="none of its 2 held-out rows can be answered"):
        train(run(f"{TASKS}:sized?lengths=600,700", tmp_path))
    assert not (tmp_path / "runs").exists(), "refused before anything is written"


SMALL = {"prompts_per_step": 1, "num_generations": 2, "max_completion_length": 16, "max_steps": 1}


def run(task: str, folder: Path, **trainer: Any) -> RunConfig:
    held = EvalConfig(at_start=False, surprisal=False)
    given = {"task": task, "model": "tiny", "device": "cpu", "output_dir": str(folder / "runs"), "eval": held}
    return RunConfig(trainer=TrainerConfig(**SMALL | trainer), **given)


def test_a_training_evaluates_with_the_room_that_there_is(tmp_path: Path) -> None:
    ears = Ears()
    made = train(run(f"{TASKS}:sized?lengths=20,{CONTEXT - 5},{CONTEXT}", tmp_path), (ears,))
    (entry,) = made.summary["tasks"].values()
    assert (entry["final"]["n"], entry["final"]["abstained"]) == (2, 1)
    assert held_out(ears)[-2:] == [
        "1 of 3 answers have room for fewer than 16 tokens",
        "1 of 3 rows cannot be answered and are not scored",
    ]


def test_the_advice_on_training_rows_helps(tmp_path: Path) -> None:
    plain, advised = f"{TASKS}:plain", {"max_completion_length": 492, "max_prompt_length": 20}
    with pytest.raises(DataError) as refused:
        train(run(plain, tmp_path, max_completion_length=500, max_prompt_length=4))
    for name, value in advised.items():
        assert f"trainer.{name}={value} or " in str(refused.value)
    assert train(run(plain, tmp_path, **advised)).summary["steps"] == 1
