#!/usr/bin/env bash
# What: lighteval's pass@k is 1.0 for a row without any right sample when there are fewer samples than k, and takes the
#   number of samples of the first row for all rows.
# Versions: lighteval==0.13.0
# Expected: pass@4 of two wrong samples is 0, not a number, or an error (the package's G-Pass@4 of them is 0); each row is
#   estimated by its own samples, as "we assume it's the same as the sample's number of predictions" says.
# Seen: PassAtK(k=4, n=2) and PassAtK(k=4) give 1.0 for two wrong samples. PassAtK(k=1) gives 0.0 for a row with two right of
#   four samples if a row of two samples came before, and 0.5 for two right of two if a row of four came before.
# Matters: evaluations with k above the number of samples report 100 percent; samples lost to filters or time-outs change
#   the number of the other rows, by their order.
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

from lighteval.metrics.metrics_sample import PassAtK
from lighteval.models.model_output import ModelResponse
from lighteval.tasks.requests import Doc


def score(metric, *samples):
    return float(metric.compute(Doc(query="q", choices=["5"], gold_index=0), ModelResponse(text=list(samples))))


for metric in (PassAtK(k=4, n=2), PassAtK(k=4)):
    seen = score(metric, "6", "7")
    print(f"pass@4 of two wrong samples (n={metric.n}): {seen}")
    assert seen == 1.0, "two wrong samples are not 1.0 now"

short_first, long_first = PassAtK(k=1), PassAtK(k=1)
seen = score(short_first, "6", "7"), score(short_first, "6", "7", "5", "5")
print("pass@1 of 0 right of 2, then of 2 right of 4:", seen)
assert seen == (0.0, 0.0), "each row has its own number now"
seen = score(long_first, "6", "7", "8", "9"), score(long_first, "5", "5")
print("pass@1 of 0 right of 4, then of 2 right of 2:", seen)
assert seen == (0.0, 0.5), "each row has its own number now"
PYTHON
