"""`math.echo`: "Say apple:" -> " apple", the easiest verifiable task there is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from random import Random
from string import ascii_lowercase

from grpo_sdk import Row, Task, reward
from grpo_sdk.data import procedural
from grpo_tasks_math.levels import ThreeLevels
from grpo_tasks_math.parsing import first_line
from grpo_tasks_math.words import WORDS


class EchoConfig(ThreeLevels):
    """Options of `math.echo`.

    Attributes:
        min_difficulty: Easiest level: 1 one word, 2 two words, 3 a made-up word of 4 to 8 letters.
        max_difficulty: Hardest level.
    """


class EchoRow(Row):
    """Words to repeat.

    Attributes:
        words: Words to repeat.
    """

    words: str


def load(config: EchoConfig) -> Iterator[EchoRow]:
    """Words to repeat."""
    return procedural(config, _make, content=lambda row: row.words)


def _make(random: Random, level: int) -> EchoRow:
    if level == 3:
        words = "".join(random.choices(ascii_lowercase, k=random.randint(4, 8)))
    else:
        words = " ".join(random.sample(WORDS, level))
    return EchoRow(id="", words=words, gold=f" {words}")


def prompt(row: EchoRow) -> str:
    """The request."""
    return f"Say {row.words}:"


def validate(text: str) -> str:
    """Return the first line, without surrounding quotes and full stop; case matters."""
    return first_line(text).strip("\"'.")


@reward(0.2)
def prefix(answer: str, row: EchoRow) -> float:
    """Length of the common prefix over the length of the longer text: "apply" for "apple" has 4 of 5."""
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(answer, row.words, strict=False)))
    return common / max(len(answer), len(row.words))


@reward(0.8)
def exact(answer: str, row: EchoRow) -> float:
    """1 when the answer is the words, and nothing else."""
    return float(answer == row.words)


TASK = Task(
    "echo",
    load,
    prompt,
    validate,
    (prefix, exact),
    config=EchoConfig,
    row=EchoRow,
    stop=("\n",),
    max_completion_length=24,  # two words of eight letters and a newline, a token per character, with room
    exempt={"leak": "repeating the prompt's words is the task"},
    on_timeout="fail",
)
"""Value: 1.0 exact, at most 0.2 for a common beginning, 0.0 for none."""
