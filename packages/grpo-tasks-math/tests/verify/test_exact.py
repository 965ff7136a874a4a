import operator
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_tasks_math.verify.exact import MAX_BITS, MAX_CHARS, MAX_DEPTH, decimal_places, evaluate

VALUES = {
    "42": 42, "+42": 42, "007": 7, "12.": 12, ".5": Fraction(1, 2), "1,234.5": Fraction(2469, 2), "1 000 000": 10**6,
    "1.5e3": 1500, "2E-2": Fraction(1, 50), r"0.\overline{142857}": Fraction(1, 7), r"0.1\bar{6}": Fraction(1, 6),
    "0.(3)": Fraction(1, 3), "0.333...": Fraction(1, 3), r"2.1666\ldots": Fraction(13, 6), "3 1/2": Fraction(7, 2),
    r"3\frac{1}{2}": Fraction(7, 2), "-3 1/2": Fraction(-7, 2), "1 101/102": Fraction(203, 102),
    "2 500/3": Fraction(2500, 3), r"\frac{1}{\frac{1}{2}}": 2, "2 + 3 * 4": 14, "(2 + 3) * 4": 20, "10 - 4 - 3": 3,
    "100 / 10 / 5": 2, "-2^2": -4, "(-2)^2": 4, "2^3^2": 512, "2**-1": Fraction(1, 2), "2^{10}": 1024, "8^(2/3)": 4,
    r"\sqrt{\frac{9}{4}}": Fraction(3, 2), r"\sqrt[3]{27}": 3, r"2\sqrt{16}": 8, "2(3 + 4)": 14, "5!": 120, "-3!": -6,
    "50% * 10": 5, "--5": 5, "[1 + 2] * 3": 9,
}  # fmt: skip


@pytest.mark.parametrize(("text", "value"), VALUES.items())
def test_value(text: str, value: int | Fraction) -> None:
    assert evaluate(text) == value


NO_VALUE = [
    "", "x", "1/0", "0^0", "0^-1", "1 +", "* 2", "(1", "1)", "{1)", "1 2", "1,23", "1.2.3", "3 5/2", "1/2(3)",
    r"\sqrt{2}", r"\sqrt{-4}", r"\frac{1}", "---5", "٤",
]  # fmt: skip
BEYOND_THE_BOUNDS = [
    "9^9^9", "2^2049", "10^2000^2", "1e999999999", "201!", "3!!!", "(1/2)!", "9" * 301, "1+" * MAX_CHARS + "1",
    "(" * (MAX_DEPTH + 1) + "1" + ")" * (MAX_DEPTH + 1), "2^" * MAX_DEPTH + "2",
]  # fmt: skip


@pytest.mark.parametrize("text", [*NO_VALUE, *BEYOND_THE_BOUNDS])
def test_what_has_no_exact_value_within_the_bounds(text: str) -> None:
    assert evaluate(text) is None


def test_bounds_are_the_stated_ones() -> None:
    deep = "(" * (MAX_DEPTH - 1) + "1" + ")" * (MAX_DEPTH - 1)
    assert evaluate(deep) == 1
    assert evaluate("9" * 300) == int("9" * 300)
    # 4^n has 2n + 1 bits and 4 has 3: the product of bits and exponent decides.
    assert evaluate("4^2048") == 4**2048
    assert (4**2048).bit_length() <= MAX_BITS


OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
expressions = st.recursive(
    st.integers(0, 50).map(lambda n: (str(n), Fraction(n))),
    lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(
        lambda t: (f"({t[0][0]} {t[1]} {t[2][0]})", OPERATORS[t[1]](t[0][1], t[2][1]))
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(expressions)
def test_expressions_have_the_value_they_were_built_with(pair: tuple[str, Fraction]) -> None:
    text, value = pair
    assert evaluate(text) == value


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="0123456789.,+-*/^(){}[]!% \\fracsqtoveline", max_size=60))
def test_never_raises(text: str) -> None:
    value = evaluate(text)
    assert value is None or value.numerator.bit_length() <= MAX_BITS


@pytest.mark.parametrize(
    ("text", "places"), [("3", 0), ("3.", 0), ("3.25", 2), ("-1,000.5", 1), ("1/2", None), ("x", None)]
)
def test_decimal_places(text: str, places: int | None) -> None:
    assert decimal_places(text) == places
