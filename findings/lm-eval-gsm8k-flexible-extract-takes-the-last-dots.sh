#!/usr/bin/env bash
# What: gsm8k's `flexible-extract` of lm-eval takes a run of dots, commas or dollar signs at the end of an answer
#   for the number.
# Versions: lm-eval==0.4.13
# Expected: "flexible" finds the last number of `The answer is $\boxed{18}$.` or `The answer is 18 ... Bye`.
# Seen: it extracts `$.` from the first and `...` from the second, so both are wrong for 18; `18...` is extracted
#   with its dots and is wrong. `$18.00` is wrong too: what is left, 18.00, is compared as text. `$18$.` is right.
# Matters: a model that learns to answer in LaTeX, or to end with an ellipsis, loses points of the best known
#   benchmark of a run without a wrong answer; its authors' other filter, strict-match, wants `####`.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv lm-eval==0.4.13
run <<'PYTHON'
from pathlib import Path

import lm_eval
import yaml
from lm_eval.api.metrics import exact_match_hf_evaluate
from lm_eval.filters.extraction import RegexFilter

task = yaml.safe_load((Path(lm_eval.__file__).parent / "tasks/gsm8k/gsm8k.yaml").read_text())
(regex,) = (each["filter"][0] for each in task["filter_list"] if each["name"] == "flexible-extract")
extract = RegexFilter(regex_pattern=regex["regex_pattern"], group_select=regex["group_select"])
options = {name: task["metric_list"][0][name] for name in ("ignore_case", "ignore_punctuation", "regexes_to_ignore")}

CASES = (
    (r"The answer is $\boxed{18}$.", "$.", 0),
    ("The answer is 18 ... Bye", "...", 0),
    ("The answer is 18...", "18...", 0),
    ("The answer is $18.00", "$18.00", 0),
    ("The answer is $18$.", "$18$.", 1),
)
for answer, wanted, score in CASES:
    (found,) = list(extract.apply([[answer]], [{}]))[0]
    value = exact_match_hf_evaluate(predictions=[found], references=["work\n#### 18"], **options)["exact_match"]
    print(repr(answer), "->", repr(found), value)
    assert (found, value) == (wanted, score), f"{answer!r} gives {found!r} and {value} now"
PYTHON
