#!/usr/bin/env bash
# What: some rows of reasoning-gym's list_functions are another question, two of 600 with another answer, each time
#   that dataset[i] is read, since their numbers come from Python's global random and not from the seed.
# Versions: reasoning-gym==0.1.25
# Expected: dataset[i] is one row for a seed; the class is indexed like a list, and most of its rows keep to that.
# Seen: for seed 1, six of the first 60 rows (1, 10, 36, 41, 48, 53) ask about other numbers at the second look in the
#   same process, 41 of 600 in all; random.seed() in front of each look makes them equal.
# Matters: a prompt from one look is scored with the gold of another; a resumed or repeated evaluation isn't the
#   same one; PYTHONHASHSEED doesn't help here.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv reasoning-gym==0.1.25
run <<'PYTHON'
import random

import reasoning_gym

dataset = reasoning_gym.create_dataset("list_functions", seed=1, size=600)


def look(row):
    entry = dataset[row]
    return entry["question"], entry["answer"]


def seeded_look(row):
    random.seed(0)
    return look(row)


pairs = [(look(row), look(row)) for row in range(600)]
other = [row for row, (one, two) in enumerate(pairs) if one != two]
golds = [row for row in other if pairs[row][0][1] != pairs[row][1][1]]
print(f"of 600 rows {len(other)} are another question at the second look, {len(golds)} with another answer")
print("first:", other[:6], golds[:6])
assert set(other) >= {1, 10, 36, 41, 48, 53}, f"other rows change now: {other[:20]}"
assert len(other) < 300, f"{len(other)} of 600 rows change now"
assert all(seeded_look(row) == seeded_look(row) for row in other), "the global seed no longer decides"
PYTHON
