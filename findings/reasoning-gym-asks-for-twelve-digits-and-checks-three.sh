#!/usr/bin/env bash
# What: decimal_arithmetic asks for up to 12 significant digits and pays 1 for an answer that is wrong in the
#   third place behind the point.
# Versions: reasoning-gym==0.1.25
# Expected: the digits asked for are the digits compared: 6.32098837209 and 6.321 differ.
# Seen: gold 6.32098837209 (`to a maximum of 12 significant digits`): adding 0.001 gets 1.0, adding 0.01 gets 0.0;
#   so does every entry of 50, whatever its size.
# Matters: accuracy on this data set says nothing of precision, and small golds (0.0004) are met by 0.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv reasoning-gym==0.1.25
run <<'PYTHON'
import reasoning_gym

data = reasoning_gym.create_dataset("decimal_arithmetic", size=50, seed=1)
assert "12 significant digits" in data[0]["question"], "the question is another now"
near = [data.score_answer(repr(float(entry["answer"]) + 0.0009), entry) for entry in data]
far = [data.score_answer(repr(float(entry["answer"]) + 0.01), entry) for entry in data]
print(data[0]["question"].strip(), data[0]["answer"], "+0.0009:", sum(near) / 50, "+0.01:", sum(far) / 50)
assert near == [1.0] * 50, "an answer that is off by 0.0009 is wrong now"
assert far == [0.0] * 50, "an answer that is off by 0.01 is paid now"
PYTHON
