"""ms-swift's hook without ms-swift; tests/test_peers.py runs it in ms-swift itself."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from absent_trainers import GUESS, SUMS, WORDS, rows_of

from grpo_sdk.errors import DataError, UnscoredError, UserError
from grpo_sdk.interop.swift import TaskORM


def rewards(completions: list[str], *, spec: str = SUMS, indices: Any = None, size: int = 2, **args: int) -> Any:
    row = [rows_of(spec)[index] for index in indices or [2] * len(completions)]
    orm = TaskORM(SimpleNamespace(num_generations=size, **args))
    return orm(completions, trainer_state=None, row=row, task=[spec] * len(completions))


def test_a_batch_of_several_prompts_is_scored_in_order() -> None:
    assert rewards(["4", "5", "6", "4"], indices=[2, 2, 3, 3]) == [2.0, 0.0, 2.0, 0.0]
    assert TaskORM()([]) == []


@pytest.mark.parametrize(("completions", "indices", "size", "expected"), [
    ("4 404 404 5 404 404", [2, 2, 2, 3, 3, 3], 3, [2.0, 2.0, 2.0, 0.0, 0.0, 0.0]),
    # A group of which nothing was scored has no gradient either: all have the same reward, that of the batch.
    ("404 404 6 5", [2, 2, 3, 3], 2, [1.0, 1.0, 2.0, 0.0]),
    ("4 404 5 404", None, 2, [2.0, 2.0, 0.0, 0.0]),  # the same row twice in a batch is two groups
])  # fmt: skip
def test_what_cannot_be_scored_gets_the_mean_of_its_group(completions, indices, size, expected, caplog):
    with caplog.at_level(logging.WARNING):
        assert rewards(completions.split(), indices=indices, size=size) == expected
    assert "completions were not scored" in caplog.text and "LookupError" in caplog.text


def test_a_batch_of_which_nothing_can_be_scored_is_an_error() -> None:
    with pytest.raises(UnscoredError, match=r"none of 2 completions.*LookupError"):
        rewards(["404", "404"])


def test_a_part_of_a_group_is_refused_only_where_the_whole_is_needed() -> None:
    assert rewards(["4"], size=8) == [2.0]
    with pytest.raises(UserError, match=r"got 2 of its 8.*per_device_train_batch_size"):
        rewards(["4", "404"], size=8)
    with pytest.raises(UserError, match=r"compares the completions.*per_device_train_batch_size"):
        rewards(["aaa", "b"], spec=WORDS, size=8)


def test_an_evaluation_of_one_completion_a_prompt_makes_no_groups_of_parts_of_one() -> None:
    assert rewards(["4", "404", "5"], indices=[2, 3, 4], size=8, num_generations_eval=1) == [2.0, 1.0, 0.0]
    assert rewards(["aaa"], spec=WORDS, size=8, num_generations_eval=1) == [0.5]
    with pytest.raises(UserError, match="got 2 of its 8 or 1 completions"):
        rewards(["4", "404"], size=8, num_generations_eval=1)


def test_group_rewards_compare_the_completions_of_a_prompt() -> None:
    assert rewards(["aaa", "b", "1"], spec=WORDS, size=3) == [0.5, 0.25, -1.0]


def test_rows_without_their_columns_and_tasks_of_turns_are_refused() -> None:
    with pytest.raises(DataError, match=r"0 values of the column row.*grpo export swift"):
        TaskORM()(["4"], task=[SUMS])
    with pytest.raises(UserError, match="has several turns; ms-swift's reward gets one completion"):
        TaskORM()(["4"], row=["{}"], task=[GUESS])
