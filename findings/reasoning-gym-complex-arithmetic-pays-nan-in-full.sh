#!/usr/bin/env bash
# What: complex_arithmetic's scorer pays 1 for the answer `nan` to every question.
# Versions: reasoning-gym==0.1.25
# Expected: `nan` is no number of the question, so it gets 0; a right answer with the imaginary part first, `3i - 15`,
#   gets 1.
# Seen: `nan` gets 1.0 for all of 50 entries: the distance is NaN, and min(1.0, NaN) is 1.0. `3.0i - 15.0` for
#   -15.0 + 3.0i gets 0.0, and so does the right answer with a line break behind it.
# Matters: a three-letter answer is the optimum of this data set, and a right one in another order earns nothing.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv reasoning-gym==0.1.25
run <<'PYTHON'
import reasoning_gym

data = list(entries := reasoning_gym.create_dataset("complex_arithmetic", size=50, seed=1))
scores = [entries.score_answer("nan", entry) for entry in data]
print("nan:", scores.count(1.0), "of 50 paid in full")
assert scores == [1.0] * 50, f"nan gets {set(scores)} now"
first = data[0]
swapped = {answer: entries.score_answer(answer, first) for answer in (first["answer"], "3.0i - 15.0", first["answer"] + "\n")}
print(swapped)
assert first["answer"] == "-15.0 + 3.0i", f"the first answer is {first['answer']} now"
assert list(swapped.values()) == [1.0, 0.0, 0.0], f"the scores are {swapped} now"
PYTHON
