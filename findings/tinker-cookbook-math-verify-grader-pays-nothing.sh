#!/usr/bin/env bash
# What: tinker-cookbook's environment of mathematics gives no reward for any answer with grader="math_verify": it runs
#   math-verify in a worker thread, where that raises, and the error counts as a wrong answer.
# Versions: tinker-cookbook==0.5.8, math-verify==0.9.0, latex2sympy2-extended==1.11.0, sympy==1.14.0, pylatexenc==2.10
# Expected: both graders that the environment offers pay a right answer; an error of the set-up ends the run.
# Seen: grade_answer_math_verify("5", "5") is True; through run_with_timeout_signal, as MathEnv calls it, it is None,
#   which MathEnv takes as wrong, with a line in the log: "doesn't support threaded environment". The grader "sympy" is
#   True both ways.
# Matters: a whole run whose rewards are all 0 looks like a policy that can't solve the problems.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv math-verify==0.9.0 latex2sympy2-extended==1.11.0 antlr4-python3-runtime==4.13.2 sympy==1.14.0 pylatexenc==2.10
# The module of graders is loaded by itself, so that torch and tinker aren't needed.
"$work/venv/bin/python" -m pip install --quiet --no-deps tinker-cookbook==0.5.8 || exit 75
run <<'PYTHON'
import importlib.util
import sysconfig
from pathlib import Path

folder = Path(sysconfig.get_path("purelib"), "tinker_cookbook", "recipes", "math_rl")
spec = importlib.util.spec_from_file_location("math_grading", folder / "math_grading.py")
grading = importlib.util.module_from_spec(spec)
spec.loader.exec_module(grading)

environment = (folder / "math_env.py").read_text(encoding="utf-8")
assert "grader_func = grade_answer_math_verify" in environment and "out = run_with_timeout_signal(" in environment
for grader, wanted in ((grading.grade_answer, True), (grading.grade_answer_math_verify, None)):
    for answer, gold in (("5", "5"), (r"\frac{1}{2}", r"\frac{1}{2}")):
        direct = grader(answer, gold)
        seen = grading.run_with_timeout_signal(grader, args=(answer, gold), timeout_seconds=1)
        print(f"{grader.__name__}: {answer} for {gold} is {direct} by itself, {seen} as the environment calls it")
        assert direct is True and seen is wanted, f"{grader.__name__} is {seen} in a thread now"
PYTHON
