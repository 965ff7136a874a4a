#!/usr/bin/env bash
# What: reasoning-gym's default scorer pays any text that contains the gold the share of its length that is
#   the gold, so a wrong number gets 0.5 to 0.9 and a right sentence 0.06.
# Versions: reasoning-gym==0.1.25
# Expected: a number of another value gets 0 (or the small 0.01 of other data sets), and the right number in a
#   sentence, or with a space or a full stop around it, gets 1 or close to it.
# Seen: gold 4 digits long, as in lcm: `-2842` and `12842` for 2842 get 0.8; gold 5 of aiw: `15` and `-5` get 0.5,
#   ` 5 ` gets 0.33, `The answer is 5.` 0.0625; where the answers are Yes and No, `YesNo` gets 0.5 on average.
#   33 of the 106 data sets use this scorer (lcm, gcd, leg_counting, simple_equations, count_primes, ...),
#   and some more fall back on it.
# Matters: a policy is paid most of the reward for a wrong sign or an extra digit, less for a right answer in
#   words, and mean reward isn't accuracy.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv reasoning-gym==0.1.25
run <<'PYTHON'
import reasoning_gym
from reasoning_gym.dataset import ProceduralDataset
from reasoning_gym.factory import DATASETS


def score(name, text):
    data = reasoning_gym.create_dataset(name, size=1, seed=1)
    return data.score_answer(text.format(data[0]["answer"]), data[0]), data[0]["answer"]


for text in ("{}", "-{}", "1{}", " {} ", "The answer is {}."):
    print(repr(text), "lcm", score("lcm", text), "aiw", score("aiw", text))
for text in ("-{}", "1{}"):
    for name in ("lcm", "aiw", "count_primes", "leg_counting", "simple_equations"):
        value, gold = score(name, text)
        wanted = len(gold) / (len(gold) + 1)
        assert abs(value - wanted) < 1e-9, f"{name} pays {value} for {text.format(gold)} now"
value, gold = score("aiw", "The answer is {}.")
assert abs(value - 0.0625) < 1e-9, f"a right sentence gets {value} now"
data = reasoning_gym.create_dataset("syllogism", size=30, seed=1)
both = sum(data.score_answer("YesNo", entry) for entry in data) / 30
print("syllogism, YesNo:", both)
assert 0.4 < both < 0.6, f"YesNo gets {both} now"
users = [name for name, (kind, _) in DATASETS.items() if kind.score_answer is ProceduralDataset.score_answer]
print(len(users), "data sets:", *sorted(users))
assert len(users) == 33, f"{len(users)} data sets use it now"
PYTHON
