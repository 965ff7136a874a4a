#!/usr/bin/env bash
# What: WeightedRandomSampler without replacement draws rows of weight 0 when it is asked for more than there are
#   others, without an error.
# Versions: torch==2.13.0
# Expected: an error as for weights that are all 0, since a weight of 0 means never; drawing with replacement never
#   draws such a row.
# Seen: weights [1, 0, 1] and 3 samples give the rows 0, 2 and 1; torch.multinomial([0.5, 0, 0.5, 0], 3) gives an index
#   of probability 0 as the third. All weights 0 raise RuntimeError.
# Matters: a curriculum that gives solved or held-out prompts the weight 0 trains on them all the same once the others
#   run out.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv torch==2.13.0 numpy==2.3.5
run <<'PYTHON'
import torch
from torch.utils.data import WeightedRandomSampler

torch.manual_seed(0)
rows = list(WeightedRandomSampler([1.0, 0.0, 1.0], 3, replacement=False))
print("rows:", rows)
assert sorted(rows) == [0, 1, 2], f"the rows are {rows} now"
drawn = torch.multinomial(torch.tensor([0.5, 0.0, 0.5, 0.0]), 3).tolist()
print("multinomial:", drawn)
assert {0, 2} < set(drawn), f"it draws {drawn} now"
with_replacement = set(WeightedRandomSampler([1.0, 0.0, 1.0], 10_000, replacement=True))
assert with_replacement == {0, 2}, f"with replacement it draws {with_replacement} now"
try:
    list(WeightedRandomSampler([0.0, 0.0], 1, replacement=False))
except RuntimeError as error:
    print("all weights 0:", error)
else:
    raise SystemExit("weights that are all 0 are accepted now")
PYTHON
