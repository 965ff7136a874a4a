"""`math.base_conversion`: "Convert 13 from decimal to binary:" -> " 1101"; also hexadecimal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from typing import Literal

from grpo_sdk import Invalid, Row, Task, reward
from grpo_sdk.data import procedural
from grpo_tasks_math.levels import ThreeLevels
from grpo_tasks_math.parsing import first_line

Base = Literal["binary", "decimal", "hexadecimal"]

BASES: tuple[Base, ...] = ("binary", "decimal", "hexadecimal")
RANGES = {1: (0, 15), 2: (16, 255), 3: (256, 4095)}
"""Level -> inclusive range of the number."""

_FORMAT: dict[Base, str] = {"binary": "b", "decimal": "d", "hexadecimal": "X"}
_NUMERAL: dict[Base, re.Pattern[str]] = {
    "binary": re.compile(r"(?:0[bB])?([01]{1,32})"),
    "decimal": re.compile(r"([0-9]{1,32})"),
    "hexadecimal": re.compile(r"(?:0[xX])?([0-9a-fA-F]{1,32})"),
}


class BaseConversionConfig(ThreeLevels):
    """Options of `math.base_conversion`.

    Attributes:
        min_difficulty: Easiest level: 1 numbers from 0 to 15, 2 to 255, 3 to 4095.
        max_difficulty: Hardest level.
    """


class BaseConversionRow(Row):
    """A number to write in another base.

    Attributes:
        number: Value of the number.
        source: Base of the number in the prompt.
        target: Base of the answer.
    """

    number: int
    source: Base
    target: Base

    @property
    def numeral(self) -> str:
        """The number in the target base, hexadecimal in capitals."""
        return format(self.number, _FORMAT[self.target])


def load(config: BaseConversionConfig) -> Iterator[BaseConversionRow]:
    """Numbers to write in another base: binary, decimal, hexadecimal."""
    return procedural(config, _make, content=content)


def _make(random: Random, level: int) -> BaseConversionRow:
    while True:
        source, target = random.sample(BASES, 2)
        number = random.randint(*RANGES[level])
        row = BaseConversionRow(id="", number=number, source=source, target=target)
        if row.numeral != format(number, _FORMAT[source]):  # 7 is 7 in hexadecimal: copying must not pay
            return row.model_copy(update={"gold": f" {row.numeral}"})


def content(row: BaseConversionRow) -> str:
    """What makes two rows the same problem: a conversion and its inverse share their answer."""
    return " ".join([str(row.number), *sorted((row.source, row.target))])


def prompt(row: BaseConversionRow) -> str:
    """The request."""
    return f"Convert {format(row.number, _FORMAT[row.source])} from {row.source} to {row.target}:"


def validate(text: str, row: BaseConversionRow) -> str:
    """The numeral of the target base on the first line, in capitals, without 0b, 0x and leading zeros."""
    match = _NUMERAL[row.target].fullmatch(first_line(text).removesuffix("."))
    if match is None:
        raise Invalid(f"the line is not one {row.target} numeral")
    return match[1].upper().lstrip("0") or "0"


@reward(0.1)
def digits(answer: str) -> float:
    """1: a numeral of the target base was given."""
    return 1.0


@reward(0.1)
def near(answer: str, row: BaseConversionRow) -> float:
    """1 when the answer is as long as the numeral and at most one digit differs."""
    return float(len(answer) == len(row.numeral) and sum(a != b for a, b in zip(answer, row.numeral, strict=True)) <= 1)


@reward(0.8)
def exact(answer: str, row: BaseConversionRow) -> float:
    """1 when the answer is the numeral."""
    return float(answer == row.numeral)


TASK = Task(
    "base_conversion",
    load,
    prompt,
    validate,
    (digits, near, exact),
    config=BaseConversionConfig,
    row=BaseConversionRow,
    stop=("\n",),
    max_completion_length=20,  # twelve binary digits and a newline, a token per character, with room
    on_timeout="fail",
)
"""Value: 1.0 exact, 0.2 with one digit wrong, 0.1 another numeral of the base, 0.0 no numeral."""
