import pytest

from grpo_sdk import UserError, load_task
from grpo_sdk.data import split_of
from grpo_tasks_math.arithmetic import ArithmeticRow, content

TASK = load_task("math.arithmetic?size=200")


def row_of(a: int, operation: str, b: int) -> ArithmeticRow:
    return ArithmeticRow.model_validate({"id": "x", "a": a, "operation": operation, "b": b, "difficulty": 2.0})


def test_the_prompt_of_a_difference_and_of_a_product() -> None:  # that of a sum is in the README
    assert TASK.prompt(row_of(20, "sub", 75)) == "20 - 75 ="
    assert TASK.prompt(row_of(7, "mul", 12)) == "7 * 12 ="


def test_two_digit_sums_and_differences_by_default_with_some_negative() -> None:
    rows = [row for row in TASK.rows() if isinstance(row, ArithmeticRow)]
    assert {row.operation for row in rows} == {"add", "sub"}
    assert all(10 <= row.a <= 99 and 10 <= row.b <= 99 for row in rows)
    # A quarter of all rows is a difference below 0: 50 of 200, standard deviation 6.
    assert 25 <= sum(row.result < 0 for row in rows) <= 75
    assert len(load_task("math.arithmetic").rows()) == 1000


@pytest.mark.parametrize(("level", "digits"), [(1, {1}), (2, {2}), (3, {3}), (4, {1, 2})])
def test_levels(level: int, digits: set[int]) -> None:
    rows = load_task(f"math.arithmetic?min_difficulty={level}&max_difficulty={level}&size=60").rows()
    assert {len(str(n)) for row in rows if isinstance(row, ArithmeticRow) for n in (row.a, row.b)} == digits


def test_commuted_sums_are_one_problem_and_commuted_differences_are_two() -> None:
    assert content(row_of(3, "add", 4)) == content(row_of(4, "add", 3))
    assert content(row_of(3, "mul", 4)) == content(row_of(4, "mul", 3))
    assert content(row_of(3, "sub", 4)) != content(row_of(4, "sub", 3))
    unordered = [content(row) for row in TASK.rows() if isinstance(row, ArithmeticRow)]
    assert len(set(unordered)) == len(unordered)


def test_operations_can_be_chosen() -> None:
    rows = load_task("math.arithmetic?operations=mul,sub&size=50").rows()
    assert {row.operation for row in rows if isinstance(row, ArithmeticRow)} == {"mul", "sub"}
    with pytest.raises(UserError, match="operations"):
        load_task("math.arithmetic?operations=plus")


def test_shots_are_solved_train_problems_and_never_the_question() -> None:
    task = load_task("math.arithmetic?shots=3&operations=add&size=300")
    for row in task.rows():
        assert isinstance(row, ArithmeticRow)
        prompt = task.prompt(row)
        assert isinstance(prompt, str)
        *examples, question = prompt.split("\n")
        assert question == TASK.prompt(row)
        assert len(examples) == 3
        for example in examples:
            left, result = example.split(" = ")
            a, b = (int(number) for number in left.split(" + "))
            assert a + b == int(result)
            assert content(row_of(a, "add", b)) != content(row)
            assert split_of(content(row_of(a, "add", b))) == "train"


def test_a_shot_that_is_the_question_is_replaced() -> None:
    task = load_task("math.arithmetic?shots=2")
    shown = str(task.prompt(row_of(10, "add", 10))).split(" =")[0]
    a, symbol, b = shown.split()
    prompt = str(task.prompt(row_of(int(a), {"+": "add", "-": "sub"}[symbol], int(b))))
    assert len(prompt.split("\n")) == 3
    assert [line.split(" =")[0] for line in prompt.split("\n")].count(shown) == 1  # the question itself
