#!/usr/bin/env bash
# What: math-verify reads `1e3` in plain text as 1, and in dollars as the constant e times 3.
# Versions: math-verify==0.9.0, latex2sympy2-extended==1.11.0, sympy==1.14.0
# Expected: scientific notation is a number for a verifier of numbers: 1e3 is 1000, so it is right for 1000 and
#   wrong for 1.
# Seen: parse("1e3") is [1, '1'], parse("$1.5e3$") is [1.5*E*3, ...]; verify says True for gold 1 and answer 1e3,
#   and False for gold 1000. `3.2E5` in dollars is 320000, in plain text `1E3` is 1.
# Matters: answers as Python and calculators print them are paid when they are wrong by a power of ten, and not
#   paid when they are right.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv math-verify==0.9.0 latex2sympy2-extended==1.11.0 antlr4-python3-runtime==4.13.2 sympy==1.14.0
run <<'PYTHON'
from math_verify import parse, verify

for text in ("1e3", "1E3", "1.5e3", "$1e3$", "$1.5e3$", "$3.2E5$"):
    print(repr(text), parse(text))
right, wrong = verify(parse("1000"), parse("1e3")), verify(parse("1"), parse("1e3"))
print("1e3 for 1000:", right, " 1e3 for 1:", wrong)
assert not right, "1e3 is 1000 now"
assert wrong, "1e3 is not 1 any more"
assert verify(parse("1.5"), parse("1.5e300")), "1.5e300 is not 1.5 any more"
assert not verify(parse("$1000$"), parse("$1e3$")), "1e3 in dollars is 1000 now"
PYTHON
