from __future__ import annotations

import time
from fractions import Fraction

import pytest

from grpo_core.tasks.numbers import read_number


@pytest.mark.parametrize(
    ("text", "value"),
    [("", None), ("v1.2", None), ("1,2", 2), ("12,345,678", 12345678), ("1/0", None), ("9" * 500, None), ("-.5", -0.5)],
)
def test_numbers(text: str, value: float | None) -> None:
    assert read_number(text) == (None if value is None else Fraction(value))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("It drops to negative $6.", -6),
        ("the balance is minus 6", -6),
        ("The total minus 6", 6),
        ("$12 - $6", 6),
        ("a range of 5\u20136", 6),
        (r"-\frac{3}{4}", -0.75),
        (r"\frac{-3}{4}", -0.75),
        ("\u20ac6", 6),
        ("3 1/2 cups", 3.5),
        ("-3 1/2", -3.5),
        (r"x = 3\frac{1}{2}", 3.5),
        (r"-12 \frac{1}{4}", -12.25),
        ("3\u00bd", 3.5),
        ("minus \u00be", -0.75),
        ("1,000 1/2", 1000.5),
        ("from 3 3/2", 1.5),
        ("3.5 1/2", 0.5),
        ("2 of 3/4", 0.75),
        ("1/2 3/4", 0.75),
        ("-\u20ac6.50", -6.5),
    ],
)
def test_signs_of_numbers(text: str, value: float) -> None:
    assert read_number(text) == Fraction(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("The area is 25 cm^2.", 25),
        ("25 m^2", 25),
        ("25 m\u00b2", 25),
        (r"$25\,\text{m}^{2}$", 25),
        ("25 m<sup>2</sup>", 25),
        ("25 m**2.", 25),
        ("25 m s^-2", 25),
        ("5 g of CO_{2}", 5),
        (r"30^{\circ}", 30),
        ("5^{th}", 5),
        ("it is**25 cm**", 25),
        (r"1.5 \times 10^5", 150_000),
        (r"1.5\,\cdot\,10^{-5}", Fraction(15, 10**6)),
        ("1.5 \u00d7 10\u2075", 150_000),
        ("1.5 x 10**5", 150_000),
        ("1.5e5", 150_000),
        ("1.5 e5", 150_000),
        ("10^6", 10**6),
        ("-2^2", -4),
        ("2 ** 10", 1024),
        ("1/10^6", Fraction(1, 10**6)),
        ("0.5^{2}", 0.25),
        ("1 000 000", 10**6),
        ("1\u202f234.5", 1234.5),
        (r"1\,000\,000", 10**6),
        (r"1,\!000", 1000),
        ("1 2 300", 300),
        ("2024 100", 100),
        ("3 100/200", 3.5),
        ("1.5 million", 1_500_000),
        ("$2 Billion", 2 * 10**9),
        (r"1.5 \text{ million}", 1_500_000),
        ("2 hundred thousand", 200_000),
        ("5 millionths", 5),
        (r"\frac12", 0.5),
        (r"\frac{1}2", 0.5),
        (r"\frac1{2}", 0.5),
        (r"3\frac12", 3.5),
        (r"\frac{1.5}{3}", 0.5),
        ("It is 3 1/2.", 3.5),
        ("3  1/2", 3.5),
        ("x = - 5", -5),
        ("- 5", -5),
        ("The answer is - $5", -5),
        (r"x = - \frac{1}{2}", -0.5),
        ("10 - 5", 5),
        ("Items:\n- 5", 5),  # a bullet
    ],
)
def test_powers_units_groups_and_scales(text: str, value: float | Fraction) -> None:
    assert read_number(text) == Fraction(value)


@pytest.mark.parametrize(
    "text",
    [
        *("10^999999999", "10^9999999999", r"7 \times 10^999999999", "7e999999999", "1e9999", "9^99999", "0^-1"),
        *("2^n", "2^{n+1}", "2^{3+1}", "2^3^2", "2**3**2", "4^{1/2}", "(-2)^2", "5 or 10^999999999", "5 or 1/0", "x^2"),
    ],
)
def test_what_is_too_large_or_not_a_number_is_none(text: str) -> None:
    assert read_number(text) is None


def test_hostile_numbers_take_no_time() -> None:
    for text in (
        "1," * 100_000,
        "1/" * 100_000,
        "-" * 200_000,
        "minus " * 50_000,
        "is  minus" * 50_000,
        "negative " * 50_000,
        r"\frac{" * 50_000,
        "-$" * 100_000,
        "1e999",
        "10^999999999",
        "9^" + "9" * 9,
        "9**" * 50_000,
        "10^{" * 30_000,
        "1 000 " * 20_000,
        "100 " * 30_000 + "1000",
        "= - " * 30_000,
        "1 million " * 10_000,
        "million " * 12_000,
        "\u00b2" * 100_000,
        "1 1/" * 30_000,
        "_{" * 50_000,
        "m**2 " * 20_000,
        "9" * 100_000,
    ):
        began = time.perf_counter()
        read_number(text)
        assert time.perf_counter() - began < 5, text[:20]
