"""Values of answers: numbers, choices, words, several values, equations and formulas."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Value:
    """A read answer.

    Attributes:
        text: Cleaned spelling, which is also the input of the symbolic engine.
    """

    text: str


@dataclass(frozen=True, slots=True)
class Number(Value):
    """A rational number; `is_percent` when `number` stood before a percent sign; `unit` is canonical or empty."""

    number: Fraction
    is_percent: bool = False
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Choice(Value):
    """A letter of a multiple choice, in upper case, with its own value where one stands behind it: `(C) 13`."""

    letter: str
    value: Value | None = None


@dataclass(frozen=True, slots=True)
class Words(Value):
    """Words in lower case; `is_prose` when it is a sentence with numbers or formulas in it, not an answer by itself."""

    words: str
    is_prose: bool = False


@dataclass(frozen=True, slots=True)
class Items(Value):
    r"""Several values: `(1, 2)` or `[1, 2)` in order; `\{1, 2\}` and the bare enumeration `1, 2` in any order."""

    brackets: str
    items: tuple[Value, ...]

    @property
    def is_ordered(self) -> bool:
        """Whether the place of a member matters."""
        return self.brackets[:1] in ("(", "[")


@dataclass(frozen=True, slots=True)
class Equation(Value):
    """`name = value`, or a chain of equal values, `name = value = value` or `6 * 7 = 42`, where the name may be empty.

    An equation that states no value is an `Relation`.
    """

    name: str
    values: tuple[Value, ...]

    @property
    def value(self) -> Value:
        """The last of the values."""
        return self.values[-1]


@dataclass(frozen=True, slots=True)
class Digits(Value):
    """Digits that mean nothing alone: in a stated base, `101_2`, or a time of day, `3:30 p.m.`.

    `digits` are in lower case, without `:00`; `qualifier` is the base, or `a` or `p`.
    """

    digits: str
    qualifier: str


@dataclass(frozen=True, slots=True)
class NaN(Value):
    """`nan`, `undefined` as computed by a machine: equal to nothing, itself included."""


@dataclass(frozen=True, slots=True)
class Formula(Value):
    """Mathematics that only the symbolic engine can compare.

    `quantity` is its other reading when it may be a number with a one-letter unit, `5m`, or a thousand, `5k`.
    """

    quantity: Number | None = None


@dataclass(frozen=True, slots=True)
class Relation(Formula):
    """An equation with unknowns that states no value: `2x = 42`, `x + y = 1`."""
