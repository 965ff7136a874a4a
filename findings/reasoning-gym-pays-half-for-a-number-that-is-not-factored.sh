#!/usr/bin/env bash
# What: prime_factorization pays 0.5 for the number of the question itself, and for `NUMBER × 1`.
# Versions: reasoning-gym==0.1.25
# Expected: the number copied from the question is no factorization, so it gets 0 or 0.01 as other wrong answers
#   do; factors divided by `*` or `x` are read, or count as wrong.
# Seen: `980` for 980 gets 0.5, `980 × 1` and `-980 × -1` get 0.5, `7` gets 0.01; `2 * 2 * 5 * 7 * 7` raises
#   ValueError in the scorer.
# Matters: half of the reward for a copy of the prompt is what a policy finds first, and an exception in the
#   scorer ends a run that doesn't catch it.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv reasoning-gym==0.1.25
run <<'PYTHON'
import reasoning_gym

data = reasoning_gym.create_dataset("prime_factorization", size=6, seed=1)
for entry in data:
    number = entry["metadata"]["number"]
    if "×" not in entry["answer"]:
        continue
    for answer, wanted in ((entry["answer"], 1.0), (f"{number}", 0.5), (f"{number} × 1", 0.5), (f"-{number} × -1", 0.5)):
        seen = data.score_answer(answer, entry)
        print(answer, seen)
        assert seen == wanted, f"{answer} gets {seen} for {number} now"
    try:
        value = data.score_answer(entry["answer"].replace("×", "*"), entry)
    except ValueError as error:
        print("with *:", error)
    else:
        raise SystemExit(f"factors with * get {value} now")
PYTHON
