#!/usr/bin/env bash
# What: coin_flip's scorer pays 1 for the answer `0` to nearly every question, and `100` for 1.
# Versions: reasoning-gym==0.1.25
# Expected: a probability of 0.3125 is met by 0.3125 or 5/16, within a tolerance of 1e-4 as its signature says; 0 is
#   wrong, all the more as no question has the answer 0.
# Seen: of 200 questions of seed 1 the answer `0` gets 1.0 for 187, and for none it is right; `0.3` gets 1.0
#   for 0.3125, `0.32` 0.75, and `0.5` earns 0.61 on average: it pays the digits that two texts begin with, as a
#   share of the shorter one.
# Matters: a policy that always answers 0 has 0.93 accuracy.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv reasoning-gym==0.1.25
run <<'PYTHON'
import reasoning_gym

data = list(entries := reasoning_gym.create_dataset("coin_flip", size=200, seed=1))
earned = {answer: [entries.score_answer(answer, entry) for entry in data] for answer in ("0", "0.5")}
right = sum(float(entry["answer"]) == 0 for entry in data)
for answer, scores in earned.items():
    print(answer, "mean", sum(scores) / 200, "paid in full:", scores.count(1.0), "of 200")
print("questions with the answer 0:", right)
assert right == 0 and earned["0"].count(1.0) == 187, f"0 is paid in full {earned['0'].count(1.0)} times now"
five = next(entry for entry in data if entry["answer"] == "0.3125")
near = {answer: entries.score_answer(answer, five) for answer in ("0.3125", "0.3", "0.32")}
print("for 0.3125:", near)
assert list(near.values()) == [1.0, 1.0, 0.75], f"for 0.3125: {near} now"
PYTHON
