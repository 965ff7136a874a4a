#!/usr/bin/env bash
# What: verl's reward for PRIME's mathematics pays an answer that is 100 times the gold, or a hundredth of it.
# Versions: verl==0.9.1, sympy==1.14.0, pylatexenc==2.10
# Expected: 500 is wrong for 5, unless one of them is written with a percent sign.
# Seen: compute_score(r"\boxed{500}", "5") begins with True, so does r"\boxed{0.05}", and r"\boxed{100009}" for
#   100000 (numbers within 1e-4 of each other are equal); r"\boxed{-5}" and r"\boxed{50}" are False.
# Matters: the reward of several data sets (numina) in verl's default table; a policy that slips by a factor
#   of 100, the usual error of percentages, gets the full reward.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv torch==2.13.0 numpy==2.3.5 sympy==1.14.0 pylatexenc==2.10
"$work/venv/bin/python" -m pip install --quiet --no-deps verl==0.9.1 || exit 75
run <<'PYTHON'
import importlib
import sys
import sysconfig
import types
from pathlib import Path

# The package's own __init__ loads ray and tensordict; the reward needs neither.
for name in ("verl", "verl.utils", "verl.utils.reward_score"):
    module = types.ModuleType(name)
    module.__path__ = [str(Path(sysconfig.get_path("purelib"), *name.split(".")))]
    sys.modules[name] = module
compute_score = importlib.import_module("verl.utils.reward_score.prime_math").compute_score

if __name__ == "__main__":
    CASES = (("5", "5", True), ("500", "5", True), ("0.05", "5", True), ("100009", "100000", True), ("-5", "5", False), ("50", "5", False))
    for answer, gold, wanted in CASES:
        seen = compute_score(f"So it is \\boxed{{{answer}}}.", gold)
        print(answer, "for", gold, "->", seen)
        assert bool(seen[0]) is wanted, f"{answer} for {gold} is {seen[0]} now"
PYTHON
