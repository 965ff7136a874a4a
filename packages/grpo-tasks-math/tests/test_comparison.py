import pytest

from grpo_sdk import load_task
from grpo_tasks_math.comparison import ComparisonRow, content

TASK = load_task("math.comparison?size=600")
TRUE = ComparisonRow(id="x", a=57, relation=">", b=38)
FALSE = ComparisonRow(id="x", a=57, relation="==", b=38)


@pytest.mark.parametrize("split", ["train", "test"])
def test_true_about_as_often_as_false_for_every_relation(split: str) -> None:
    rows = [row for row in TASK.with_options(split=split).rows() if isinstance(row, ComparisonRow)]
    # 600 fair coins: 300 with standard deviation 12; equal pairs run out first, which costs some true equalities.
    assert 250 <= sum(row.truth for row in rows) <= 350
    for relation in ("<", ">", "=="):
        truths = [row.truth for row in rows if row.relation == relation]
        assert 0.3 <= sum(truths) / len(truths) <= 0.7


def test_the_same_two_numbers_are_one_problem() -> None:
    assert content(TRUE) == content(FALSE) == content(ComparisonRow(id="x", a=38, relation="<", b=57))
    assert content(TRUE) != content(ComparisonRow(id="x", a=57, relation=">", b=-38))
