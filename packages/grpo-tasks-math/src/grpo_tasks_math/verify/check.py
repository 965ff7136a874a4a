"""The verifier: extract, read, compare exactly, and use the symbolic engine only where that is undecided."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Mapping
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache, partial
from typing import TypedDict, Unpack, get_args

from grpo_sdk import InfrastructureError, KillablePool, UserError, inside_worker
from grpo_tasks_math.verify import symbolic
from grpo_tasks_math.verify.bounds import computations, is_too_large
from grpo_tasks_math.verify.compare import EXACT, Equality, compare, spelling
from grpo_tasks_math.verify.extract import MAX_GOLD_CHARS, Decimals, Reading, extract, read_gold
from grpo_tasks_math.verify.reader import LONGEST_PRODUCT, read
from grpo_tasks_math.verify.values import Digits, Equation, Formula, Number, Value, Words

DEFAULT_TIMEOUT_S = 3.0
"""Time of one symbolic check; ordinary ones take 2 to 80 ms."""

MAX_WORKERS = 4
"""Few answers need the engine, and each worker holds SymPy, about 150 MiB."""
MEMORY_MIB = 2048
"""Address space of a worker: ten times the need of ordinary answers, and four workers fit into a laptop's memory."""

MAX_MEMBERS = 8
"""Most different members of a chain of equal values; each may cost a symbolic check."""


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


class Options(TypedDict, total=False):
    """Options of `verify`."""

    decimals: Decimals
    rel_tol: float
    reading: Reading


