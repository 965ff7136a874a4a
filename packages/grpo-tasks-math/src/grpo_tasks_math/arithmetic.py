"""`math.arithmetic`: "57 + 38 =" -> " 95"."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from random import Random
from typing import Literal

from pydantic import Field

from grpo_sdk import Row, Task
from grpo_sdk.data import CommaSeparated, ProceduralConfig, procedural, split_of
from grpo_tasks_math.integers import REWARDS
from grpo_tasks_math.parsing import one_integer

Operation = Literal["add", "sub", "mul"]

SYMBOLS: dict[Operation, str] = {"add": "+", "sub": "-", "mul": "*"}

LEVELS: dict[int, tuple[tuple[Operation, ...], tuple[int, int], tuple[int, int]]] = {
    1: (("add", "sub"), (0, 9), (0, 9)),
    2: (("add", "sub"), (10, 99), (10, 99)),
    3: (("add", "sub"), (100, 999), (100, 999)),
    4: (("mul",), (2, 9), (10, 99)),
}
"""Level -> operations, unless the options name them, and inclusive ranges of the two operands."""


class ArithmeticConfig(ProceduralConfig):
    """Options of `math.arithmetic`.

    Attributes:
        min_difficulty: Easiest level: 1 one digit, 2 two digits, 3 three digits (each + and −), 4 one digit times two.
        max_difficulty: Hardest level.
        operations: `add`, `sub`, `mul`, separated by commas; by default those of the level.
        shots: Solved examples before the question, for models that do not know the format.
    """

    min_difficulty: int = Field(default=2, ge=1, le=4)
    max_difficulty: int = Field(default=2, ge=1, le=4)
    operations: CommaSeparated[Operation] = ()
    shots: int = Field(default=0, ge=0, le=16)


class ArithmeticRow(Row):
    """One problem; gold is the result after a space.

    Attributes:
        a: Left operand.
        operation: Operation.
        b: Right operand.
    """

    a: int
    operation: Operation
    b: int

    @property
    def result(self) -> int:
        """The exact result."""
        match self.operation:
            case "add":
                return self.a + self.b
            case "sub":
                return self.a - self.b
            case "mul":
                return self.a * self.b


def load(config: ArithmeticConfig) -> Iterator[ArithmeticRow]:
    """Sums, differences (negative ones too) and products of whole numbers."""
    return procedural(config, lambda random, level: _make(random, level, config.operations), content=content)


def _make(random: Random, level: int, operations: tuple[Operation, ...]) -> ArithmeticRow:
    default_operations, *ranges = LEVELS[level]
    operation = random.choice(operations or default_operations)
    operands = [random.randint(low, high) for low, high in ranges]
    random.shuffle(operands)  # so that a product's short operand stands on either side
    row = ArithmeticRow(id="", a=operands[0], operation=operation, b=operands[1], difficulty=float(level))
    return row.model_copy(update={"gold": f" {row.result}"})


def content(row: ArithmeticRow) -> str:
    """What makes two rows the same problem: 3 + 4 is 4 + 3, but 3 − 4 is not 4 − 3."""
    a, b = (row.a, row.b) if row.operation == "sub" else sorted((row.a, row.b))
    return f"{a} {SYMBOLS[row.operation]} {b}"


def prompt(row: ArithmeticRow, config: ArithmeticConfig) -> str:
    """The question, after the configured number of solved examples from the train split."""
    examples = [example for example in _examples(int(row.difficulty or 2), config) if content(example) != content(row)]
    solved = "".join(f"{_question(example)}{example.gold}\n" for example in examples[: config.shots])
    return solved + _question(row)


@lru_cache(maxsize=64)
def _examples(level: int, config: ArithmeticConfig) -> tuple[ArithmeticRow, ...]:
    """Return one example more than `shots`, in case the row itself is one; all are of the train split."""
    if not config.shots:
        return ()
    examples: dict[str, ArithmeticRow] = {}
    random = Random(f"shots/{level}")
    while len(examples) <= config.shots:
        row = _make(random, level, config.operations)
        if split_of(content(row)) == "train":
            examples.setdefault(content(row), row)
    return tuple(examples.values())


def _question(row: ArithmeticRow) -> str:
    return f"{row.a} {SYMBOLS[row.operation]} {row.b} ="


TASK = Task(
    "arithmetic",
    load,
    prompt,
    one_integer,
    REWARDS,
    config=ArithmeticConfig,
    row=ArithmeticRow,
    stop=("\n",),
    max_completion_length=12,  # "-1998" and a newline, a token per character, with room
    default_model="tiny",
    on_timeout="fail",
)
"""Value: 1.0 exact, 0.2 near, 0.1 another integer, 0.0 no integer."""
