#!/usr/bin/env bash
# What: in skyrl-gym's GSM8K of several turns an episode earns more the more wrong answers stand before the right one.
# Versions: skyrl-gym==0.4.0, omegaconf==2.3.0
# Expected: the right answer at once earns at least as much as the right answer after wrong ones; the share for the format
#   is for those that never get it right.
# Seen: with max_turns=5, the right answer in the first turn earns 1.0 and ends the episode; four wrong answers in the right
#   format and then the right one earn 0.04 * 4 + 1.0 = 1.16.
# Matters: where the rewards of an episode are summed, as in GRPO, the policy is taught to give wrong numbers first.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv omegaconf==2.3.0 requests func_timeout pandas
"$work/venv/bin/python" -m pip install --quiet --no-deps skyrl-gym==0.4.0 || exit 75
run <<'PYTHON'
import skyrl_gym


def earned(*answers):
    env = skyrl_gym.make("gsm8k_multi_turn", env_config={}, extras={"reward_spec": {"ground_truth": "18"}, "max_turns": 5})
    env.init([{"role": "user", "content": "How much does she earn?"}])
    steps = [env.step(answer) for answer in answers]
    assert [step["done"] for step in steps] == [False] * (len(answers) - 1) + [True]
    return sum(step["reward"] for step in steps)


at_once = earned("#### 18")
late = earned("#### 7", "#### 7", "#### 7", "#### 7", "#### 18")
print(f"right at once: {at_once:.2f}; four wrong answers, then the right one: {late:.2f}")
assert at_once == 1.0, f"the right answer at once earns {at_once} now"
assert abs(late - 1.16) < 1e-9, f"the late one earns {late} now"
PYTHON
