#!/usr/bin/env bash
# What: math-verify reads a number that stands behind a closing brace inside or behind a fraction digit by digit:
#   in `\frac{\sqrt{3} 10}{4}` the 10 becomes {1}0 and the whole 0, in `\frac{5}{2} 16` the 16 becomes {1}6 and 7.
# Versions: math-verify==0.9.0, latex2sympy2_extended==1.11.0
# Expected: valid LaTeX is read as it is set on paper. The repair of malformed fractions (`\frac12`) touches
#   malformed fractions only: these have both of their braces.
# Seen: \frac{\sqrt{3} 10}{4} -> 0, \frac{5}{2} 16 -> 35/2 (not 40), \frac{2^{3} 12}{5} -> 24/5 (not 96/5),
#   \frac{e^{-12} 12^{3}}{3!} -> e^{-12} * 1 * 2^3 / 3!; the first is judged equal to a gold of 0.
#   `\cdot` or a space command (`\,`) in front of the number avoids it.
# Matters: a right answer earns nothing, a wrong one (0) earns all, and nothing is logged.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv math-verify==0.9.0 latex2sympy2_extended==1.11.0
run <<'PYTHON'
from math_verify import parse, verify
from sympy import Rational, simplify, sqrt

cases = {
    r"\frac{\sqrt{3} 10}{4}": (5 * sqrt(3) / 2, 0),
    r"\frac{5}{2} 16": (40, Rational(35, 2)),
    r"\frac{2^{3} 12}{5}": (Rational(96, 5), Rational(24, 5)),
}
for text, (right, seen) in cases.items():
    read = parse(f"${text}$")
    print(text, "is read as", read)
    assert simplify(read[0] - seen) == 0, f"{text} is {read[0]} now, not {seen}"
    dotted = parse("$" + text.replace("} 1", r"} \cdot 1") + "$")
    assert simplify(dotted[0] - right) == 0, f"{text} with a dot is {dotted[0]} now, not {right}"
assert verify(parse("$0$"), parse(r"$\frac{\sqrt{3} 10}{4}$")), "0 is not equal to it now"
PYTHON
