#!/usr/bin/env bash
# What: lighteval's task of the AIMO prize scores each answer without a box 1, and the right answer in a box 0.
# Versions: lighteval==0.13.0
# Expected: a right boxed answer scores 1 and "I do not know." 0; the normalizer of mathematics takes the last box.
# Seen: it makes the empty text of all that has no box, and the task's golds are bare numbers: for the gold 5
#   "So it is $\boxed{5}$." scores 0, "I do not know." and "So it is 7." score 1. The normalizer of GSM8K does alike
#   with what has no "####": "[invalid]" is equal to "[invalid]".
# Matters: AIMO's number is the share of answers that forgot the box; so is each number of a custom task with bare golds
#   and normalize_gold, as the tasks in the package have it.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv numpy==2.3.5 aenum==3.1.15 packaging pydantic latex2sympy2_extended==1.0.6 antlr4-python3-runtime==4.13.2 sympy==1.14.0
"$work/venv/bin/python" -m pip install --quiet --no-deps lighteval==0.13.0 || exit 75
run <<'PYTHON'
import importlib.abc
import importlib.machinery
import sys
from unittest.mock import MagicMock

# The metrics below use none of these; the package imports them for others.
ABSENT = "datasets huggingface_hub inspect_ai multiprocess nltk pandas pytablewriter requests sacrebleu scipy sklearn tqdm"


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in (*ABSENT.split(), "torch", "transformers"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return MagicMock(__path__=[])

    def exec_module(self, module):
        pass


sys.meta_path.append(Absent())

from lighteval.metrics.metrics_sample import ExactMatches
from lighteval.metrics.normalizations import gsm8k_normalizer
from lighteval.models.model_output import ModelResponse
from lighteval.tasks.requests import Doc
from lighteval.tasks.tasks import aimo

(metric,) = aimo.task.metrics
row = {"problem": "2 + 3?", "answer": 5}
CASES = ((r"So it is $\boxed{5}$.", 0), ("I do not know.", 1), ("So it is 7.", 1), (r"So it is $\boxed{7}$.", 0))
for answer, wanted in CASES:
    score = metric.sample_level_fn.compute(aimo.task.prompt_function(row), ModelResponse(text=[answer]))
    print(f"{aimo.task.name}, gold 5: {answer} scores {score}")
    assert score == wanted, f"{answer} scores {score} now"

gsm8k = ExactMatches(strip_strings=True, normalize_gold=gsm8k_normalizer, normalize_pred=gsm8k_normalizer)
for answer, wanted in (("#### 18", 0), ("It is 7.", 1)):
    score = gsm8k.compute(Doc(query="q", choices=["18"], gold_index=0), ModelResponse(text=[answer]))
    print(f"gsm8k_normalizer, gold 18: {answer} scores {score}")
    assert score == wanted, f"{answer} scores {score} now"
PYTHON
