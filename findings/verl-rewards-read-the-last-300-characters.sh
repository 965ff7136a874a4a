#!/usr/bin/env bash
# What: verl's rewards for GSM8K and DAPO look for the answer in the last 300 characters only, and GSM8K's compares
#   what it finds as text.
# Versions: verl==0.9.1
# Expected: `#### 18` or `Answer: 18` is found wherever it stands; `#### 18.` and `#### $18` are 18.
# Seen: followed by 80 more words, `#### 18` gets 0 and `Answer: 18` -1; at the end they get 1. `#### 18.` and
#   `#### $18` get 0; `Answer: 18.` gets -1, `Answer: 18 dollars` 1.
# Matters: a policy that adds a check or a remark after its answer is punished as if it were wrong, and a full stop
#   costs the reward.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv --no-deps verl==0.9.1
run <<'PYTHON'
import importlib.util
import sysconfig
from pathlib import Path


def reward(name):
    path = Path(sysconfig.get_path("purelib"), "verl/utils/reward_score", f"{name}.py")
    specification = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module.compute_score


gsm8k, dapo = reward("gsm8k"), reward("math_dapo")
MORE = " as one can check" * 20
for answer, wanted in (("#### 18", 1), ("#### 18" + MORE, 0), ("#### 18.", 0), ("#### $18", 0), ("#### 18 dollars", 1)):
    seen = gsm8k(answer, "18")
    print("gsm8k", repr(answer[:30]), seen)
    assert seen == wanted, f"{answer!r} gets {seen} now"
for answer, wanted in (("Answer: 18", 1), ("Answer: 18\n" + MORE, -1), ("Answer: 18.", -1), ("Answer: 18 dollars", 1)):
    seen = dapo(answer, "18")["score"]
    print("dapo", repr(answer[:30]), seen)
    assert seen == wanted, f"{answer!r} gets {seen} now"
PYTHON
