#!/usr/bin/env bash
# What: math-verify reads a time of day as a ratio in LaTeX, and as its hour in plain text.
# Versions: math-verify==0.9.0, latex2sympy2-extended==1.11.0, sympy==1.14.0
# Expected: 12:30 and 12:45 differ, and 12:30 and 4:10 differ; a text that is no number is compared as text.
# Seen: in dollars 12:30 is [2/5, '12:30'], equal to 4:10 and to 2/5; in plain text 12:30 is [12, '12'], equal to
#   12:45 and 12.
# Matters: questions that ask when a train arrives are in most sets of word problems; a policy is paid for the
#   right hour, or for a time of the same ratio.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv math-verify==0.9.0 latex2sympy2-extended==1.11.0 antlr4-python3-runtime==4.13.2 sympy==1.14.0
run <<'PYTHON'
from math_verify import parse, verify

for gold, answer in (("$12:30$", "$4:10$"), ("12:30", "12:45"), ("The train arrives at 9:15.", "It arrives at 9:50.")):
    seen = verify(parse(gold), parse(answer))
    print(gold, "|", answer, "->", seen, parse(gold), parse(answer))
    assert seen, f"{answer} is wrong for {gold} now"
assert not verify(parse("$12:30$"), parse("$12:45$")), "in LaTeX 12:30 is 12:45 now"
PYTHON
