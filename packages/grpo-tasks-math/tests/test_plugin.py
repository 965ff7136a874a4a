"""Laws of every generated task beside the conformance checks; what is particular to one stands in its own file."""

import pytest

from grpo_sdk import BoundTask, UserError, load_task

PROCEDURAL = (
    "echo", "pattern", "arithmetic", "counting", "base_conversion", "comparison", "word_problem", "countdown",
    "scheduling",
)  # fmt: skip
ROWS = 210  # a multiple of 2 and 3, so that every level has equally many


@pytest.fixture(scope="module", params=PROCEDURAL)
def task(request: pytest.FixtureRequest) -> BoundTask:
    return load_task(f"math.{request.param}?size={ROWS}")


def test_what_follows_the_stop_string_changes_nothing(task: BoundTask) -> None:
    (stop,) = task.task.stop
    for row in task.rows()[:50]:
        gold = row.gold or ""
        stopped = gold if gold.endswith(stop) else gold + stop
        assert task.score(stopped, row).solved
        if stop == "\n":  # a trainer that does not know the stop string lets the model go on
            assert task.score(stopped + "7 + 8 = 15\n", row).solved


def test_another_rows_gold_is_not_solved(task: BoundTask) -> None:
    rows = task.rows()
    compared = 0
    for row, other in zip(rows, [*rows[1:], rows[0]], strict=True):
        if row.gold != other.gold:
            compared += 1
            score = task.score(other.gold or "", row)
            assert score.value is not None and not score.solved and score.value <= 0.65, (row, other, score)
    assert compared > ROWS // 4  # half of the comparisons have the same answer as the next one, yes or no


def test_prompt_and_gold_read_as_one_text(task: BoundTask) -> None:
    for row in task.rows():
        prompt = task.prompt(row)
        assert isinstance(prompt, str) and prompt == prompt.rstrip()
        assert row.gold is not None and row.gold[0] in " \n" and row.gold == row.gold.rstrip()


def test_the_seed_changes_the_rows(task: BoundTask) -> None:
    assert {row.id for row in task.rows()} != {row.id for row in task.with_options(seed=1).rows()}


def test_held_out_splits_are_large_enough_for_an_evaluation(task: BoundTask) -> None:
    assert len(task.with_options(split="test", size=512).rows()) == 512
    assert len(task.with_options(size=1000).rows()) == 1000


def test_levels_take_turns_and_are_on_the_rows(task: BoundTask) -> None:
    low, high = task.config.min_difficulty, task.config.max_difficulty  # type: ignore[attr-defined] # ProceduralConfig
    levels = [row.difficulty for row in task.rows()[:6]]
    assert levels == [float(low + i % (high - low + 1)) for i in range(6)]


def test_a_level_that_does_not_exist_is_refused(task: BoundTask) -> None:
    with pytest.raises(UserError, match="max_difficulty"):
        task.with_options(max_difficulty=9)
