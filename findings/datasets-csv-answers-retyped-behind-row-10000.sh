#!/usr/bin/env bash
# What: load_dataset("csv") guesses the type of a column anew for every 10,000 rows and casts the guess back to
#   the first rows' type, so that from row 10,001 on a text column can hold other text than the file.
# Versions: datasets==5.2.0, pandas==3.1.1, pyarrow==26.0.1
# Expected: the column is text, because its first 10,000 rows are, so every later cell is the text of the file;
#   or one guess for the whole file, as pandas and pyarrow make by themselves.
# Seen: behind 10,000 rows of words, "007", "1.50", "1e3", "True" come out as "7", "1.5", "1000" and "true" if
#   all of their 10,000 share a type; behind 9,000 words they are as written.
# Matters: golds of a mixed file (words first, numbers later) are silently other texts; exact-match rewards of the
#   tail are wrong, while every look at the first rows is fine.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv datasets==5.2.0 pandas==3.1.1 pyarrow==26.0.1
run <<'PYTHON'
import csv

from datasets import disable_progress_bars, load_dataset

disable_progress_bars()


def loaded(words, numbers):
    """The last answers of a file of so many words and these numbers."""
    path = f"{words}_{len(numbers)}_{numbers[0]}.csv"
    with open(path, "w", newline="") as file:
        texts = ["answer", *(f"word {row}" for row in range(words)), *numbers]
        csv.writer(file).writerows([text] for text in texts)
    answers = load_dataset("csv", data_files=path, cache_dir="cache")["train"]["answer"][:]
    return answers[-len(numbers) :]


for texts, seen in (
    (["007", "12"], ["7", "12"]),
    (["1.50", "1e3", "007"], ["1.5", "1000", "7"]),
    (["True", "False"], ["true", "false"]),
):
    before, behind = loaded(9_000, texts), loaded(10_000, texts)
    print(texts, "are", before, "behind 9,000 words and", behind, "behind 10,000")
    assert before == texts, f"behind 9,000 words {texts} are {before} now"
    assert behind == seen, f"behind 10,000 words {texts} are {behind} now"
PYTHON
