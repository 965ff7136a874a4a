#!/usr/bin/env bash
# What: math-verify calls a gold of one letter and a sum, product or fraction that equals it different.
# Versions: math-verify==0.9.0, latex2sympy2-extended==1.11.0, sympy==1.14.0
# Expected: formulas are compared as formulas: 2x - x is x, as 3x - x is 2x.
# Seen: False for x and 2x - x, x + 0, -(-x), \frac{2x}{2}, x \cdot 1, in either order, also for x_1 and \alpha;
#   True for 2x and 3x - x, \pi and 2\pi - \pi, f(x) and 2f(x) - f(x), x = y and x = 2y - y.
# Matters: where the gold is a single letter, an answer that is right and not simplified earns nothing.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv math-verify==0.9.0 latex2sympy2-extended==1.11.0 antlr4-python3-runtime==4.13.2 sympy==1.14.0
run <<'PYTHON'
from math_verify import parse, verify


def equal(gold, answer):
    said = verify(parse(f"${gold}$"), parse(f"${answer}$"))
    print(f"{gold:4} {answer:14} {said}")
    return said


for gold, answer in [
    ("x", "2x - x"), ("x", "x + 0"), ("x", "-(-x)"), ("x", r"\frac{2x}{2}"), ("x", r"x \cdot 1"), ("2x - x", "x"),
    ("x_1", "2x_1 - x_1"), (r"\alpha", r"\frac{2\alpha}{2}"),
]:
    assert not equal(gold, answer), f"{gold} is {answer} now"
for gold, answer in [
    ("x", "(x)"), ("2x", "3x - x"), (r"\pi", r"2\pi - \pi"), ("f(x)", "2f(x) - f(x)"), ("x = y", "x = 2y - y"),
]:
    assert equal(gold, answer), f"{gold} is not {answer} any more"
PYTHON
