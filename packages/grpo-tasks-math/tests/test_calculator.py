import json
import re
from itertools import islice

import pytest

from grpo_sdk import ToolError, load_task
from grpo_tasks_math.arithmetic import ArithmeticRow
from grpo_tasks_math.calculator import CalculatorConfig, calculator, demos

TASK = load_task("math.calculator?size=200")


ROW = ArithmeticRow(id="x", a=347, operation="mul", b=812)


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("347*812", "281764"),
        (" (12 + 7) * -30 ", "-570"),
        ("--3", "3"),
        ("84/2/3", "14"),
        ("1" * 50 + "*" + "9" * 49, str(int("1" * 50) * int("9" * 49))),
        ("(" * 49 + "1" + ")" * 49, "1"),
        ("-" * 99 + "1", "-1"),
    ],
)
def test_it_computes_exactly(expression: str, result: str) -> None:
    assert calculator(expression) == result


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("", "digits, "),
        ("   ", "no expression"),
        ("__import__('os')", "digits, "),
        ("9e9", "digits, "),
        ("1\n+1", "digits, "),
        ("٣+1", "digits, "),
        ("3+", "no expression"),
        ("9**9", "is not allowed"),
        ("3(4)", "is not allowed"),
        ("7/2", "7/2 is no whole number"),
        ("1/(2-2)", "division by zero"),
        ("1" * 101, "101 characters; at most 100"),
    ],
)
def test_what_it_cannot_compute_is_said_in_words(expression: str, told: str) -> None:
    with pytest.raises(ToolError, match=re.escape(told)):
        calculator(expression)


def test_products_of_three_digits_by_default() -> None:
    rows = [row for row in TASK.rows() if isinstance(row, ArithmeticRow)]
    assert {row.operation for row in rows} == {"mul"}
    assert {len(str(number)) for row in rows for number in (row.a, row.b)} == {3}
    assert TASK.prompt(ROW) == "347*812=\n"
    assert all(TASK.score(row.gold or "", row).solved for row in rows)


def test_levels_are_digits_and_operations_can_be_chosen() -> None:
    task = load_task("math.calculator?min_difficulty=1&max_difficulty=2&operations=add,sub&size=60")
    rows = [row for row in task.rows() if isinstance(row, ArithmeticRow)]
    assert {(len(str(row.a)), len(str(row.b))) for row in rows} == {(1, 1), (2, 2)}
    assert {row.operation for row in rows} == {"add", "sub"}


@pytest.mark.parametrize("text", ["", "about 281764", "281764 or 5", "347*812", "2.81764e5", "281,764", "281763"])
def test_only_the_whole_number_is_solved(text: str) -> None:
    assert not TASK.score(text, ROW).solved


def test_demos_never_ask_what_rows_ask() -> None:
    config = CalculatorConfig(min_difficulty=2, max_difficulty=3, operations=("mul", "add"))
    asked = {prompt.partition("\n")[0] for prompt, _ in islice(demos(config), 5000)}
    assert len(asked) > 1500
    assert not [text for text in asked if re.fullmatch(r"\d{2}[*+]\d{2}=|\d{3}[*+]\d{3}=", text)]
    assert [text for text in asked if re.fullmatch(r"\d{2}[*+]\d{3}=", text)]


def test_a_demo_of_a_call_is_two_turns_the_second_of_which_reads_the_result() -> None:
    turns = iter(islice(demos(CalculatorConfig(calls=1.0)), 400))
    for (question, call), (conversation, answer) in zip(turns, turns, strict=True):
        asked = question.removesuffix("=\n")
        written = json.loads(call.removeprefix("<tool_call>").removesuffix("</tool_call>"))
        assert written == {"name": "calculator", "arguments": {"expression": asked}}
        result = calculator(asked)
        assert conversation == f"{question}{call}\n<tool_result>{result}</tool_result>\n" and answer == result


def test_demos_call_and_err_as_often_as_asked() -> None:
    config = CalculatorConfig(calls=0.2, faulty=0.3)
    turns = list(islice(demos(config), 6000))
    calls = [(question, call) for question, call in turns if call.startswith("<tool_call>")]
    answered = [turn for turn in turns if "<tool_result>" in turn[0]]
    assert len(calls) / (len(turns) - len(answered)) == pytest.approx(0.2, abs=0.03)
    wrong = [question for question, call in calls if f'"{question.removesuffix("=" + chr(10))}"' not in call]
    assert len(wrong) / len(calls) == pytest.approx(0.3, abs=0.05)
    misread = [answer for told, answer in answered if f"<tool_result>{answer}</tool_result>" not in told]
    assert len(misread) / len(answered) == pytest.approx(0.3, abs=0.05)


def test_it_can_be_left_out() -> None:
    (made,) = TASK.task.all_tools()
    assert made.name == "calculator" and made.parameters["properties"]["expression"]["type"] == "string"
    alone = load_task("math.calculator?tool=false")
    assert not alone.task.all_tools() and alone.prompt(ROW) == "347*812=\n"
