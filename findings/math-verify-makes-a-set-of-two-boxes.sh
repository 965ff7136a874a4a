#!/usr/bin/env bash
# What: math-verify joins boxes that stand close to each other into one set, so a corrected last answer is wrong.
# Versions: math-verify==0.9.0, latex2sympy2-extended==1.11.0, sympy==1.14.0
# Expected: the last box is the answer, as it is when more text stands between the boxes, and as other graders
#   (and prompts) say.
# Seen: `\boxed{3} is wrong, it is \boxed{2}` is [{2, 3}, '3,2'], and verify with gold 2 is False;
#   `\boxed{3} is wrong. It must be \boxed{2}` is [2, '2'], and True. A line break or a comma between two boxes
#   joins them too.
# Matters: self-correction in one sentence, or an answer written twice in two forms, costs the reward,
#   depending on how few characters stand between.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv math-verify==0.9.0 latex2sympy2-extended==1.11.0 antlr4-python3-runtime==4.13.2 sympy==1.14.0
run <<'PYTHON'
from math_verify import parse, verify

CASES = (
    (r"\boxed{3} is wrong, it is \boxed{2}", False),
    ("\\boxed{3}\n\\boxed{2}", False),
    (r"\boxed{3} wait, \boxed{2}", False),
    (r"\boxed{3} is wrong. It must be \boxed{2}", True),
)
for answer, wanted in CASES:
    seen = verify(parse("$2$"), parse(answer))
    print(repr(answer), "->", seen, parse(answer))
    assert seen is wanted, f"{answer} for 2 is {seen} now"
PYTHON
