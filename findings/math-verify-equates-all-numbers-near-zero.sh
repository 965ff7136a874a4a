#!/usr/bin/env bash
# What: math-verify compares decimals after rounding them to six places behind the point, so any two numbers
#   below 5e-7 are equal.
# Versions: math-verify==0.9.0, latex2sympy2-extended==1.11.0, sympy==1.14.0
# Expected: `float_rounding=6` keeps six significant digits, or both numbers are compared relative to their size:
#   1.6e-19 (a charge) and 9.1e-31 (a mass) differ by twelve orders of magnitude.
# Seen: verify of `1.6 \times 10^{-19}` and `9.1 \times 10^{-31}` is True, of `0.0000001` and `0.0000002` too;
#   of `10^{-7}` and `10^{-8}`, which are exact fractions, False; of 123456789.1 and 123456789.2 False.
# Matters: physics and chemistry answers with small constants are all right; the reward is 1 for anything tiny.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv math-verify==0.9.0 latex2sympy2-extended==1.11.0 antlr4-python3-runtime==4.13.2 sympy==1.14.0
run <<'PYTHON'
from math_verify import parse, verify

CASES = (
    (r"1.6 \times 10^{-19}", r"9.1 \times 10^{-31}", True),
    ("0.0000001", "0.0000002", True),
    (r"6.63 \times 10^{-34}", "0.0", True),
    ("10^{-7}", "10^{-8}", False),
    ("123456789.1", "123456789.2", False),
)
for gold, answer, wanted in CASES:
    seen = verify(parse(f"${gold}$"), parse(f"${answer}$"))
    print(gold, "|", answer, "->", seen)
    assert seen is wanted, f"{answer} for {gold} is {seen} now"
PYTHON
