"""`math.comparison`: "Is 57 > 38? Answer yes or no:" -> " yes"."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from random import Random
from typing import Literal

from grpo_sdk import Invalid, Row, Task, reward
from grpo_sdk.data import procedural
from grpo_tasks_math.levels import ThreeLevels
from grpo_tasks_math.parsing import first_line

Relation = Literal[">", "<", "=="]

_HOLDS = {">": operator.gt, "<": operator.lt, "==": operator.eq}
_RELATIONS: tuple[Relation, ...] = (">", "<", "==")
_RELATION_WEIGHTS = (2, 2, 1)
"""Equality is rarer, because half of its questions need one of the few pairs of equal numbers."""

LIMITS = {1: (0, 100), 2: (-1000, 1000), 3: (-100_000, 100_000)}
"""Level -> inclusive range of both numbers."""


class ComparisonConfig(ThreeLevels):
    """Options of `math.comparison`.

    Attributes:
        min_difficulty: Easiest level: 1 numbers from 0 to 100, 2 to ±1000, 3 to ±100000 and close to each other.
        max_difficulty: Hardest level.
    """


class ComparisonRow(Row):
    """A statement about two numbers.

    Attributes:
        a: Left number.
        relation: Relation that the statement claims.
        b: Right number.
    """

    a: int
    relation: Relation
    b: int

    @property
    def truth(self) -> bool:
        """Whether the statement holds."""
        return bool(_HOLDS[self.relation](self.a, self.b))


def load(config: ComparisonConfig) -> Iterator[ComparisonRow]:
    """Statements about two numbers, true as often as false."""
    return procedural(config, _make, content=content)


def _make(random: Random, level: int) -> ComparisonRow:
    relation = random.choices(_RELATIONS, _RELATION_WEIGHTS)[0]
    truth = random.random() < 0.5
    while True:
        a, b = _pair(random, level, equal=relation == "==" and truth)
        row = ComparisonRow(id="", a=a, relation=relation, b=b)
        if row.truth == truth:
            return row.model_copy(update={"gold": " yes" if truth else " no"})


def _pair(random: Random, level: int, *, equal: bool) -> tuple[int, int]:
    low, high = LIMITS[level]
    a = random.randint(low, high)
    if equal:
        return a, a
    if level < 3:
        return a, random.randint(low, high)
    # Close numbers share their leading digits: the comparison is decided late.
    return a, a + random.choice((-1, 1)) * 10 ** random.randint(0, 3) * random.randint(1, 9)


def content(row: ComparisonRow) -> str:
    """What makes two rows the same problem: any two questions about the same two numbers."""
    return " ".join(map(str, sorted((row.a, row.b))))


def prompt(row: ComparisonRow) -> str:
    """The question."""
    return f"Is {row.a} {row.relation} {row.b}? Answer yes or no:"


def validate(text: str) -> bool:
    """Yes or no as the whole first line; case and a final full stop do not count."""
    match first_line(text).removesuffix(".").lower():
        case "yes":
            return True
        case "no":
            return False
    raise Invalid("the line is neither yes nor no")


@reward(0.1)
def yes_or_no(answer: bool) -> float:
    """1: the answer is yes or no."""
    return 1.0


@reward(0.9)
def exact(answer: bool, row: ComparisonRow) -> float:
    """1 when the answer is right."""
    return float(answer == row.truth)


TASK = Task(
    "comparison",
    load,
    prompt,
    validate,
    (yes_or_no, exact),
    config=ComparisonConfig,
    row=ComparisonRow,
    stop=("\n",),
    max_completion_length=8,  # " yes." and a newline, a token per character
    exempt={"leak": "the prompt names both possible answers"},
    on_timeout="fail",
)
"""Value: 1.0 right, 0.1 wrong, 0.0 neither yes nor no."""
