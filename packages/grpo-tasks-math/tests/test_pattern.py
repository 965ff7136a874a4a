import pytest

from grpo_sdk import load_task
from grpo_tasks_math.pattern import PatternRow, continuations

TASK = load_task("math.pattern?size=600")


@pytest.mark.parametrize(
    ("terms", "next_terms"),
    [
        ([5, 5, 5], {5}),  # a cycle of one
        ([0, 1, 0, 1, 0], {1}),
        ([1, 2, 4, 1], {2}),  # a cycle of three, begun again
        ([0, 0, 1, 1, 2, 2], {3}),  # doubled: each half goes on by itself
        ([10, 1, 20, 2, 30, 3], {40}),
        ([1, 5, 2, 6, 3], set()),  # only two terms of the half that would go on
        ([3, 6, 12, 24], {48}),
        ([0, 1, 3], set()),
        ([1, 2, 3, 5, 8], {13}),
        ([5, 3, 7, 4, 9, 5], {11, 3}),  # ambiguous: halves 5 7 9 and 3 4 5, or a cycle of five
    ],
)
def test_continuations(terms: list[int], next_terms: set[int]) -> None:
    assert continuations(terms) == next_terms


@pytest.mark.parametrize("split", ["train", "test"])
def test_every_row_has_one_continuation_and_it_is_gold_and_some_fall_below_0(split: str) -> None:
    rows = [row for row in TASK.with_options(split=split).rows() if isinstance(row, PatternRow)]
    assert any(row.next.startswith("-") for row in rows)
    for row in rows:
        elements = [*row.shown.split(), row.next]
        are_letters = row.next.isalpha()
        assert all(element.isalpha() == are_letters for element in elements)
        terms = [ord(element) if are_letters else int(element) for element in elements]
        assert continuations(terms[:-1]) == {terms[-1]}, row
        assert row.gold == f" {row.next}"
        assert not are_letters or row.next in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
