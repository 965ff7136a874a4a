"""The symbolic check by math-verify, which runs inside a killable worker."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from fractions import Fraction
from functools import cache, partial
from typing import Any

from grpo_tasks_math.verify.algebra import are_equal
from grpo_tasks_math.verify.compare import Equality, compare
from grpo_tasks_math.verify.reader import GROUP, read

CORRECT, WRONG, UNPARSABLE = b"correct", b"wrong", b"unparsable"

DIGITS = 50
"""Digits at which math-verify compares parts of an expression; its 15 would make an approximation an answer."""
MAX_DIGITS = 2000
"""Digits to which the difference of two numbers is computed before it counts as zero."""

_UNSAFE = re.compile(r"__|[\"'`@#;]")
"""Nothing that latex2sympy2_extended 1.11 does reaches Python's `eval`; refused all the same, no answer needs it."""
_DECIMAL = re.compile(r"(?<![0-9.])([0-9]{0,60})\.([0-9]{1,60})(?![0-9.])")
_FUNCTION = re.compile(
    r"(?<![\\A-Za-z])(sin|cos|tan|cot|sec|csc|log|ln|exp|arcsin|arccos|arctan|max|min|gcd|lcm)(?![A-Za-z])"
)
_NATURAL_LOGARITHM = re.compile(r"\\?log\s?_\s?(?:e(?![a-z])|\{\s?e\s?\})")


def factory() -> Callable[[bytes], bytes]:
    """Load the engine, warm its parser, and return the handler of one check.

    The payload is the JSON of [gold, answer, rel_tol]; the reply `correct`, `wrong` or `unparsable`. The handler may
    run for ever, or out of memory: its caller kills it.
    """
    handle(encode("x + 1", "1 + x + 0.5"))
    return handle


def encode(gold: str, answer: str, rel_tol: Fraction = Fraction(0)) -> bytes:
    """Write the payload of one check."""
    return json.dumps([gold, answer, str(rel_tol)]).encode()


def handle(payload: bytes) -> bytes:
    """Compare a gold and an answer, formulas by math-verify."""
    gold_text, answer_text, tolerance = json.loads(payload)
    gold, answer, rel_tol = read(gold_text), read(answer_text), Fraction(tolerance)
    if gold is None or answer is None:
        return UNPARSABLE
    unreadable: set[str] = set()

    def equal(expected: str, given: str) -> bool:
        if not rel_tol and (is_equal := are_equal(expected, given)) is not None:
            return is_equal
        left, right = _parse(expected), _parse(given)
        if right is None:
            unreadable.add(given)
        return left is not None and right is not None and _are_equal(left, right, rel_tol)

    if compare(gold, answer, Equality(equal, rel_tol)):
        return CORRECT
    return UNPARSABLE if unreadable else WRONG


def to_latex(text: str) -> str:
    """Write a cleaned answer in the LaTeX that math-verify reads as meant: exact decimals, angles in radians."""
    text = _DECIMAL.sub(lambda match: f"\\frac{{{int(match[1] + match[2])}}}{{1{'0' * len(match[2])}}}", text)
    text = _FUNCTION.sub(r"\\\1", GROUP.sub("", _NATURAL_LOGARITHM.sub(r"\\ln ", text)))
    return text.replace("degrees", "\\cdot \\frac{\\pi}{180}").replace("$", "")


def _parse(text: str) -> list[Any] | None:
    """Parse one formula; None when it is none."""
    return None if _UNSAFE.search(text) else _parser()(f"${to_latex(text)}$") or None


@cache
def _parser() -> Callable[[str], list[Any]]:
    """Set math-verify's parser up."""
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy
    from math_verify import LatexExtractionConfig, LatexNormalizationConfig, parse, parser

    # Suppress the warning that time limits are off: the process that runs this has one.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    # By default R and r are one symbol, so that R - r is 0; math-verify has no option for that.
    exact_case = partial(latex2sympy, conversion_config=ConversionConfig(lowercase_symbols=False))
    parser.latex2sympy = exact_case
    # Boxes, units and short spellings are handled here: math-verify would read a trailing variable as a unit (`3c` as
    # 3), and its repair of operators splits the 12 of `\\frac{e^{-12} 12^{3}}{3!}`.
    normalisation = LatexNormalizationConfig(
        basic_latex=True, units=False, malformed_operators=False, nits=False, boxed="none", equations=False
    )
    target = LatexExtractionConfig(boxed_match_priority=-1, normalization_config=normalisation)
    return partial(parse, extraction_config=[target], fallback_mode="no_fallback", parsing_timeout=None)


def _are_equal(gold: list[Any], answer: list[Any], rel_tol: Fraction) -> bool:
    try:
        if _same(gold, answer) or (rel_tol and _are_close(gold[0], answer[0], rel_tol)):
            return True
        complex_gold, complex_answer = _with_imaginary_unit(gold), _with_imaginary_unit(answer)
        return (complex_gold, complex_answer) != (gold, answer) and _same(complex_gold, complex_answer)
    except MemoryError:
        raise
    except Exception:  # SymPy may raise anything on arbitrary formulas; those count as different
        return False


