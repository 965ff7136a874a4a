import re
from collections import Counter
from collections.abc import Callable

from grpo_sdk import load_task
from grpo_tasks_math.word_problem import TEMPLATES, WordProblemRow

TASK = load_task("math.word_problem?size=600")


def test_stories_agree_with_their_numbers_and_never_show_their_answer() -> None:
    # The numbers as a reader finds them, in the order of the text, and the sum that the template tells.
    told: dict[str, Callable[..., float]] = {
        "buys": lambda a, b: a + b,
        "colours": lambda a, b: a + b,
        "gives": lambda a, b: a - b,
        "more than": lambda a, b: a - b,
        "boxes": lambda a, b: a * b,
        "days": lambda a, b: a * b,
        "shares": lambda a, b: a / b,
        "loses and finds": lambda a, b, c: a - b + c,
        "boxes and gives": lambda a, b, c: a * b - c,
        "change": lambda a, b, c: c - a * b,
        "two kinds": lambda a, b, c: a * b + c,
    }
    assert set(told) == {template.name for template in TEMPLATES}
    seen = Counter[str]()
    for row in TASK.rows():
        assert isinstance(row, WordProblemRow)
        name = re.split(r" (?=\d)", row.problem)[0]
        numbers = [int(number) for number in re.findall(r"\d+", row.story)]
        assert told[name](*numbers) == row.result >= 0
        assert row.result not in numbers
        assert row.difficulty == {template.name: template.level for template in TEMPLATES}[name]
        assert "{" not in row.story and row.story.endswith("?")
        seen[name] += 1
    assert set(seen) == set(told)


def test_the_same_numbers_under_other_names_are_one_problem() -> None:
    rows = [row for row in TASK.rows() if isinstance(row, WordProblemRow)]
    problems = [row.problem for row in rows]
    assert len(set(problems)) == len(problems)
    commuting = {template.name for template in TEMPLATES if template.commutes}
    for problem in problems:
        name, *numbers = re.split(r" (?=\d)", problem)
        if name in commuting:
            assert int(numbers[0]) <= int(numbers[1])
