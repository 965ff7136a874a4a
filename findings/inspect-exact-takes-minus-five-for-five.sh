#!/usr/bin/env bash
# What: inspect-ai's `exact()` scorer calls the answer -5 correct for the target 5, and `f1()` gives it 1.0.
# Versions: inspect-ai==0.3.285
# Expected: an exact match of two texts that differ by a sign is incorrect; the documentation's words are that
#   text is normalized, which one takes for case and white space.
# Seen: exact() says C for `-5` and `5`, for `the 5!` and `5`, and I for `1.5` and `15`; f1() gives 1.0 for `-5`.
#   `match(numeric=True)` says I for `-5`.
# Matters: accuracy on tasks with numbers counts wrong signs, and a reward made from this scorer pays them.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv inspect-ai==0.3.285
run <<'PYTHON'
import asyncio

from inspect_ai.model import ModelOutput
from inspect_ai.scorer import Target, exact, f1, match
from inspect_ai.solver import TaskState


def value(scorer, answer, target):
    output = ModelOutput.from_content("model", answer)
    state = TaskState(model="none/none", sample_id=1, epoch=1, input="question", messages=[], output=output)
    return asyncio.run(scorer(state, Target(target))).value


CASES = (
    ("exact", exact(), "-5", "5", "C"),
    ("exact", exact(), "the 5!", "5", "C"),
    ("exact", exact(), "1.5", "15", "I"),
    ("f1", f1(), "-5", "5", 1.0),
    ("match(numeric=True)", match(numeric=True), "-5", "5", "I"),
)
for name, scorer, answer, target, wanted in CASES:
    seen = value(scorer, answer, target)
    print(name, repr(answer), "for", repr(target), "->", seen)
    assert seen == wanted, f"{name} gives {seen} for {answer!r} now"
PYTHON
