"""`math.pattern`: "Complete the pattern: A B C" -> " D", with one possible continuation by construction."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from random import Random

from grpo_sdk import Invalid, Row, Task, reward
from grpo_sdk.data import procedural
from grpo_tasks_math.levels import ThreeLevels
from grpo_tasks_math.parsing import first_line, one_integer

_LETTER = re.compile(r"[A-Za-z]")
_ALPHABET = 26


class PatternConfig(ThreeLevels):
    """Options of `math.pattern`.

    Attributes:
        min_difficulty: Easiest level: 1 neighbouring letters and alternations, 2 longer cycles, doubled letters,
            letters and numbers in larger steps, 3 falling, multiplied, interleaved and summed numbers.
        max_difficulty: Hardest level.
    """


class PatternRow(Row):
    """A sequence and its next element.

    Attributes:
        shown: Elements, separated by spaces.
        next: Next element, a capital letter or a whole number.
    """

    shown: str
    next: str


def _step(terms: Sequence[int]) -> int | None:
    """A constant difference that is not 0; three terms show it."""
    steps = {b - a for a, b in pairwise(terms)}
    return terms[-1] + steps.pop() if len(terms) >= 3 and len(steps) == 1 and 0 not in steps else None


def _ratio(terms: Sequence[int]) -> int | None:
    """A constant whole factor of at least 2; three terms show it."""
    if len(terms) < 3 or terms[0] == 0 or terms[1] % terms[0]:
        return None
    factor = terms[1] // terms[0]
    fits = factor >= 2 and all(b == a * factor for a, b in pairwise(terms))
    return terms[-1] * factor if fits else None


def _cycle(terms: Sequence[int]) -> int | None:
    """The shortest period that was seen once and begun again."""
    for period in range(1, len(terms)):
        if all(a == b for a, b in zip(terms, terms[period:], strict=False)):
            return terms[len(terms) - period]
    return None


def _interleaved(terms: Sequence[int]) -> int | None:
    """Two sequences in turn, each with a constant difference (0 too); the one that goes on shows three terms."""
    following = terms[len(terms) % 2 :: 2]
    other = terms[1 - len(terms) % 2 :: 2]
    if len(following) < 3 or any(len({b - a for a, b in pairwise(s)}) > 1 for s in (following, other)):
        return None
    return 2 * following[-1] - following[-2]


def _sum_of_two(terms: Sequence[int]) -> int | None:
    """Each term is the sum of the two before it; five terms show it."""
    fits = len(terms) >= 5 and all(a + b == c for a, b, c in zip(terms, terms[1:], terms[2:], strict=False))
    return terms[-2] + terms[-1] if fits else None


RULES: tuple[Callable[[Sequence[int]], int | None], ...] = (_step, _ratio, _cycle, _interleaved, _sum_of_two)


def continuations(terms: Sequence[int]) -> set[int]:
    """Return every continuation that a rule of this task allows; letters count from 0."""
    return {following for rule in RULES if (following := rule(terms)) is not None}


def load(config: PatternConfig) -> Iterator[PatternRow]:
    """Sequences of letters or numbers with one possible next element."""
    return procedural(config, _make, content=lambda row: row.shown)


def _make(random: Random, level: int) -> PatternRow:
    while True:
        terms, are_letters = random.choice(_FAMILIES[level])(random)
        following = terms.pop()
        if continuations(terms) != {following} or (
            are_letters and not all(0 <= t < _ALPHABET for t in [*terms, following])
        ):
            continue
        *shown, last = (chr(ord("A") + term) if are_letters else str(term) for term in [*terms, following])
        return PatternRow(id="", shown=" ".join(shown), next=last, gold=f" {last}")


Family = Callable[[Random], tuple[list[int], bool]]
"""Draws terms, the last of which is to be found, and whether they are letters; `_make` refuses ambiguous ones."""


def _letters_in_order(random: Random) -> tuple[list[int], bool]:
    start, count = random.randrange(_ALPHABET), random.randint(4, 6)
    return [start + i for i in range(count)], True


def _cycle_of(period: int) -> Family:
    def draw(random: Random) -> tuple[list[int], bool]:
        elements = random.sample(range(_ALPHABET), period)
        return [elements[i % period] for i in range(random.randint(2 * period + 1, 3 * period))], True

    return draw


def _letters_in_steps(random: Random) -> tuple[list[int], bool]:
    start, step = random.randrange(_ALPHABET), random.choice((-3, -2, -1, 2, 3))
    return [start + i * step for i in range(random.randint(4, 6))], True


def _doubled_letters(random: Random) -> tuple[list[int], bool]:
    start, step = random.randrange(_ALPHABET), random.choice((-1, 1, 2))
    return [start + i // 2 * step for i in range(random.randint(7, 8))], True


def _rising(random: Random) -> tuple[list[int], bool]:
    start, step = random.randint(0, 50), random.randint(1, 12)
    return [start + i * step for i in range(random.randint(5, 6))], False


def _falling(random: Random) -> tuple[list[int], bool]:
    start, step = random.randint(20, 100), random.randint(1, 15)
    return [start - i * step for i in range(random.randint(5, 6))], False


def _multiplied(random: Random) -> tuple[list[int], bool]:
    start, factor = random.randint(1, 12), random.randint(2, 5)
    return [start * factor**i for i in range(5)], False


def _two_in_turn(random: Random) -> tuple[list[int], bool]:
    a, b = random.randint(0, 30), random.randint(0, 30)
    step_a, step_b = random.randint(-5, 9), random.randint(-5, 9)
    return [(a + i // 2 * step_a) if i % 2 == 0 else (b + i // 2 * step_b) for i in range(random.randint(7, 8))], False


def _summed(random: Random) -> tuple[list[int], bool]:
    terms = [random.randint(0, 12), random.randint(1, 12)]
    while len(terms) < 6:
        terms.append(terms[-2] + terms[-1])
    return terms, False


_FAMILIES: dict[int, tuple[Family, ...]] = {
    1: (_letters_in_order, _cycle_of(2)),
    2: (_cycle_of(3), _letters_in_steps, _doubled_letters, _rising),
    3: (_falling, _multiplied, _two_in_turn, _summed),
}


def prompt(row: PatternRow) -> str:
    """The request."""
    return f"Complete the pattern: {row.shown}"


def validate(text: str, row: PatternRow) -> int:
    """One letter (either case) or one integer, whichever the pattern is made of."""
    if not row.next.isalpha():
        return one_integer(text)
    line = first_line(text).removesuffix(".")
    if not _LETTER.fullmatch(line):
        raise Invalid("the line is not one letter")
    return ord(line.upper())


def _place(element: str) -> int:
    return ord(element) if element.isalpha() else int(element)


@reward(0.1)
def kind(answer: int) -> float:
    """1: one letter among letters, or one integer among integers, was given."""
    return 1.0


@reward(0.1)
def near(answer: int, row: PatternRow) -> float:
    """1 when the answer is at most one letter, or 1, away from the next element."""
    return float(abs(answer - _place(row.next)) <= 1)


@reward(0.8)
def exact(answer: int, row: PatternRow) -> float:
    """1 when the answer is the next element."""
    return float(answer == _place(row.next))


TASK = Task(
    "pattern",
    load,
    prompt,
    validate,
    (kind, near, exact),
    config=PatternConfig,
    row=PatternRow,
    stop=("\n",),
    max_completion_length=12,  # a number of four digits, a sign and a newline, with room
    exempt={"leak": "a cycle's next element has been shown before"},
    on_timeout="fail",
)
"""Value: 1.0 exact, 0.2 one beside it, 0.1 another element of the kind, 0.0 none."""
