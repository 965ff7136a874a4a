#!/usr/bin/env bash
# What: evalplus' sanitizer cuts out of a valid program each decorated function or class, each helper without a return
#   statement, and each statement of the module that is no import or assignment to one name.
# Versions: evalplus==0.3.1, tree-sitter==0.26.1, tree-sitter-python==0.25.0
# Expected: what the entry point needs stays, only text and unused code go; that is what its graph of names is for.
# Seen: of "@lru_cache(None) def f" only the import is left; a dataclass, a cached or generating helper (yield), one that
#   appends to a list, a loop that fills a table, `A, B = 1, 2` and sys.setrecursionlimit are gone while f still uses them.
# Matters: HumanEval+ and MBPP+ numbers, and rewards made with it: right programs fail with a NameError, and just those
#   with memoization and recursion.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv tree-sitter==0.26.1 tree-sitter-python==0.25.0 datasets==5.2.0 tqdm termcolor appdirs tempdir wget
"$work/venv/bin/python" -m pip install --quiet --no-deps evalplus==0.3.1 || exit 75
run <<'PYTHON'
from evalplus.sanitize import sanitize

PROGRAMS = {
    "decorated entry point": "from functools import lru_cache\n\n@lru_cache(None)\n"
    "def f(n):\n    return n if n < 2 else f(n - 1) + f(n - 2)",
    "dataclass": "from dataclasses import dataclass\n\n@dataclass\nclass P:\n    x: int\n\n"
    "def f(n):\n    return P(n).x",
    "generator": "def g(n):\n    for i in range(n):\n        yield i\n\ndef f(n):\n    return sum(g(n))",
    "no return": "def walk(n, out):\n    out.append(n)\n\ndef f(n):\n    out = []\n    walk(n, out)\n    return out[0]",
    "loop": "table = []\nfor i in range(9):\n    table.append(i * i)\n\ndef f(n):\n    return table[n]",
    "two names": "A, B = 1, 2\n\ndef f(n):\n    return n + A + B",
}


def result(program):
    names = {"__name__": "program"}
    exec(program, names)
    return names["f"](3)


for name, program in PROGRAMS.items():
    answer = f"Here it is:\n```python\n{program}\n```\nIt works."
    left = sanitize(answer, "f")
    value = result(program)
    try:
        seen = repr(result(left))
    except Exception as error:
        seen = f"{type(error).__name__}: {error}"
    print(f"{name}: f(3) is {value} before, and then {seen}\n    {left!r}")
    assert seen != repr(value), f"{name}: it is kept now"

plain = "MOD = 7\n\ndef g(n):\n    return n % MOD\n\ndef f(n):\n    return g(n)"
assert result(sanitize(f"```python\n{plain}\n```", "f")) == 3
PYTHON
