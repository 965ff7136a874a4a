#!/usr/bin/env bash
# What: math-verify reads numbers with a space between them as their sum: `2 3` is 5.
# Versions: math-verify==0.9.0, latex2sympy2-extended==1.11.0, sympy==1.14.0
# Expected: `2 3` is a product in LaTeX, 23 with a thin space, or a list of two, but not 5; a mixed number needs
#   a fraction behind the whole.
# Seen: parse("$2 3$") is [5, '2 3'], parse("$1 2 3$") is [6, '1 2 3'], parse(r"$2\ 3$") is [5, '2 3']; verify
#   says True for gold 12 and answer `5 7`, False for the gold `\{1,2\}` and the answer `1 2`.
# Matters: an answer that lists two numbers is paid where their sum is the gold, such as steps of an addition;
#   golds that are rows of numbers are wrong.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv math-verify==0.9.0 latex2sympy2-extended==1.11.0 antlr4-python3-runtime==4.13.2 sympy==1.14.0
run <<'PYTHON'
from math_verify import parse, verify

for gold, answer, wanted in (("5", "2 3", True), ("5", r"2\ 3", True), ("12", "5 7", True), ("6", "1 2 3", True), ("23", "2 3", False)):
    seen = verify(parse(f"${gold}$"), parse(f"${answer}$"))
    print(gold, "|", answer, "->", seen, parse(f"${answer}$"))
    assert seen is wanted, f"{answer} for {gold} is {seen} now"
PYTHON
