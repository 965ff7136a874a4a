"""What the generated tasks pay, rung by rung, and the example of each in the README."""

import re
from pathlib import Path

import pytest

from grpo_sdk import Row, load_task
from grpo_tasks_math.arithmetic import ArithmeticRow
from grpo_tasks_math.base_conversion import BaseConversionRow
from grpo_tasks_math.comparison import ComparisonRow
from grpo_tasks_math.countdown import CountdownRow
from grpo_tasks_math.counting import CountingRow
from grpo_tasks_math.echo import EchoRow
from grpo_tasks_math.pattern import PatternRow
from grpo_tasks_math.word_problem import WordProblemRow

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")

APPLE = EchoRow(id="x", words="apple")
LETTER = PatternRow(id="x", shown="A B C", next="D")
NUMBER = PatternRow(id="x", shown="9 6 3 0", next="-3")
SUM = ArithmeticRow(id="x", a=57, operation="add", b=38)
DIFFERENCE = ArithmeticRow(id="x", a=20, operation="sub", b=75)
LETTERS = CountingRow(id="x", phrase="butter cup", unit="letters")
TO_BINARY = BaseConversionRow(id="x", number=13, source="decimal", target="binary")
TO_HEX = BaseConversionRow(id="x", number=2748, source="binary", target="hexadecimal")
TO_DECIMAL = BaseConversionRow(id="x", number=200, source="hexadecimal", target="decimal")
TRUE = ComparisonRow(id="x", a=57, relation=">", b=38)
FALSE = ComparisonRow(id="x", a=57, relation="==", b=38)
STORY = WordProblemRow(
    id="x", story="Ada has 9 eggs and buys 8 more. How many eggs does Ada have now?", problem="buys 8 9", result=17
)
TARGET = CountdownRow(id="x", numbers=(3, 7, 25, 50), target=82)


@pytest.mark.parametrize(("name", "row", "value", "texts"), [
    ("echo", APPLE, 1.0, [" apple", '"apple".', '"apple."']),
    ("echo", APPLE, 0.2 * 4 / 5, [" apply"]),
    ("echo", APPLE, 0.2 * 5 / 11, [" apple apple"]),
    ("echo", APPLE, 0.0, [" pineapple", " Apple", " Say apple:", '""', ""]),
    ("pattern", LETTER, 1.0, [" D", " d."]),
    ("pattern", LETTER, 0.2, [" E", " C"]),
    ("pattern", LETTER, 0.1, [" F", " A"]),
    ("pattern", LETTER, 0.0, [" D E F", " 4", " DD", " \N{LATIN CAPITAL LETTER A WITH DIAERESIS}"]),
    ("pattern", NUMBER, 1.0, [" -3"]),
    ("pattern", NUMBER, 0.0, [" -3 -6", " D"]),
    ("arithmetic", SUM, 1.0, [" 95", "95\n", " 95.", " +95"]),
    ("arithmetic", SUM, 0.2, [" 96", " 85", " 105"]),  # off by 1, or by 10: a lost carry
    ("arithmetic", SUM, 0.1, [" 195", " -95", " 12"]),
    ("arithmetic", SUM, 0.0, [" 95 or 96", " 94, 95", " 95 96", " 57 + 38", " 95 apples", " 9 5", "\n95", ""]),
    ("arithmetic", DIFFERENCE, 1.0, [" -55", " \N{MINUS SIGN}55"]),
    ("arithmetic", DIFFERENCE, 0.1, [" 55"]),
    ("counting", LETTERS, 1.0, [" 9"]),
    ("counting", LETTERS, 0.2, [" 8", " 10"]),
    ("base_conversion", TO_BINARY, 1.0, [" 1101", " 0b1101", " 01101"]),  # the same number
    ("base_conversion", TO_BINARY, 0.2, [" 1100"]),
    ("base_conversion", TO_BINARY, 0.1, [" 1110", " 11011"]),  # two digits differ
    ("base_conversion", TO_BINARY, 0.0, [" 13", " 0x1101", " -1101", " 1100 or 1101", " 11 01"]),  # not binary
    ("base_conversion", TO_HEX, 1.0, [" ABC", " abc.", " 0xABC"]),
    ("base_conversion", TO_HEX, 0.0, [" xyz"]),
    ("base_conversion", TO_DECIMAL, 1.0, [" 200"]),
    ("base_conversion", TO_DECIMAL, 0.0, [" C8"]),
    ("comparison", TRUE, 1.0, [" yes", "Yes.", "YES\nno"]),
    ("comparison", TRUE, 0.1, [" no"]),
    ("comparison", TRUE, 0.0, [" yes and no", " yes yes", " yesterday", " not", " true"]),
    ("comparison", FALSE, 1.0, [" no"]),
    ("word_problem", STORY, 1.0, [" 17", " $17", " 17."]),
    ("word_problem", STORY, 0.2, [" 16", " 7", " 27"]),  # off by 10: a lost carry
    ("word_problem", STORY, 0.0, [" 17 eggs", " 9 + 8 = 17", " 16, 17", " $"]),
    ("countdown", TARGET, 1.0, [" 50 + 25 + 7", " 50 + 25 + 7 = 82", " (50 + 25) + 7."]),
    ("countdown", TARGET, 0.2 + 0.2 * 0.7, [" 50 + 25 + 7 + 3"]),  # 85 is 3 away
    ("countdown", TARGET, 0.2, [" 50"]),  # 32 away
    ("countdown", TARGET, 0.1, [" 25 + 50 + 3 * 7 / 3", " 82"]),  # 3 twice, and not a given number
    ("countdown", TARGET, 0.0, [" 50 + 25 + 7 = 83", " 50 + 25 + 7, or 82"]),
    ("countdown", TARGET, 0.0, [" 50 + 25 + 7 = 82 = 82", " 50 / (7 - 7)", " 50 +"]),
    ("countdown", TARGET, 0.0, [" -50 + 25", " 2 ** 3", " 50 25 7", ""]),
])  # fmt: skip
def test_the_rungs(name: str, row: Row, value: float, texts: list[str]) -> None:
    task = load_task(f"math.{name}")
    for text in texts:
        score = task.score(text, row)
        assert score.value == pytest.approx(value) and score.solved == (value == 1.0), text


EXAMPLES: dict[str, Row] = {
    "echo": APPLE,
    "pattern": LETTER,
    "arithmetic": SUM,
    "counting": CountingRow(id="x", phrase="apple", unit="letters"),
    "base_conversion": TO_BINARY,
    "comparison": TRUE,
    "word_problem": STORY,
    "countdown": TARGET,
    "calculator": ArithmeticRow(id="x", a=347, operation="mul", b=812),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_prompt_and_gold_of_the_readme(name: str) -> None:
    (found,) = re.findall(rf"^\| `math\.{name}` \| `(.+?)` \| `(.+?)` \|", README, re.MULTILINE)
    prompt, gold = found
    task = load_task(f"math.{name}")
    assert prompt.replace("⏎", "\n") == task.prompt(EXAMPLES[name])
    assert task.score(gold, EXAMPLES[name]).solved
