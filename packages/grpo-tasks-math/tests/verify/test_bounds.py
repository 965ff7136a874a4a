"""Answers beyond the size bounds are wrong by rule, before anything is evaluated."""

import math
import operator
import time
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_tasks_math.verify import Verdict, verify
from grpo_tasks_math.verify.bounds import MAX_BITS, MAX_CELLS, MAX_CHARS, MAX_DEPTH, computations, is_too_large

TOO_LARGE = [
    "9^{9^{9^{9}}}", "10^{10^{10}}", "9^9^9^9", "10^{-10^{10}}", "2^" * 400 + "2", r"\frac{1}{2^{10^{10}}}",
    r"\sqrt{2^{10^{10}}}", r"\{1, \sqrt{2}, 9^{9^{9}}\}", r"(\sqrt{2}, 9^{9^{9}})", "x = 9^{9^{9}} + y",
    "e^{e^{e^{10}}}", r"10^{\exp(100)}", r"2^{\cosh(99)}", r"10^{\lfloor 10^{10} \rfloor}", "10^{|10^{10}|}",
    "2^{10^{10}x}", r"3^{10^{10}} \mod 7", "x^{10^9}", "2^{1/(1-1)}", "(10^{10})!", "(((5!)!)!)!", r"\Gamma(1000000)",
    r"\binom{10^9}{5 \cdot 10^8}", "(x+y+z)^{100}", "(x_1+x_2+x_3)^{100}", r"(\sin x+\cos x+1)^{100}", "1e999999999x",
    "7" * 301 + "x", " < ".join("abcdefghijklmnopqrst"), "|" * 20 + "x" + "|" * 20,
    r" \cup ".join(f"({n}, {n + 1})" for n in range(40)),
    r"\begin{pmatrix}" + "x&" * (MAX_CELLS + 1) + r"1\end{pmatrix}", r"\sqrt{1+" * 10 + "2" + "}" * 10,
    r"\sqrt" * 150 + "2", r"\sin" * 150 + "x", "+".join(rf"\sin({n}x)" for n in range(40)),
    r"\frac{1}{1+" * 30 + "x" + "}" * 30, r"\frac{1}" * 100, "x+" * MAX_CHARS,
    "+".join(f"x^{{{n}}}" for n in range(10_000, 10_100)),
]  # fmt: skip
COMPUTATIONS = [
    r"\sum_{k=1}^{\infty} \frac{1}{k^2}", r"\prod_{k=1}^{10^{10}} k", r"\int_0^1 x^x dx",
    r"\lim_{x \to 0} \frac{\sin x}{x}", r"\begin{vmatrix}a & b\\ c & d\end{vmatrix}", r"\operatorname{eye}(5000)",
]  # fmt: skip
ORDINARY = [
    r"\frac{-5+\sqrt{13}}{6}", r"10^{\frac{-5+\sqrt{13}}{6}}", r"e^{\frac{1}{x-1}}", r"\frac{1}{2004!}",
    "2^{2018} - 1 + x", "(x+y+z)^{10}", "(x+1)(x+2)(x+3)(x+4)(x+5)(x+6)(x+7)(x+8)(x+9)(x+10)(x+11)(x+12)",
    r"\binom{100}{50} \cdot 2^n", r"\binom{100000}{2}x", r"2\sqrt{2+\sqrt{2+\sqrt{2}}}",
    r"\arctan\left(\frac{1}{2}\right) + \frac{\pi}{4}", r"(-\infty, -2) \cup [0, \sqrt{3})",
    r"\begin{pmatrix}1 & 0 & 0\\ 0 & \cos x & -\sin x\\ 0 & \sin x & \cos x\end{pmatrix}", r"|x - 3| + |y + 1|",
]  # fmt: skip


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize("answer", TOO_LARGE, ids=range(len(TOO_LARGE)))
def test_an_answer_beyond_the_bounds_is_wrong_by_rule(answer: str) -> None:
    assert verify("x + 42", rf"\boxed{{{answer}}}") is Verdict.WRONG
    assert verify(answer, r"\boxed{\sqrt{5}}") is Verdict.WRONG


