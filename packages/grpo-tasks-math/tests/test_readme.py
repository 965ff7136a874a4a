"""What the package's README says about its tasks is true."""

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

EXAMPLES: dict[str, Row] = {
    "echo": EchoRow(id="x", words="apple"),
    "pattern": PatternRow(id="x", shown="A B C", next="D"),
    "arithmetic": ArithmeticRow(id="x", a=57, operation="add", b=38),
    "counting": CountingRow(id="x", phrase="apple", unit="letters"),
    "base_conversion": BaseConversionRow(id="x", number=13, source="decimal", target="binary"),
    "comparison": ComparisonRow(id="x", a=57, relation=">", b=38),
    "word_problem": WordProblemRow(
        id="x", story="Ada has 9 eggs and buys 8 more. How many eggs does Ada have now?", problem="buys 8 9", result=17
    ),
    "countdown": CountdownRow(id="x", numbers=(3, 7, 25, 50), target=82),
    "calculator": ArithmeticRow(id="x", a=347, operation="mul", b=812),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_prompt_and_gold_of_the_table(name: str) -> None:
    (found,) = re.findall(rf"^\| `math\.{name}` \| `(.+?)` \| `(.+?)` \|", README, re.MULTILINE)
    prompt, gold = found
    task = load_task(f"math.{name}")
    assert prompt.replace("⏎", "\n") == task.prompt(EXAMPLES[name])
    assert task.score(gold, EXAMPLES[name]).solved
