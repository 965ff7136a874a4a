import time
from fractions import Fraction

import pytest

from grpo_sdk.tasks.numbers import read_number, value_of

NUMBERS = [
    # Signs
    (-6, ["-6", "\u22126", "\u20136", "negative $6.", "minus 6", "-$6", "$-6", r"-\$6", "- 6", "= -6"]),
    (6, ["\u20ac6", "+6", "$6.00"]),
    (-0.5, ["-.5", r"-\frac{1}{2}", r"\frac{-1}{2}", "minus \u00bd"]),
    # Fractions
    (0.5, [r"\frac12", r"\frac{1}2", r"\frac1{2}", r"\frac{1.5}{3}", "1/2", "1\u20442", "\u00bd"]),
    (3.5, ["3 1/2 cups", "3  1/2", "3 100/200", r"3\frac{1}{2}", r"3\frac12", "3\u00bd"]),
    (-3.5, ["-3 1/2"]),
    (1000.5, ["1,000 1/2"]),
    # Powers
    (150_000, [r"1.5 \times 10^5", "1.5 \u00d7 10\u2075", "1.5 x 10**5", "1.5e5", "1.5 e5"]),
    (Fraction(15, 10**6), [r"1.5\,\cdot\,10^{-5}"]),
    (Fraction(1, 10**6), ["1/10^6"]),
    (-4, ["-2^2"]),
    (1024, ["2 ** 10", "2^10", "2^{10}"]),
    # Groups of digits and scales
    (12345678, ["12,345,678"]),
    (10**6, ["1 000 000", r"1\,000\,000", "1{,}000{,}000"]),
    (1234.5, ["1\u202f234.5", "\uff11\uff12\uff13\uff14\uff0e\uff15"]),
    (1_500_000, ["1.5 million", r"1.5 \text{ million}"]),
    (2 * 10**9, ["$2 Billion"]),
    (18, ["18...", "18…", "18 apples…", "18。", "18?", "18;", "18\u200b"]),
    (200_000, ["2 hundred thousand"]),
    # A unit or another noun
    (5, ["5", "5.", "**5**", "$5", "5 cm", "5cm", "5 cm^2", "5 square metres", "5 apples", "5 (out of 10)", "5 m/s"]),
    (5, [r"$5\,\text{m}^{2}$"]),
    (5, ["5, since 2 + 3 = 5", "= 5", r"\$5.00", "5 dollars per day", r"5^{\circ}", "5\u00b0", "5 \u20ac"]),
    (0.5, ["50%", "50 percent", r"\frac{1}{2}", "1/2 cup"]),
    (5, ["x = 5", r"\(x_1 = 5\)", "\u200b5", "\ufeff5", "5 months", "5 N", "5 miles per hour", "5 apples in total"]),
    (5000, ["5,000", "5 thousand dollars"]),
]  # fmt: skip


@pytest.mark.parametrize(("value", "texts"), NUMBERS)
def test_numbers(value: float | Fraction, texts: list[str]) -> None:
    assert {text: value_of(text) for text in texts} == dict.fromkeys(texts, Fraction(value))


HOSTILE = [
    "1," * 100_000, "1/" * 100_000, "-" * 200_000, "minus " * 50_000, "is  minus" * 50_000, "negative " * 50_000,
    r"\frac{" * 50_000, "-$" * 100_000, "9^" + "9" * 9, "9**" * 50_000, "10^{" * 30_000, "1 000 " * 20_000,
    "100 " * 30_000 + "1000", "= - " * 30_000, "1 million " * 10_000, "million " * 12_000, "\u00b2" * 100_000,
    "1 1/" * 30_000, "*" * 50_000, "5, since " * 20_000, " (ab)" + " " * 100_000 + "x",
    "_{" * 50_000, "m**2 " * 20_000, "9" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_numbers_take_no_time(text: str) -> None:
    began = time.perf_counter()
    read_number(text)
    assert time.perf_counter() - began < 5


NOT_ONE = [
    # Too large, or no number
    "", "v1.2", "1/0", "9" * 500, "10^999999999", "10^9999999999", r"7 \times 10^999999999", "7e999999999",
    "1e9999", "9^99999", "0^-1", "2^n", "2^{n+1}", "2^{3+1}", "2^3^2", "2**3**2", "4^{1/2}", "x^2", "--5", "-$-5",
    # Another number, or several
    "5!", "5x", "5k", "2 * 5", "5 + 5", "5 or 6", "5, 6", "5 6", "sqrt(5)", "5 tenths", "5 squared", "5 and a half",
    "x5", "5^x", "about 5", "the 5", "5 to 6", "5 dozen", "5 = 5",
    "5 at least", "5 at most", "5 less", "5 probably", "5 M", "5 bn", "5 tens", "5 score", "5 pairs", "5 point five",
    "5 sqrt", "5\nSo that is it.", "5. So no", r"5\pi", "5 is wrong", "not x = 5", "y = 1, x = 5", "5 b",
]  # fmt: skip


@pytest.mark.parametrize("text", NOT_ONE)
def test_anything_else_is_not_read_number(text: str) -> None:
    assert read_number(text) is None
