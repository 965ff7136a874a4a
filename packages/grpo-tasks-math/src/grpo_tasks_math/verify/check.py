"""The verifier: extract, read, compare exactly, and use the symbolic engine only where that is undecided."""

from __future__ import annotations

import math
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import get_args

from grpo_core import UserError
from grpo_tasks_math.verify import pool
from grpo_tasks_math.verify.bounds import computations, is_too_large
from grpo_tasks_math.verify.compare import EXACT, LONGEST_SYMBOL, Equality, compare, spelling
from grpo_tasks_math.verify.extract import MAX_GOLD_CHARS, Decimals, extract, read_gold, states
from grpo_tasks_math.verify.values import Based, Formula, Number, Value, Words

DEFAULT_TIMEOUT_S = 3.0
"""Time of one symbolic check; ordinary ones take 2 to 80 ms."""


class Verdict(StrEnum):
    """Verdict on a completion's final answer.

    `correct`: it equals the gold. `wrong`: it is an answer and is not shown to equal the gold, or is larger than the
    bounds of what is compared. `unparsable`: there is no answer, or it cannot be read. `timeout`: it is within the
    bounds, and the symbolic check still used up its time or memory or killed its worker; tasks count that as a failure
    of the completion.
    """

    CORRECT = "correct"
    WRONG = "wrong"
    UNPARSABLE = "unparsable"
    TIMEOUT = "timeout"


def verify(
    gold: str,
    completion: str,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    *,
    decimals: Decimals = "point",
    rel_tol: float = 0.0,
) -> Verdict:
    """Judge the final answer of a completion against the gold answer.

    The answer is found by `extract` and read by `read`; `compare` decides numbers, choices, words and lists exactly.
    Only formulas within the size bounds of `bounds` go to math-verify, in killable workers that all threads of the
    process share (started on first use). What is compared is the value: an unreduced fraction or an unevaluated sum
    equals its value, so a task whose prompt is itself an expression has to check the form besides. A gold that is no
    mathematics (words, a name, `Player 2`) is compared by its normalised spelling with the answer as it stands; one
    that is empty or too long to read, with the whole completion.

    Args:
        gold: The expected answer, plain or LaTeX, or a solution that states it.
        completion: Any text.
        timeout_s: Seconds of work given to the symbolic check, more than 0; waiting for a free worker is not counted.
        decimals: `point`: `1,5` is two numbers. `comma`: it is 1.5, and `1.234,5` is 1234.5; a list then has a space or
            a semicolon between its members. Points are decimal points either way.
        rel_tol: Largest difference between two numbers, relative to the gold: 0.01 takes 0.33 for 1/3. By default an
            approximation is another number.

    Raises:
        UserError: a `timeout_s` that is no positive number, other `decimals`, a `rel_tol` outside [0, 1).
        InfrastructureError: the symbolic check was needed and no worker could be started.
    """
    if not (timeout_s > 0 and math.isfinite(timeout_s)):
        raise UserError(f"verify(timeout_s={timeout_s}): give a positive, finite number of seconds.")
    if decimals not in get_args(Decimals):
        raise UserError(f"verify(decimals={decimals!r}): it is one of {', '.join(get_args(Decimals))}.")
    if not 0.0 <= rel_tol < 1.0:
        raise UserError(f"verify(rel_tol={rel_tol}): give a number from 0 up to 1, such as 0.01 for one percent.")
    expected = _read_gold(gold, decimals) if len(gold) <= MAX_GOLD_CHARS else None
    if expected is None:
        return Verdict.CORRECT if gold.strip() and gold.strip() == completion.strip() else Verdict.WRONG
    if isinstance(expected, Words) and expected.is_prose and states(completion, expected, decimals):
        return Verdict.CORRECT
    answer = extract(completion, decimals)
    if answer is None:
        return Verdict.UNPARSABLE
    # By its decimal spelling: 0.01 in floating point is slightly more than a hundredth.
    tolerance = Fraction(str(rel_tol)) if rel_tol else Fraction(0)
    is_equal = compare(expected, answer, Equality(rel_tol=tolerance) if rel_tol else EXACT)
    if is_equal is None:
        return _verify_symbolically(expected, answer, timeout_s, tolerance)
    if not is_equal and _is_no_mathematics(expected, answer):
        return Verdict.UNPARSABLE
    return Verdict.CORRECT if is_equal else Verdict.WRONG


def extract_answer(completion: str) -> str | None:
    """Return the final answer of a completion in its cleaned spelling, None when there is none.

    Args:
        completion: Text, of which the last box, tag or number counts.
    """
    answer = extract(completion)
    return None if answer is None else spelling(answer)


def _is_no_mathematics(gold: Value, answer: Value) -> bool:
    """Return whether the answer is words where the gold is a number or a formula: "I do not know" is no answer."""
    return (
        isinstance(gold, Number | Formula | Based) and isinstance(answer, Words) and len(answer.words) > LONGEST_SYMBOL
    )


def _verify_symbolically(gold: Value, answer: Value, timeout_s: float, rel_tol: Fraction) -> Verdict:
    if is_too_large(answer.text) or is_too_large(gold.text) or computations(answer.text) - computations(gold.text):
        return Verdict.WRONG
    try:
        return Verdict(pool.check(gold.text, answer.text, timeout_s, rel_tol).decode())
    except pool.BudgetError:
        return Verdict.TIMEOUT


_GOLDS = 4096
"""Parsed golds kept in the cache: each is compared with every completion of its group."""
_read_gold = lru_cache(maxsize=_GOLDS)(read_gold)
