"""`math.word_problem`: short generated stories whose answer is a whole number, never negative."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random

from pydantic import Field

from grpo_sdk import Row, Task
from grpo_sdk.data import procedural
from grpo_tasks_math.integers import REWARDS
from grpo_tasks_math.levels import ThreeLevels
from grpo_tasks_math.parsing import one_integer
from grpo_tasks_math.words import NAMES, THINGS


class WordProblemConfig(ThreeLevels):
    """Options of `math.word_problem`.

    Attributes:
        min_difficulty: Easiest level: 1 one sum or difference, 2 one product or quotient, 3 two steps.
        max_difficulty: Hardest level.
    """


class WordProblemRow(Row):
    """A story.

    Attributes:
        story: The story and its question.
        problem: Template and numbers, without names and things.
        result: Answer.
    """

    story: str
    problem: str
    result: int = Field(ge=0)


Numbers = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Template:
    """One kind of story.

    Attributes:
        name: Name of the template in `WordProblemRow.problem`.
        level: Difficulty.
        text: Story, with {numbers}, {name}, {other} and {things}.
        draw: Draws the numbers; stories with a negative result are not used.
        result: Computes the answer.
        commutes: Whether `a` and `b` may change places.
    """

    name: str
    level: int
    text: str
    draw: Callable[[Random], Numbers]
    result: Callable[[Numbers], int]
    commutes: bool = False


def _between(**ranges: tuple[int, int]) -> Callable[[Random], Numbers]:
    return lambda random: {name: random.randint(*bounds) for name, bounds in ranges.items()}


def _shared(random: Random) -> Numbers:
    friends, share = random.randint(2, 12), random.randint(2, 30)
    return {"a": friends * share, "b": friends}


def _paid(random: Random) -> Numbers:
    count, price = random.randint(2, 9), random.randint(2, 9)
    return {"a": count, "b": price, "c": random.choice([note for note in (20, 50, 100) if note > count * price])}


TEMPLATES = (
    Template(
        "buys",
        1,
        "{name} has {a} {things} and buys {b} more. How many {things} does {name} have now?",
        _between(a=(2, 60), b=(2, 60)),
        lambda n: n["a"] + n["b"],
        commutes=True,
    ),
    Template(
        "colours",
        1,
        "There are {a} red {things} and {b} blue {things} on a table. How many {things} are on the table?",
        _between(a=(2, 60), b=(2, 60)),
        lambda n: n["a"] + n["b"],
        commutes=True,
    ),
    Template(
        "gives",
        1,
        "{name} has {a} {things} and gives {b} of them to {other}. How many {things} does {name} have left?",
        _between(a=(5, 99), b=(2, 98)),
        lambda n: n["a"] - n["b"],
    ),
    Template(
        "more than",
        1,
        "{name} has {a} {things}. {other} has {b} {things}. How many more {things} does {name} have than {other}?",
        _between(a=(5, 99), b=(2, 98)),
        lambda n: n["a"] - n["b"],
    ),
    Template(
        "boxes",
        2,
        "{name} packs {a} boxes with {b} {things} each. How many {things} does {name} pack?",
        _between(a=(2, 30), b=(3, 30)),
        lambda n: n["a"] * n["b"],
        commutes=True,
    ),
    Template(
        "days",
        2,
        "{name} draws {a} pictures every day. How many pictures does {name} draw in {b} days?",
        _between(a=(2, 30), b=(3, 30)),
        lambda n: n["a"] * n["b"],
        commutes=True,
    ),
    Template(
        "shares",
        2,
        "{name} shares {a} {things} equally among {b} friends. How many {things} does each friend get?",
        _shared,
        lambda n: n["a"] // n["b"],
    ),
    Template(
        "loses and finds",
        3,
        "{name} has {a} {things}, loses {b} of them and then finds {c}. How many {things} does {name} have now?",
        _between(a=(10, 60), b=(2, 40), c=(2, 40)),
        # Losing comes before finding, so the intermediate result must not be negative either.
        lambda n: n["a"] - n["b"] + n["c"] if n["a"] >= n["b"] else -1,
    ),
    Template(
        "boxes and gives",
        3,
        "{name} has {a} boxes with {b} {things} each and gives {c} {things} to {other}. "
        "How many {things} does {name} have left?",
        _between(a=(2, 9), b=(3, 12), c=(2, 40)),
        lambda n: n["a"] * n["b"] - n["c"],
        commutes=True,
    ),
    Template(
        "change",
        3,
        "{name} buys {a} tickets for ${b} each and pays with a ${c} note. How many dollars does {name} get back?",
        _paid,
        lambda n: n["c"] - n["a"] * n["b"],
        commutes=True,
    ),
    Template(
        "two kinds",
        3,
        "A shop sells {a} bags with {b} {things} each and {c} single {things}. How many {things} does it sell?",
        _between(a=(2, 12), b=(3, 20), c=(2, 30)),
        lambda n: n["a"] * n["b"] + n["c"],
        commutes=True,
    ),
)


def load(config: WordProblemConfig) -> Iterator[WordProblemRow]:
    """Short stories of one or two steps, from templates."""
    return procedural(config, _make, content=lambda row: row.problem)


def _make(random: Random, level: int) -> WordProblemRow:
    template = random.choice([template for template in TEMPLATES if template.level == level])
    while True:
        numbers = template.draw(random)
        result = template.result(numbers)
        if result >= 0 and result not in numbers.values():  # copying a number of the story must earn nothing
            break
    name, other = random.sample(NAMES, 2)
    story = template.text.format(name=name, other=other, things=random.choice(THINGS), **numbers)
    a, b, *rest = numbers.values()
    pair = sorted((a, b)) if template.commutes else (a, b)
    problem = " ".join([template.name, *map(str, (*pair, *rest))])
    return WordProblemRow(id="", story=story, problem=problem, result=result, gold=f" {result}")


def prompt(row: WordProblemRow) -> str:
    """The story, its question, and where the answer goes."""
    return f"{row.story}\nAnswer:"


_DOLLARS = re.compile(r"[$€](?=[0-9])")


def validate(text: str) -> int:
    """One integer on the first line; a currency sign before it does not count."""
    return one_integer(_DOLLARS.sub("", text, count=1))


TASK = Task(
    "word_problem",
    load,
    prompt,
    validate,
    REWARDS,
    config=WordProblemConfig,
    row=WordProblemRow,
    stop=("\n",),
    max_completion_length=12,  # a sign, four digits and a newline, with room
    on_timeout="fail",
)
"""Value: 1.0 exact, 0.2 near, 0.1 another integer, 0.0 no integer."""
