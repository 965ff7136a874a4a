"""`code.output_prediction`: what does this program print? It also trains opponents for `code.prediction_game`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random

from pydantic import Field

from grpo_sdk import Invalid, Row, Task, reward
from grpo_sdk.data import ProceduralConfig, procedural
from grpo_tasks_code.extraction import block_of
from grpo_tasks_code.programs.generator import LEVELS, canonical, generate, kinds_of

MAX_ANSWER_CHARS = 200
"""Longer first lines are refused; the longest output is far shorter."""

_INTEGER = re.compile(r"-?[0-9]{1,15}")


class OutputPredictionConfig(ProceduralConfig):
    """Options of `code.output_prediction`.

    Attributes:
        min_difficulty: Easiest level: 1 one expression, 2 variables, 3 loops and branches, 4 functions, lists, strings.
        max_difficulty: Hardest level.
    """

    min_difficulty: int = Field(default=1, ge=1, le=LEVELS)
    max_difficulty: int = Field(default=LEVELS, ge=1, le=LEVELS)


class OutputPredictionRow(Row):
    """A program and its output; gold is the output after a space.

    Attributes:
        source: Source of the program.
        output: Its one line of output.
    """

    source: str
    output: str


def load(config: OutputPredictionConfig) -> Iterator[OutputPredictionRow]:
    """Generated programs, whose one line of output is to be predicted."""
    return procedural(config, _make, content=lambda row: canonical(row.source))


def _make(random: Random, level: int) -> OutputPredictionRow:
    program = generate(random, kinds_of(level))
    return OutputPredictionRow(id="", source=program.source, output=program.output, gold=f" {program.output}")


def question(source: str) -> str:
    """Ask for a program's output."""
    return f"What does this program print? Answer with its output alone.\n{block_of(source)}\nOutput:"


def prompt(row: OutputPredictionRow) -> str:
    """The program, and the question."""
    return question(row.source)


def validate(text: str) -> str:
    """Return the first line, without surrounding white space, quotes and backticks.

    Raises:
        Invalid: the line is empty or longer than `MAX_ANSWER_CHARS`.
    """
    line = text[: MAX_ANSWER_CHARS + 1].partition("\n")[0]
    if len(line) > MAX_ANSWER_CHARS:
        raise Invalid(f"an answer of more than {MAX_ANSWER_CHARS} characters")
    answer = line.strip().strip("`'\"")
    if not answer:
        raise Invalid("no answer on the first line")
    return answer


@reward(0.1)
def form(answer: str, row: OutputPredictionRow) -> float:
    """1 when the answer is a whole number and so is the output, or neither is."""
    return float(_is_integer(answer) == _is_integer(row.output))


@reward(0.1, needs="form")
def close(answer: str, row: OutputPredictionRow) -> float:
    """For numbers, 1 when they differ by at most 1; for texts, the length of the common prefix over the longer one."""
    if _is_integer(answer):
        return float(abs(int(answer) - int(row.output)) <= 1)
    same = next(
        (i for i, (a, b) in enumerate(zip(answer, row.output, strict=False)) if a != b),
        min(len(answer), len(row.output)),
    )
    return same / max(len(answer), len(row.output))


@reward(0.8)
def exact(answer: str, row: OutputPredictionRow) -> float:
    """1 when the answer is the output."""
    return float(answer == row.output)


def _is_integer(text: str) -> bool:
    return _INTEGER.fullmatch(text) is not None


TASK = Task(
    "output_prediction",
    load,
    prompt,
    validate,
    (form, close, exact),
    config=OutputPredictionConfig,
    row=OutputPredictionRow,
    stop=("\n",),
    max_completion_length=48,  # the longest output and a newline, a token per character, with room
    default_model="code-tiny",
    on_timeout="fail",
)
"""Value: 1.0 exact; 0.2 a number that is off by 1; up to 0.2 a text with the same beginning; 0.1 the right form."""
