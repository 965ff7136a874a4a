from fractions import Fraction

import pytest

from grpo_sdk import Invalid, load_task
from grpo_tasks_math.countdown import MAX_DEPTH, MAX_NUMBERS, CountdownRow, content, parse_expression

TASK = load_task("math.countdown?size=200&max_difficulty=4")
ROW = CountdownRow(id="x", numbers=(3, 7, 25, 50), target=82)


def test_gold_uses_all_numbers_and_reaches_the_target() -> None:
    for row in TASK.rows():
        assert isinstance(row, CountdownRow) and row.gold is not None
        expression = parse_expression(row.gold)
        assert sorted(expression.numbers) == sorted(row.numbers)
        assert expression.value == row.target and row.target not in row.numbers
        # The text as Python reads it: precedence and parentheses are the usual ones.
        assert eval(row.gold, {"__builtins__": {}}) == row.target


def test_the_order_of_the_numbers_makes_no_other_problem() -> None:
    assert content(ROW) == content(ROW.model_copy(update={"numbers": (50, 3, 25, 7)}))
    assert content(ROW) != content(ROW.model_copy(update={"target": 83}))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", Fraction(7)),
        ("(1 + 2) * 3", Fraction(9)),
        ("8 / 4 / 2", Fraction(1)),
        ("1 / 3 + 1 / 6", Fraction(1, 2)),
        ("2 × 3 − 8 ÷ 4", Fraction(4)),
        ("[(7)]", Fraction(7)),
    ],
)
def test_expressions(text: str, value: Fraction) -> None:
    assert parse_expression(text).value == value


@pytest.mark.parametrize("text", ["", "()", "1 +", "* 2", "1 2", "(1", "1)", "1 / 0", "1e3", "1.5", "x", "1,2", "- 1"])
def test_what_is_no_expression(text: str) -> None:
    with pytest.raises(Invalid):
        parse_expression(text)


def test_bounds_are_exact() -> None:
    assert parse_expression("(" * MAX_DEPTH + "1" + ")" * MAX_DEPTH).value == 1
    with pytest.raises(Invalid, match="nested"):
        parse_expression("(" * (MAX_DEPTH + 1) + "1" + ")" * (MAX_DEPTH + 1))
    assert parse_expression("+".join("1" * MAX_NUMBERS)).value == MAX_NUMBERS
    with pytest.raises(Invalid, match="numbers"):
        parse_expression("+".join("1" * (MAX_NUMBERS + 1)))
    assert parse_expression("999999").value == 999_999
    with pytest.raises(Invalid):
        parse_expression("1000000")
