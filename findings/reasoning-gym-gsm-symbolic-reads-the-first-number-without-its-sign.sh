#!/usr/bin/env bash
# What: gsm_symbolic's scorer reads the first number of an answer, without its sign and only up to a comma.
# Versions: reasoning-gym==0.1.25
# Expected: the last number counts, as in most graders of GSM8K, `-18000` is wrong for 18000, and `18,000`, as
#   people write it, is right.
# Seen: for a gold above 1000: `-GOLD` gets 1, `GOLD` with a comma gets 0.01, `2 * 3 = GOLD` gets 0.01,
#   `GOLD or 7` and `GOLD/3` get 1. The pattern starts with a word boundary, which never stands before a minus.
# Matters: whoever trains on gsm_symbolic rewards wrong signs and lists of guesses, and punishes worked answers
#   and thousands with commas.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv reasoning-gym==0.1.25
run <<'PYTHON'
import reasoning_gym

data = reasoning_gym.create_dataset("gsm_symbolic", size=400, seed=2)
entry = next(entry for entry in data if entry["answer"].isdigit() and int(entry["answer"]) > 999)
gold = entry["answer"]
wanted = {
    gold: 1.0,
    f"-{gold}": 1.0,
    f"{int(gold):,}": 0.01,
    f"2 * 3 = {gold}": 0.01,
    f"{gold} or 7": 1.0,
    f"{gold}/3": 1.0,
}
for answer, value in wanted.items():
    seen = data.score_answer(answer, entry)
    print(repr(answer), seen)
    assert seen == value, f"{answer!r} gets {seen} for {gold} now"
PYTHON
