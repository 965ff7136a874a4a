"""`math.counting`: words of a phrase, letters of a word, one letter's occurrences."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Literal

from grpo_sdk import Row, Task
from grpo_sdk.data import procedural
from grpo_tasks_math.integers import REWARDS
from grpo_tasks_math.levels import ThreeLevels
from grpo_tasks_math.parsing import one_integer
from grpo_tasks_math.words import WORDS

MAX_WORDS = 6


class CountingConfig(ThreeLevels):
    """Options of `math.counting`.

    Attributes:
        min_difficulty: Easiest level: 1 words of a phrase, 2 letters of one or two words, 3 one letter's occurrences.
        max_difficulty: Hardest level.
    """


class CountingRow(Row):
    """A phrase and the unit to count in it.

    Attributes:
        phrase: Words separated by single spaces.
        unit: Unit to count.
        letter: Letter to count, if the unit is `letter`.
    """

    phrase: str
    unit: Literal["words", "letters", "letter"]
    letter: str = ""

    @property
    def result(self) -> int:
        """The count."""
        match self.unit:
            case "words":
                return len(self.phrase.split())
            case "letters":
                return len(self.phrase.replace(" ", ""))
            case "letter":
                return self.phrase.count(self.letter)


def load(config: CountingConfig) -> Iterator[CountingRow]:
    """Short phrases whose words or letters are counted."""
    return procedural(config, _make, content=content)


def _make(random: Random, level: int) -> CountingRow:
    match level:
        case 1:
            row = CountingRow(id="", phrase=_phrase(random, 2, MAX_WORDS), unit="words")
        case 2:
            row = CountingRow(id="", phrase=_phrase(random, 1, 2), unit="letters")
        case _:
            phrase = _phrase(random, 1, 4)
            letter = random.choice(phrase.replace(" ", ""))  # by its frequency, so that 1 is not always right
            row = CountingRow(id="", phrase=phrase, unit="letter", letter=letter)
    return row.model_copy(update={"gold": f" {row.result}"})


def _phrase(random: Random, fewest: int, most: int) -> str:
    return " ".join(random.sample(WORDS, random.randint(fewest, most)))


def content(row: CountingRow) -> str:
    """What makes two rows the same problem: the order of the words does not matter."""
    return " ".join([row.unit, row.letter, *sorted(row.phrase.split())])


def prompt(row: CountingRow) -> str:
    """The question."""
    match row.unit:
        case "letter":
            question = f'How many times does the letter "{row.letter}" appear in "{row.phrase}"?'
        case unit:
            question = f'How many {unit} are in "{row.phrase}"?'
    return f"{question} Answer:"


TASK = Task(
    "counting",
    load,
    prompt,
    one_integer,
    REWARDS,
    config=CountingConfig,
    row=CountingRow,
    stop=("\n",),
    max_completion_length=8,  # two digits and a newline, with room
    on_timeout="fail",
)
"""Value: 1.0 exact, 0.2 near, 0.1 another integer, 0.0 no integer."""
