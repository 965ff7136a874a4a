#!/usr/bin/env bash
# What: one integer above 2**64 in a JSON Lines file makes the whole column floats, and golds of other rows change.
# Versions: datasets==5.2.0, pyarrow==26.0.1
# Expected: an error for the row that doesn't fit into 64 bits, or a column of Python integers; 9007199254740993
#   in another row stays what it is.
# Seen: the column is float64: 18446744073709551617 comes back as 1.8446744073709552e+19, and 9007199254740993 as
#   9007199254740992.0. Without the large row the column is int64 and exact. No warning.
# Matters: golds of arithmetic and of number theory are changed in the last digits, so no exact answer is right.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv datasets==5.2.0 pyarrow==26.0.1
run <<'PYTHON'
from pathlib import Path

from datasets import disable_progress_bars, load_dataset

disable_progress_bars()
SMALL, LARGE = 2**53 + 1, 2**64 + 1
Path("with.jsonl").write_text(f'{{"answer": {SMALL}}}\n{{"answer": {LARGE}}}\n')
Path("without.jsonl").write_text(f'{{"answer": {SMALL}}}\n')
with_large = load_dataset("json", data_files="with.jsonl", split="train")["answer"][:]
without = load_dataset("json", data_files="without.jsonl", split="train")["answer"][:]
print("written:", [SMALL, LARGE], "read:", with_large, "without the large one:", without)
assert without == [SMALL] and isinstance(without[0], int), f"a small integer is read as {without} now"
assert isinstance(with_large[0], float) and int(with_large[0]) == SMALL - 1, f"it is read as {with_large} now"
PYTHON
