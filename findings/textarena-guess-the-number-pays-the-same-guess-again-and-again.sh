#!/usr/bin/env bash
# What: TextArena's GuessTheNumber pays a game that was lost by invalid moves by how near the last valid guess was.
# Versions: textarena==0.7.4
# Expected: a game that ends with an invalid move is lost, with -1 as in its games for two, or 0; partial pay, if any,
#   for progress, not for the first guess.
# Seen: `[10]` three times (repeating a guess is invalid) earns 0.72 on average over the seeds 1 to 40, of
#   which it wins one; only text without a number from the start earns 0.
# Matters: one guess and nonsense behind it is nearly as good as playing: with group baselines the policy learns to
#   end games early.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv textarena==0.7.4
run <<'PYTHON'
import textarena

rewards, invalid = [], 0
for seed in range(1, 41):
    environment = textarena.make("GuessTheNumber-v0")
    environment.reset(num_players=1, seed=seed)
    done = False
    while not done:
        done, _ = environment.step("It must be [10].")
    reward, info = environment.close()
    rewards.append(reward[0])
    invalid += info[0]["invalid_move"]
mean = sum(rewards) / len(rewards)
print(f"mean reward {mean:.3f}, {rewards.count(1)} won, {invalid} of 40 ended by an invalid move")
assert invalid >= 36, f"only {invalid} games end by an invalid move now"
assert mean > 0.6, f"the mean is {mean} now"
PYTHON
