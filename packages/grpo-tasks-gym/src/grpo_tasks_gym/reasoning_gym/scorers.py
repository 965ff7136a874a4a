"""reasoning-gym's scorers, run so that no completion is executed.

Several scorers of version 0.1.25 pass the answer to `eval`, or to `sympy.parse_expr`, which calls it: an answer could
run any Python. Here such an answer must be a literal, or arithmetic with names of a list.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from grpo_sdk import Invalid
from grpo_tasks_gym.reasoning_gym.entries import decode
from grpo_tasks_gym.reasoning_gym.options import GymConfig
from grpo_tasks_gym.reasoning_gym.rows import GymRow
from grpo_tasks_gym.reasoning_gym.sources import dataset_of

EXPRESSIONS: Mapping[str, tuple[str, ...]] = {
    "bitwise_arithmetic": ("problem",),
    "countdown": (),
    "intermediate_integration": ("integrand", "variable"),
    "polynomial_multiplication": (),
    "puzzle24": (),
    "simple_integration": ("integrand", "variable"),
}
"""Data sets that evaluate expressions -> fields of their metadata that are expressions, as the answer is."""

FUNCTIONS = frozenset({
    "Abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "cot", "csc", "erf", "exp", "ln", "log",
    "pi", "sec", "sin", "sinh", "sqrt", "tan", "tanh",
})  # fmt: skip
"""Names in an expression besides single letters."""

NO_NUMBERS: Mapping[str, re.Pattern[str]] = {
    "coin_flip": re.compile(r"e[+-]?\d{4}", re.IGNORECASE),
    "complex_arithmetic": re.compile(r"nan|inf", re.IGNORECASE),
}
"""Data sets -> what no answer has: exponents that take seconds, and numbers that earn 1 whatever the gold."""

MAX_EXPRESSION_CHARS = 2000

_TOKENS = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+|[A-Za-z][A-Za-z0-9]*|[-+*/%^&|~<>(), ]|\s")


def score(config: GymConfig, row: GymRow, answer: str) -> float:
    """Value of an answer, by the scorer of the row's data set.

    Raises:
        Invalid: the answer is no expression where one is evaluated.
        Exception: whatever the scorer raises.
    """
    dataset = dataset_of(config, row.level)
    metadata = decode(row.metadata)
    if not isinstance(metadata, dict):
        raise ValueError("an entry without metadata")
    name = str(metadata["source_dataset"]) if config.dataset == "composite" else config.dataset
    if name in EXPRESSIONS:
        for field in EXPRESSIONS[name]:
            _check_expression(str(metadata.get(field, "")))
        _check_expression(row.answer or "")
        _check_expression(answer)
    if name in NO_NUMBERS and NO_NUMBERS[name].search(answer):
        raise Invalid("a number that is not finite, or too large")
    entry = {"question": row.question, "answer": row.answer, "metadata": metadata}
    return float(dataset.score_answer(answer, entry))


def _check_expression(text: str) -> None:
    """Refuse text in which a call could reach anything but a function of mathematics."""
    if len(text) > MAX_EXPRESSION_CHARS:
        raise Invalid("an expression of more than 2,000 characters")
    end = 0
    for token in _TOKENS.finditer(text):
        if token.start() != end:
            break
        end = token.end()
        word = token.group()
        if word[0].isalpha() and len(word) > 1 and word not in FUNCTIONS:
            raise Invalid(f"{word[:40]!r} is no name of an expression")
    if end != len(text):
        raise Invalid(f"{text[end : end + 1]!r} cannot be part of an expression")
