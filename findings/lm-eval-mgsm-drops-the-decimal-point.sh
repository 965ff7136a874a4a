#!/usr/bin/env bash
# What: lm-eval's mgsm_direct compares numbers without their punctuation: 1.8 and -18 are right for 18, 18.00 isn't.
# Versions: lm-eval==0.4.13
# Expected: `ignore_punctuation` forgives a full stop at the end or a comma between thousands, and leaves the minus
#   sign and the decimal point of a number alone.
# Seen: exact_match with the options of the task's file: gold 18: `1.8` 1.0, `-18` 1.0, `18.00` 0.0, `18.` 1.0.
#   27 files of tasks of the mgsm kind set this option (mgsm, afrimgsm, and others).
# Matters: wrong signs and values are counted as right, and right amounts of money as wrong, in a benchmark of
#   eleven languages.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv lm-eval==0.4.13
run <<'PYTHON'
from pathlib import Path

import lm_eval
import yaml
from lm_eval.api.metrics import exact_match_hf_evaluate

task = yaml.safe_load((Path(lm_eval.__file__).parent / "tasks/mgsm/direct/direct_yaml").read_text())
(metric,) = task["metric_list"]
options = {name: metric[name] for name in ("ignore_case", "ignore_punctuation")}
assert options == {"ignore_case": True, "ignore_punctuation": True}, f"the options are {options} now"
for answer, wanted in (("18", 1), ("18.", 1), ("1.8", 1), ("-18", 1), ("18.00", 0), ("19", 0)):
    seen = exact_match_hf_evaluate(predictions=[answer], references=["18"], **options)["exact_match"]
    print(answer, "for 18:", seen)
    assert seen == wanted, f"{answer} for 18 gets {seen} now"
PYTHON
