#!/usr/bin/env bash
# What: load_dataset("json") makes timestamps of JSON strings if all strings of a field look like dates, so the
#   type of an answer hangs on the other rows of the file.
# Versions: datasets==5.2.0, pyarrow==26.0.1
# Expected: a JSON string stays a string. JSON has no dates, the quotes say what it is, and "007" stays "007" too.
# Seen: {"answer": "2024-01-05"} comes back as datetime(2024, 1, 5, 0, 0), which str() writes
#   "2024-01-05 00:00:00"; with one more row whose answer is "unknown" it is "2024-01-05".
# Matters: a gold of a date task is an object that equals no completion, and an exact match by str() never
#   succeeds; a filter or a split that drops the last odd row changes every gold.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv datasets==5.2.0 pyarrow==26.0.1
run <<'PYTHON'
import json
from datetime import datetime

from datasets import disable_progress_bars, load_dataset

disable_progress_bars()


def loaded(name, answers):
    with open(name, "w") as file:
        file.writelines(json.dumps({"answer": answer}) + "\n" for answer in answers)
    return load_dataset("json", data_files=name, cache_dir="cache")["train"]["answer"][:]


dates = loaded("dates.jsonl", ["2024-01-05", "1999-12-31"])
mixed = loaded("mixed.jsonl", ["2024-01-05", "1999-12-31", "unknown"])
digits = loaded("digits.jsonl", ["007", "12"])
print(dates, mixed, digits, sep="\n")
assert dates[0] == datetime(2024, 1, 5), f"a date's text is {dates[0]!r} now"
assert str(dates[0]) == "2024-01-05 00:00:00"
assert mixed[0] == "2024-01-05", f"beside another text it is {mixed[0]!r} now"
assert digits == ["007", "12"], f"digits' texts are {digits} now"
PYTHON
