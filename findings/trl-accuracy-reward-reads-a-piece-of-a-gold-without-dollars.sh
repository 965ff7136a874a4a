#!/usr/bin/env bash
# What: trl's accuracy_reward reads of a gold in bare LaTeX often only one number, pays an answer that is that number, and
#   pays nothing for the gold itself.
# Versions: trl==1.16.0, math-verify==0.9.0, latex2sympy2-extended==1.11.0, sympy==1.14.0, transformers==5.24.0
# Expected: the docstring's own golds are bare LaTeX (\frac{1}{3}), and "if gold is not parseable, None"; so a gold is
#   either compared as it stands or skipped.
# Seen: for the gold 3\sqrt{13} the answer $\boxed{3\sqrt{13}}$ gets 0.0 and $\boxed{3}$ gets 1.0; so it is for 6 - 5i
#   (5 is paid), 2x+3 (2), (-\infty, 3] (3), 10^{-3} (10), 3\pi (3), 1,-2 (1). \sqrt{2}, p - q and [-2,7] are skipped.
#   With $…$ around the gold all are compared as they stand.
# Matters: the column "answer" of MATH and MATH-500 is bare LaTeX; every right completion of these rows gets 0, and a
#   policy is paid for a fragment.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv math-verify==0.9.0 latex2sympy2-extended==1.11.0 antlr4-python3-runtime==4.13.2 sympy==1.14.0 transformers==5.24.0
# Its rewards need no torch.
"$work/venv/bin/python" -m pip install --quiet --no-deps trl==1.16.0 || exit 75
run <<'PYTHON'
from trl.rewards import accuracy_reward


def reward(answer, gold):
    completion = [{"role": "assistant", "content": f"So the answer is $\\boxed{{{answer}}}$."}]
    return accuracy_reward([completion], [gold])[0]


PIECES = {r"3\sqrt{13}": "3", "6 - 5i": "5", "2x+3": "2", r"(-\infty, 3]": "3", "10^{-3}": "10", r"3\pi": "3", "1,-2": "1"}
for gold, piece in PIECES.items():
    seen = reward(gold, gold), reward(piece, gold), reward(gold, f"${gold}$"), reward(piece, f"${gold}$")
    print(f"gold {gold}: the gold gets {seen[0]}, {piece} gets {seen[1]}; with $…$ around the gold {seen[2]} and {seen[3]}")
    assert seen == (0.0, 1.0, 1.0, 0.0), f"{gold}: {seen} now"
for gold in (r"\sqrt{2}", "p - q", "[-2,7]"):
    print(f"gold {gold}: the gold gets {reward(gold, gold)}")
    assert reward(gold, gold) is None, f"{gold} is not skipped now"
assert reward(r"\frac{1}{3}", r"\frac{1}{3}") == 1.0
PYTHON
