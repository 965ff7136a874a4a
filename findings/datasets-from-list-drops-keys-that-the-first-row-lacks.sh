#!/usr/bin/env bash
# What: datasets' Dataset.from_list takes its columns from the first row and drops every other key in silence.
# Versions: datasets==5.2.0, pyarrow==26.0.1
# Expected: the columns are those of all rows, with None where a row lacks one; that is what load_dataset("json")
#   and from_generator give for the same rows, or an error.
# Seen: from_list([{"prompt": "a"}, {"prompt": "b", "tools": ["f"]}]) has the column prompt alone; the JSON file
#   of the same rows has both columns.
# Matters: rows of rollouts whose first lacks `tools`, `reward` or `answer` are trained on without it, and no
#   message says so.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv datasets==5.2.0 pyarrow==26.0.1
run <<'PYTHON'
import json
from pathlib import Path

from datasets import Dataset, disable_progress_bars, load_dataset

disable_progress_bars()
rows = [{"prompt": "a"}, {"prompt": "b", "tools": ["f"], "reward": 1.0}]
Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
listed = Dataset.from_list(rows)
loaded = load_dataset("json", data_files="rows.jsonl", split="train")
print("from_list:", listed.to_list())
print("json file:", loaded.to_list())
assert listed.column_names == ["prompt"], f"from_list has {listed.column_names} now"
assert set(loaded.column_names) == {"prompt", "tools", "reward"}, f"json has {loaded.column_names} now"
PYTHON
