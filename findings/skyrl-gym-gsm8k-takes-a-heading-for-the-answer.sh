#!/usr/bin/env bash
# What: skyrl-gym's reward of GSM8K reads the first "#### " of an answer, so a heading of the fourth level in Markdown with
#   a number is taken for the answer.
# Versions: skyrl-gym==0.4.0, omegaconf==2.3.0
# Expected: the last "#### " counts, as the solutions of the data set end with it.
# Seen: "#### 1. Eat and bake\n…\n#### 2. Sell\n…\n#### 18" gets 0.0 for 18, as "1." is read; without the two headings
#   1.0. In the environment of several turns it gets the reward for the format.
# Matters: instruct models number their steps with such headings; a right and well-formed answer is paid as a wrong one.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv omegaconf==2.3.0 requests func_timeout pandas
"$work/venv/bin/python" -m pip install --quiet --no-deps skyrl-gym==0.4.0 || exit 75
run <<'PYTHON'
import skyrl_gym

PLAIN = "16 - 3 - 4 = 9 are left, and 9 * 2 = 18.\n#### 18"
HEADED = "#### 1. Eat and bake\n16 - 3 - 4 = 9 are left.\n#### 2. Sell\n9 * 2 = 18.\n#### 18"
EXTRAS = {"reward_spec": {"ground_truth": "18"}, "max_turns": 5}
for name, answer, wanted in (
    ("gsm8k", PLAIN, 1.0),
    ("gsm8k", HEADED, 0.0),
    ("gsm8k_multi_turn", PLAIN, 1.0),
    ("gsm8k_multi_turn", HEADED, 0.04),
):
    env = skyrl_gym.make(name, env_config={}, extras=EXTRAS)
    env.init([{"role": "user", "content": "How much does she earn?"}])
    reward = env.step(answer)["reward"]
    print(f"{name}: {answer!r} gets {reward}")
    assert abs(reward - wanted) < 1e-9, f"{name} pays {reward} now"
PYTHON
