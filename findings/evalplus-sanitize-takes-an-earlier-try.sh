#!/usr/bin/env bash
# What: of an answer with a first try and its correction, evalplus' sanitizer keeps the longer block, and of two definitions
#   of one name in a block the first.
# Versions: evalplus==0.3.1, tree-sitter==0.26.1, tree-sitter-python==0.25.0
# Expected: the last block is the answer, and Python itself takes the last definition.
# Seen: "```…return z - 1``` That is wrong. Corrected: ```…return x + 1```" leaves the program with z - 1, as it has more
#   lines; of "def f … x - 1 … # Fixed: … def f … x + 1" the first is left.
# Matters: models that think aloud or check themselves are scored, or rewarded, by the try that they took back.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv tree-sitter==0.26.1 tree-sitter-python==0.25.0 datasets==5.2.0 tqdm termcolor appdirs tempdir wget
"$work/venv/bin/python" -m pip install --quiet --no-deps evalplus==0.3.1 || exit 75
run <<'PYTHON'
from evalplus.sanitize import sanitize

FIRST = "def f(x):\n    y = x\n    z = y\n    return z - 1"
SECOND = "def f(x):\n    return x + 1"
TWO_BLOCKS = f"```python\n{FIRST}\n```\nThat is wrong. Corrected:\n```python\n{SECOND}\n```\n"
ONE_BLOCK = f"```python\ndef f(x):\n    return x - 1\n\n# Fixed:\n{SECOND}\n```\n"


def result(program):
    names = {}
    exec(program, names)
    return names["f"](3)


assert result(SECOND) == 4
for name, answer in (("two blocks", TWO_BLOCKS), ("two definitions", ONE_BLOCK)):
    left = sanitize(answer, "f")
    print(f"{name}: {left!r} gives {result(left)}, not {result(SECOND)}")
    assert result(left) == 2, f"{name}: the later try is kept now"
PYTHON