def verify(
    gold: str,
    completion: str,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    **options: Unpack[Options],
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
        **options: `decimals`, `rel_tol` and `reading`, as follows.
        decimals: `point`: `1,5` is two numbers. `comma`: it is 1.5, and `1.234,5` is 1234.5; a list then has a space or
            a semicolon between its members. Points are decimal points either way.
        rel_tol: Largest difference between two numbers, relative to the gold: 0.01 takes 0.33 for 1/3. By default an
            approximation is another number.
        reading: `free`: the answer wherever the completion states one. `marked`: the last box, `<answer>`, `####` or
            "answer:", and marks of different kinds must agree; the whole completion where there is none. `box`, `tag`,
            `####`, `answer:`: marks of that kind alone.

    Raises:
        UserError: a `timeout_s` that is no positive number, other `decimals` or `reading`, a `rel_tol` outside [0, 1).
        InfrastructureError: the symbolic check was needed and no worker could be started.
    """
    if unknown := options.keys() - Options.__annotations__:
        raise UserError(f"verify({min(unknown)}=…): its options are {', '.join(Options.__annotations__)}.")
    return judge(gold, completion, timeout_s, **options)[0]


def judge(
    gold: str,
    completion: str,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    *,
    decimals: Decimals = "point",
    rel_tol: float = 0.0,
    reading: Reading = "free",
) -> tuple[Verdict, str]:
    """Return `verify`'s verdict, and for an unparsable answer why it is none.

    Args:
        gold: As in `verify`, as is all that follows.
        completion: Any text.
        timeout_s: Seconds of work given to the symbolic check.
        decimals: `point` or `comma`.
        rel_tol: Largest difference between two numbers, relative to the gold.
        reading: Where the answer is looked for.
    """
    for name, text in (("gold", gold), ("completion", completion)):
        if not isinstance(text, str):
            raise UserError(f"verify({name}={text!r:.80}): it is a {type(text).__name__}; give text, a str.")
    if not (isinstance(timeout_s, int | float) and 0 < timeout_s < math.inf):
        raise UserError(f"verify(timeout_s={timeout_s!r}): give a positive, finite number of seconds.")
    for name, value, allowed in (("decimals", decimals, Decimals), ("reading", reading, Reading)):
        if value not in get_args(allowed):
            raise UserError(f"verify({name}={value!r}): it is one of {', '.join(get_args(allowed))}.")
    if not (isinstance(rel_tol, int | float) and 0.0 <= rel_tol < 1.0):
        raise UserError(f"verify(rel_tol={rel_tol!r}): give a number from 0 up to 1, such as 0.01 for one percent.")
    expected = _read_gold(gold, decimals) if len(gold) <= MAX_GOLD_CHARS else None
    if expected is None:
        is_same = gold.strip() and gold.strip() == completion.strip()
        return (Verdict.CORRECT if is_same else Verdict.WRONG), ""
    answers = extract(completion, decimals, reading, expected)
    # By its decimal spelling: 0.01 in floating point is slightly more than a hundredth.
    check = partial(_verdict, expected, timeout_s=timeout_s, rel_tol=Fraction(str(rel_tol)) if rel_tol else Fraction(0))
    verdicts = {name: check(value, is_marked=reading != "free") for name, value in answers.items()}
    first = next(iter(verdicts.values()), Verdict.UNPARSABLE)
    are_other = len({spelling(value) for value in answers.values() if value}) > 1 and first is not Verdict.CORRECT
    if are_other or len(set(verdicts.values())) > 1:
        return Verdict.UNPARSABLE, f"marks that differ: {_said(answers)}"
    if not verdicts or None in answers.values():
        where = "" if reading in ("free", "marked") else f" in the mark that the prompt asks for ({reading})"
        return Verdict.UNPARSABLE, f"no final answer{where}"
    return first, "the answer is no value: " + _said(answers) if first is Verdict.UNPARSABLE else ""


def _said(answers: Mapping[str, Value | None]) -> str:
    return ", ".join(f"{name} says {value.text if value else ''!r:.60}" for name, value in answers.items())


def extract_answer(completion: str, reading: Reading = "free") -> str | None:
    """Return the final answer of a completion in its cleaned spelling, None when there is none.

    Args:
        completion: Any text.
        reading: As in `verify`; of marks of several kinds the first counts.
    """
    answer = next(iter(extract(completion, reading=reading).values()), None)
    return None if answer is None else spelling(answer)


def spelled(answer: str) -> str:
    """Return the cleaned spelling of an answer, without spaces that carry no meaning, as `extract_answer` does.

    Args:
        answer: An answer alone; what cannot be read is returned as it is.
    """
    value = read(answer)
    return spelling(value) if value is not None else answer


def _verdict(expected: Value, answer: Value | None, *, timeout_s: float, rel_tol: Fraction, is_marked: bool) -> Verdict:
    if answer is None:
        return Verdict.UNPARSABLE
    verdict = _one_verdict(expected, answer, timeout_s, rel_tol)
    if is_marked and verdict is Verdict.CORRECT and isinstance(answer, Equation):
        # Every member of a chain of equal values has to be right.
        members = {spelling(value): value for value in answer.values[:-1]}.values()
        are_right = len(members) <= MAX_MEMBERS and all(
            _one_verdict(expected, value, timeout_s, rel_tol) is Verdict.CORRECT for value in members
        )
        return verdict if are_right else Verdict.UNPARSABLE
    return verdict


def _one_verdict(expected: Value, answer: Value, timeout_s: float, rel_tol: Fraction) -> Verdict:
    is_equal = compare(expected, answer, Equality(rel_tol=rel_tol) if rel_tol else EXACT)
    if is_equal is None:
        return _verify_symbolically(expected, answer, timeout_s, rel_tol)
    if is_equal:
        return Verdict.CORRECT
    # Words where the gold is a number or a formula, "I do not know", are no answer.
    is_mathematics = not (isinstance(answer, Words) and len(answer.words) > LONGEST_PRODUCT)
    return (
        Verdict.WRONG if is_mathematics or not isinstance(expected, Number | Formula | Digits) else Verdict.UNPARSABLE
    )


def _verify_symbolically(gold: Value, answer: Value, timeout_s: float, rel_tol: Fraction) -> Verdict:
    if is_too_large(answer.text) or is_too_large(gold.text) or computations(answer.text) - computations(gold.text):
        return Verdict.WRONG
    payload = symbolic.encode(gold.text, answer.text, rel_tol)
    if inside_worker():  # which has a memory limit, and where queueing for another would count against its deadline
        try:
            return Verdict(symbolic.handle(payload).decode())
        except MemoryError:
            return Verdict.TIMEOUT
    outcome = _shared_pool().submit(payload, timeout_s).result()
    if outcome.status == "unavailable":
        raise InfrastructureError(f"the answer could not be verified: no worker for math-verify ({outcome.why}).")
    return Verdict(outcome.value.decode()) if outcome.status == "ok" else Verdict.TIMEOUT


_read_gold = lru_cache(maxsize=4096)(read_gold)  # each gold is compared with every completion of its group

_lock = threading.Lock()
_pool: KillablePool | None = None


def warm() -> None:
    """Start the workers, or load SymPy when inside one, so that the first symbolic check does not wait for it."""
    if inside_worker():
        symbolic.factory()
    else:
        _shared_pool().warm()


def close() -> None:
    """Stop the workers; the next check starts new ones."""
    global _pool
    with _lock:
        pool, _pool = _pool, None
    if pool is not None:
        pool.close()


def _shared_pool() -> KillablePool:
    global _pool
    with _lock:
        if _pool is None:
            _pool = KillablePool(
                f"{symbolic.__name__}:{symbolic.factory.__name__}",
                workers=min(MAX_WORKERS, os.cpu_count() or 1),
                memory_mib=MEMORY_MIB,
                name="verify",
                preload="math_verify",
            )
        return _pool


def _forget() -> None:
    """Give a forked child its own lock and pool: the parent's may be held, and its workers are not the child's."""
    global _lock, _pool
    _lock, _pool = threading.Lock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
