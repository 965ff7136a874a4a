#!/usr/bin/env bash
# What: the time limit of tinker-cookbook's graders of mathematics doesn't end anything: the call waits until the work is
#   done, and then throws its result away.
# Versions: tinker-cookbook==0.5.8, sympy==1.14.0, pylatexenc==2.10
# Expected: run_with_timeout_signal(f, timeout_seconds=1) returns after about a second.
# Seen: work of 4 seconds that returns True comes back after 4 seconds as None, with "Function timed out after 1 seconds."
#   in the log.
# Matters: one answer on which sympy thinks for an hour stops the whole rollout for that hour, as the environment calls it
#   in its event loop; and a slow right answer is paid nothing though it was waited for.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv sympy==1.14.0 pylatexenc==2.10
# The module of graders is loaded by itself, so that torch and tinker aren't needed.
"$work/venv/bin/python" -m pip install --quiet --no-deps tinker-cookbook==0.5.8 || exit 75
run <<'PYTHON'
import importlib.util
import sysconfig
import time
from pathlib import Path

path = Path(sysconfig.get_path("purelib"), "tinker_cookbook", "recipes", "math_rl", "math_grading.py")
spec = importlib.util.spec_from_file_location("math_grading", path)
grading = importlib.util.module_from_spec(spec)
spec.loader.exec_module(grading)


def slow(answer, gold):
    time.sleep(4)
    return answer == gold


start = time.monotonic()
seen = grading.run_with_timeout_signal(slow, args=("5", "5"), timeout_seconds=1)
took = time.monotonic() - start
print(f"a limit of 1 second: {seen} after {took:.1f} seconds")
assert seen is None, f"the result is {seen} now"
assert took >= 3.9, f"it came back after {took:.1f} seconds now"
PYTHON
