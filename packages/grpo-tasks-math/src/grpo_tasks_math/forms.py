"""Forms of answers: whether a model computed its answer, or left the problem's own formula to the verifier."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from grpo_tasks_math.verify import spelled
from grpo_tasks_math.verify.bounds import computations

Form = Literal["expanded", "factored", "number"]

MAX_CHARS = 4000
"""Characters of a problem, and of an answer, whose formulas are compared."""

_SCIENTIFIC = re.compile(r"([0-9]*\.?[0-9]+)\*10\^(?:\{(-?[0-9]{1,3})\}|([0-9]))")
_SUMS = r"\([^()]{0,200}[^()*/^=,][+-][^()]{1,200}\)"
_NUMBER = r"(?:\\frac\{\d+\}\{\d+\}|\d*\.?\d+(?:/\d+)?)(?:\\?%)?"
_OPERATIONS = {
    "sum": rf"(?<![\w.^*/)}}!]){_NUMBER}(?:[+-]{{1,2}}|\\pm){_NUMBER}(?![\w.^!(\\/*{{])",
    "choice": r"(?:max|min|abs)(?![a-z])|\|[^|]+\||\\[lr]?vert",
    "derivative": r"\\frac\{(?:d|\\partial)[^{}]{0,8}\}\{(?:d|\\partial)|[a-z]'+\(",
    "binomial": r"\\[dt]?binom|\\choose|(?<=\d)choose(?=\d)",
    "logarithm": r"(?:log|ln|lg)(?![a-z])",
    "trigonometry": r"(?:sin|cos|tan|cot|sec|csc)(?![a-z])",
    "divisor": r"(?:gcd|lcm)(?![a-z])",
    "rounding": r"\\(?:lceil|lfloor|ceil|floor)",
    "root": r"\\sqrt|\^\{?\(?(?:1/[2-9]|\\frac\{1\})",
    "factorial": r"[\d)}]!",
    "modulo": r"mod(?![a-z])",
    "power": rf"\d\^|{_SUMS}\^",
    "product": rf"(?<![a-z_^{{])\d\*\d|\)\((?=[^()]*[+-])|{_SUMS}\*?{_SUMS}",
}
_OPERATION = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _OPERATIONS.items()))
"""What a verifier can compute, and a model that copies a formula does not."""


def operations(formula: str) -> frozenset[str]:
    """The operations that a formula, spelled as by the verifier, leaves to be done."""
    found = _OPERATION.finditer(_SCIENTIFIC.sub(r"\1", formula[:MAX_CHARS]))
    return computations(formula) | {name for match in found if (name := match.lastgroup)}


_SPAN = re.compile(r"\$\$?([^$]{1,400})\$|\\\((.{1,400}?)\\\)|\\\[(.{1,400}?)\\\]", re.DOTALL)
_RELATION = re.compile(r"\\(?:le|ge|ne|approx)(?![A-Za-z])|[=<>,;?]")
_WRITES = re.compile(r"\b(?:write|express|convert)", re.IGNORECASE)
_LITERAL = re.compile(r"-?[0-9]*\.?[0-9]+%?")
_NUMBERS = re.compile(r"(?<![\w.])[0-9]*\.?[0-9]+(?:/[0-9]+)?%?(?!\w)")
_FRACTION = re.compile(r"-?(?:\\frac\{(\d{1,18})\}\{(\d{1,18})\}|(\d{1,18})/(\d{1,18}))")
_TOKEN = re.compile(r"\\[A-Za-z]+|[0-9]*\.?[0-9]+|[^\s{}()\[\]*]")


def _tokens(formula: str) -> tuple[str, ...]:
    """What a formula holds, order, plus signs, brackets, factors 1 and the spelling of decimals aside."""
    formula = _SCIENTIFIC.sub(lambda number: f"{Decimal(number[1]).scaleb(int(number[2] or number[3])):f}", formula)
    tokens = _TOKEN.findall(re.sub(r"\\[lr]?vert", "|", formula.replace("\\frac", "/")))
    plain = (str(Fraction(token)) if token[-1].isdigit() else token for token in tokens)
    return tuple(sorted(token for token in plain if token not in ("1", "+")))


@lru_cache(maxsize=256)  # the completions of a group share their problem
def _formulas(problem: str) -> frozenset[tuple[str, ...]]:
    """The formulas of a problem, the sides of its equations, and its numbers."""
    spans = (next(filter(None, span.groups())) for span in _SPAN.finditer(problem[:MAX_CHARS]))
    sides = (*(side for span in spans for side in (span, *_RELATION.split(span))), *_NUMBERS.findall(problem))
    return frozenset(tokens for side in sides if (tokens := _tokens(spelled(side))))


def is_number(formula: str) -> bool:
    """Whether a formula is a plain number: one literal, or a fraction in lowest terms."""
    fraction = _FRACTION.fullmatch(formula)
    if fraction is None:
        return _LITERAL.fullmatch(formula) is not None
    above, below = map(int, filter(None, fraction.groups()))
    return math.gcd(above, below) == 1 < below


def is_restated(answer: str, gold: str, problem: str) -> bool:
    """Whether an answer leaves to the verifier what the gold holds computed: an operation, or the problem's formula.

    Args:
        answer: The answer, spelled as by the verifier.
        gold: The gold, spelled likewise.
        problem: The problem, with its formulas between dollar signs.
    """
    stated = answer.rpartition("=")[2]  # of `x = 2 + 3 = 5` the 5
    if operations(stated) - operations(gold):
        return True
    golds = {_tokens(gold), _tokens(gold.rpartition("=")[2])}
    if _tokens(stated) in golds:
        return False
    sides = [side for side in (answer, stated) if _WRITES.search(problem) or not is_number(side)]
    return any(_tokens(side) in _formulas(problem) - golds for side in sides)


_AMOUNT = re.compile(
    r"(?:[A-Za-z](?:_\w)?=)?[+$€£¥(]*(-?[$€£¥]?(?:\\frac\{\d{1,18}\}\{\d{1,18}\}|[\d.,/]{1,400}+)%?)\)?"
    r"(?:[ .]?[A-Za-z°](?:\^\{?[23]\}?)?|\^\{?\\circ\}?)*"
)
_RAISED = re.compile(r"\^[{(]([^(){}]*)[)}]")
_GROUP = re.compile(r"\(([^()]*)\)(?:\^([2-9])(?!\d))?")
_POWER = re.compile(r"(\\[A-Za-z]+|[A-Za-z])(?:\^(\w+))?")


def has_form(answer: str, form: Form, gold: str = "") -> bool:
    """Whether an answer that equals the gold has the form that its row asks for.

    A number is one literal with a name and a unit or none. An expanded answer is a sum of different powers without a
    sum in brackets. A factored one has the gold's factors, numbers aside; without a gold it is any product.

    Args:
        answer: The answer, spelled as by the verifier.
        form: The form.
        gold: The gold, spelled likewise.
    """
    if form == "number":
        return (amount := _AMOUNT.fullmatch(answer)) is not None and is_number(re.sub(r"[$€£¥,]", "", amount[1]))
    if form == "factored":
        return (factors := _factors(answer)) is not None and (not gold or factors == _factors(gold))
    powers = [sorted(_POWER.findall(term)) for term in re.split(r"[+-]", _grouped(answer))]
    if re.search(r"\([^()]*[+-]", _grouped(answer)) or len({*map(tuple, powers)}) < len(powers):
        return False
    return all(len({name for name, _ in term}) == len(term) for term in powers)


def _grouped(formula: str) -> str:
    """A formula with round brackets alone, and none in exponents."""
    formula = _RAISED.sub(lambda raised: "^" + re.sub(r"\W", "", raised[1]), formula.rpartition("=")[2])
    return formula.replace("\\frac", "").translate(str.maketrans("{}", "()")).lstrip("-")


def _factors(formula: str) -> list[tuple[str, ...]] | None:
    """The sums that a product multiplies and what stands beside them, in no order; None for a sum."""
    formula = _grouped(formula)
    beside = _GROUP.sub("", formula)
    factors = [_tokens(group[1]) for group in _GROUP.finditer(formula) for _ in range(int(group[2] or 1))]
    sums = sorted(factor for factor in factors if re.search("[A-Za-z]", "".join(factor)))
    return None if re.search("[+-]", beside) else sums or [_tokens(beside)]
