#!/usr/bin/env bash
# What: reset(seed=...) of a TextArena environment sets the seed of Python's global random numbers.
# Versions: textarena==0.7.4
# Expected: the environment has random numbers of its own, as Gymnasium's have; what the trainer draws is not changed
#   by an environment.
# Seen: random.random() behind reset(seed=42) is 0.6394267984578837 each time, whatever was drawn before; a trainer
#   that draws three rows of 1,000 behind each reset draws 654, 114, 25 four times.
# Matters: a trainer that draws prompts, shuffles or samples by `random` gets the same numbers behind each reset, so
#   the same few rows in each step; resetting rows with one seed does so in silence.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv textarena==0.7.4
run <<'PYTHON'
import random

import textarena

seen = []
for _ in range(4):
    environment = textarena.make("TicTacToe-v0")
    environment.reset(num_players=2, seed=42)
    seen.append([random.randrange(1000) for _ in range(3)])
print("rows drawn by a trainer behind four resets:", seen)
assert seen == [seen[0]] * 4, f"the trainer's random numbers are its own now: {seen}"
random.seed(42)
assert [random.randrange(1000) for _ in range(3)] == seen[0], "they are not those of seed 42 any more"
PYTHON