@pytest.mark.usefixtures("no_engine")
def test_a_large_gold_is_still_met_by_its_own_spelling() -> None:
    assert verify("10^{10^{10}}", r"\boxed{10^{10^{10}}}") is Verdict.CORRECT


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize("answer", COMPUTATIONS)
def test_a_computation_is_no_answer_to_a_gold_without_one(answer: str) -> None:
    assert computations(answer)
    assert verify(r"\frac{\pi^2}{6}", rf"\boxed{{{answer}}}") is Verdict.WRONG
    assert verify(answer, rf"\boxed{{{answer}}}") is Verdict.CORRECT


def test_a_computation_is_compared_with_a_gold_that_has_one() -> None:
    gold = r"F_n = \sum_{k=0}^{n-1} F_k F_{n-k-1}"
    assert verify(gold, r"\boxed{F_n = \sum_{k=0}^{n-1} F_{n-k-1} F_k}", 60.0) is Verdict.CORRECT
    assert verify(gold, r"\boxed{F_n = \sum_{k=0}^{n-2} F_k F_{n-k-2}}", 60.0) is Verdict.WRONG


@pytest.mark.parametrize("answer", ORDINARY)
def test_ordinary_answers_are_within_the_bounds(answer: str) -> None:
    assert not is_too_large(answer)


Tree = Any  # an integer, or (operator, tree, tree)
trees = st.recursive(st.integers(0, 40), lambda inner: st.tuples(st.sampled_from("+-*/^!"), inner, inner), max_leaves=8)


def spell(tree: Tree) -> str:
    if isinstance(tree, int):
        return str(tree)
    symbol, left, right = tree[0], spell(tree[1]), spell(tree[2])
    forms = {"^": f"({left})^{{{right}}}", "/": rf"\frac{{{left}}}{{{right}}}", "!": f"({left})!"}
    return forms.get(symbol, f"({left}){symbol}({right})")


def evaluate(tree: Tree) -> Fraction:
    if isinstance(tree, int):
        return Fraction(tree)
    symbol, a = tree[0], evaluate(tree[1])
    if symbol == "!":  # of its left side; the right one is not spelled, and may be astronomical
        if a.denominator == 1 and a >= 0:
            return Fraction(math.factorial(a.numerator))
        raise ArithmeticError("no rational number")
    b = evaluate(tree[2])
    if symbol == "^":
        if b.denominator != 1:
            raise ArithmeticError("no rational number")
        return a**b.numerator
    return {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}[symbol](a, b)


@settings(max_examples=300, deadline=None)
@given(trees)
def test_no_number_within_the_bounds_is_larger_than_they_say(tree: Tree) -> None:
    if is_too_large(spell(tree)):
        return
    try:
        value = evaluate(tree)
    except ArithmeticError:
        return
    assert max(value.numerator.bit_length(), value.denominator.bit_length()) <= MAX_BITS + 1


PIECES = (
    r"9 10 x y e i ! ^ ^{ ^{10^{10}} { } ( ) [ ] | , ; = < > + - * / _ \frac{ \frac \sqrt{ \sqrt[3]{ \binom{ \pi "
    r"\infty \sin \cos( \log \exp( \sum_{k=1}^{ \int_0^ \begin{pmatrix} \end{pmatrix} & \\ \cup \le \pm \Gamma( 1e999 "
    r"\operatorname{eye}( \lfloor \rfloor \mod \text{ \left( \right) \overline{ 0.5 \alpha"
)
soups = st.lists(st.sampled_from(PIECES.split()), max_size=60).map("".join)


@settings(max_examples=300, deadline=None)
@given(soups, st.integers(1, 40))
def test_any_formula_is_measured_in_bounded_time(soup: str, repeats: int) -> None:
    begin = time.perf_counter()
    assert is_too_large(soup * repeats) in (True, False)
    assert time.perf_counter() - begin < 5.0  # a thousand times what it takes


def test_depth_is_bounded() -> None:
    assert not is_too_large("(" * MAX_DEPTH + "x" + ")" * MAX_DEPTH)
    assert is_too_large("(" * (MAX_DEPTH + 1) + "x" + ")" * (MAX_DEPTH + 1))
