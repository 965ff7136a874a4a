#!/usr/bin/env bash
# What: skyrl-gym's reward of AIME, the one of DAPO, gives -1 to a right number that is bold, in \( \), or ends with a
#   full stop.
# Versions: skyrl-gym==0.4.0, omegaconf==2.3.0
# Expected: "Answer: 204" in Markdown's bold is the answer 204: $204$, \boxed{204} and units are removed, after all.
# Seen: "**Answer:** 204" is read as "**204", "Answer: **204**" as "**204**", "Answer: 204." as "204.", "Answer: \(204\)" as
#   "\(204\)"; all get -1.0. "Answer: $204$" and "Answer: \boxed{204} km" get 1.0.
# Matters: instruct models write the last line in bold; the reward is for the typography, and right rollouts are pushed down.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv omegaconf==2.3.0 requests func_timeout pandas
"$work/venv/bin/python" -m pip install --quiet --no-deps skyrl-gym==0.4.0 || exit 75
run <<'PYTHON'
import skyrl_gym

CASES = {
    "Answer: $204$": 1.0,
    r"Answer: \boxed{204} km": 1.0,
    "**Answer:** 204": -1.0,
    "Answer: **204**": -1.0,
    "Answer: 204.": -1.0,
    r"Answer: \(204\)": -1.0,
}
for answer, wanted in CASES.items():
    env = skyrl_gym.make("aime", env_config={}, extras={"reward_model": {"ground_truth": "204"}})
    env.init([{"role": "user", "content": "Solve it."}])
    step = env.step(f"So we get it.\n\n{answer}")
    print(f"{answer}: {step['reward']} (read as {step['metadata']['pred']!r})")
    assert step["reward"] == wanted, f"{answer} gets {step['reward']} now"
PYTHON
