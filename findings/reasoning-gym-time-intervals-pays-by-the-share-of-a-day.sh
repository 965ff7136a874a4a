#!/usr/bin/env bash
# What: time_intervals pays a wrong duration 1 minus its error as a share of 24 hours, so a constant answer
#   earns most of the reward.
# Versions: reasoning-gym==0.1.25
# Expected: a duration that is wrong by an hour gets 0, or a small part; the answer `00:00:00` earns nothing.
# Seen: one hour too long gets 0.958, one minute 0.999, and `06:00` for each question that asks for HH:MM gets
#   0.80 on average, for an accuracy of 0.
# Matters: the difference between right and an hour wrong is 0.04 of the reward, below the noise of a group; a
#   curve of mean reward that stands at 0.8 says nothing.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv reasoning-gym==0.1.25
run <<'PYTHON'
import reasoning_gym

data = reasoning_gym.create_dataset("time_intervals", size=300, seed=1)
clock = [entry for entry in data if entry["metadata"]["task_type"] == "time"]
late, constant = [], []
for entry in clock:
    hours, minutes = map(int, entry["answer"].split(":"))
    if hours < 23:
        late.append(data.score_answer(f"{hours + 1:02d}:{minutes:02d}", entry))
    constant.append(data.score_answer("06:00", entry))
exact = sum(entry["answer"] == "06:00" for entry in clock)
mean = sum(constant) / len(constant)
print(f"{len(clock)} questions, {exact} of them have the answer 06:00; 06:00 earns {mean:.3f}; an hour late {set(late)}")
assert all(abs(value - 23 / 24) < 1e-9 for value in late), f"an hour late gets {set(late)} now"
assert mean > 0.7 and exact <= 2, f"a constant earns {mean} now"
PYTHON