def _same(gold: list[Any], answer: list[Any]) -> bool:
    """Compare numbers and equations exactly, and the rest by math-verify, which takes what is below 1e-50 for 0."""
    from sympy import Eq, Expr, MatrixBase, Rational  # type: ignore[import-untyped]  # SymPy ships no types

    left, right = gold[0], answer[0]
    if isinstance(left, Eq) or isinstance(right, Eq):
        return isinstance(left, Eq) and isinstance(right, Eq) and _are_equivalent(left, right)
    if isinstance(left, MatrixBase) and isinstance(right, MatrixBase):
        pairs = zip(left.flat(), right.flat(), strict=False)
        return left.shape == right.shape and all(_same([a], [b]) for a, b in pairs)
    if not (isinstance(left, Expr) and isinstance(right, Expr)):
        return _verify(gold, answer)
    if not (left.free_symbols or right.free_symbols):
        return _is_zero(left.doit(), right.doit())
    if (left - right).expand() == 0:  # which math-verify does not see where one of them is a single letter
        return True
    letters = sorted(left.free_symbols | right.free_symbols, key=str)
    if not (_verify(gold, answer) or _verify([_positive(left)], [_positive(right)])):
        return False
    point = {letter: Rational(place + 11, 7) for place, letter in enumerate(letters)}
    at = left.subs(point).doit(), right.subs(point).doit()
    return bool(at[0].free_symbols or at[1].free_symbols) or _is_zero(*at)


def _positive(expression: Any) -> Any:
    r"""An expression whose symbols are positive where it holds a root of one: `\sqrt{1/n}` is `1/\sqrt{n}`."""
    from sympy import Abs, Pow, Symbol

    roots = [power for power in expression.atoms(Pow) if power.exp.is_Rational and not power.exp.is_Integer]
    if expression.has(Abs) or not any(power.free_symbols for power in roots):
        return expression
    return expression.subs({symbol: Symbol(symbol.name, positive=True) for symbol in expression.free_symbols})


def _is_zero(left: Any, right: Any) -> bool:
    """Whether two numbers are equal: their difference has no digit, however small they are."""
    if left == right or (left.is_Rational and right.is_Rational) or not (left.is_finite and right.is_finite):
        return bool(left == right)
    parts = (left - right).expand().evalf(2, maxn=MAX_DIGITS).as_real_imag()
    # SymPy gives a number that it could not tell from 0 one bit.
    return all(part == 0 or getattr(part, "_prec", 2) == 1 for part in parts)


def _are_equivalent(gold: Any, answer: Any) -> bool:
    """Whether one equation is a multiple of the other."""
    from sympy import cancel, numer, simplify, together

    left, right = (numer(together(side.lhs - side.rhs)) for side in (gold, answer))
    if left == 0 or right == 0:
        return False
    ratio = simplify(cancel(left / right))
    return not ratio.free_symbols and ratio.is_finite is not False and ratio != 0


def _verify(gold: list[Any], answer: list[Any]) -> bool:
    from math_verify import verify

    options: Any = {"numeric_precision": DIGITS, "allow_set_relation_comp": True, "timeout_seconds": None}
    return bool(verify(gold, answer, raise_on_error=True, **options))


def _are_close(gold: Any, answer: Any, rel_tol: Fraction) -> bool:
    """Whether two numbers, or the numbers in the same places of two matrices, tuples or intervals, are close."""
    from sympy import Expr, MatrixBase

    if isinstance(gold, MatrixBase) and isinstance(answer, MatrixBase):
        are_alike, golds, answers = gold.shape == answer.shape, gold.flat(), answer.flat()
    elif isinstance(gold, Expr) and isinstance(answer, Expr):
        return _are_close_numbers(gold, answer, rel_tol)
    else:
        are_alike, golds, answers = type(gold) is type(answer) and gold.args, gold.args, answer.args
    return (
        bool(are_alike)
        and len(golds) == len(answers)
        and all(left == right or _are_close(left, right, rel_tol) for left, right in zip(golds, answers, strict=True))
    )


def _are_close_numbers(gold: Any, answer: Any, rel_tol: Fraction) -> bool:
    from sympy import Rational

    if gold.free_symbols or answer.free_symbols:
        return _same([gold], [answer])
    exact, approximate = gold.doit(), answer.doit()
    if not (exact.is_Rational and approximate.is_Rational):
        exact, approximate = exact.n(DIGITS), approximate.n(DIGITS)
    limit = Rational(rel_tol.numerator, rel_tol.denominator) * abs(exact)
    return bool(exact.is_finite and approximate.is_finite and abs(exact - approximate) <= limit)


def _with_imaginary_unit(parsed: list[Any]) -> list[Any]:
    r"""Read the symbol `i` as the imaginary unit, which math-verify does not: e^{i\pi} is -1."""
    from sympy import Basic, I

    return [
        expression.subs({symbol: I for symbol in expression.free_symbols if symbol.name == "i"})
        if isinstance(expression, Basic)
        else expression
        for expression in parsed
    ]
