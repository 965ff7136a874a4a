#!/usr/bin/env bash
# What: latex2sympy2-extended reads the repeating decimal `0.\overline{3}` as 0, so math-verify takes any two such
#   decimals for equal.
# Versions: latex2sympy2-extended==1.11.0, math-verify==0.9.0, sympy==1.14.0
# Expected: `0.\overline{3}` is 1/3, or nothing that can be read; 0.\overline{3} and 0.\overline{6} are different.
# Seen: parse gives [0, '0.\overline{3}'] for it and for `0.\dot{3}`; verify says True for gold `0.\overline{3}` and
#   answer `0.\overline{6}` or `0`, and False for gold `\frac13` and answer `0.\overline{3}`.
# Matters: conversions of fractions, a standard kind of question, are paid for wrong digits, and a right answer
#   isn't paid where the gold is a fraction.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv math-verify==0.9.0 latex2sympy2-extended==1.11.0 antlr4-python3-runtime==4.13.2 sympy==1.14.0
run <<'PYTHON'
from math_verify import parse, verify

CASES = (
    (r"$0.\overline{3}$", r"$0.\overline{6}$", True),
    (r"$0.\overline{3}$", "$0$", True),
    (r"$\frac13$", r"$0.\overline{3}$", False),
)
for gold, answer, wanted in CASES:
    seen = verify(parse(gold), parse(answer))
    print(gold, "|", answer, "->", seen, parse(answer))
    assert seen is wanted, f"{answer} for {gold} is {seen} now"
assert parse(r"$0.\overline{3}$")[0] == 0 == parse(r"$0.\dot{3}$")[0], "repeating decimals are read otherwise now"
PYTHON
