#!/usr/bin/env bash
# What: RestrictedPython refuses to compile `counts[word] += 1`, `self.n += 1`, `x: int = 1`, `match` and `nonlocal`,
#   whatever guards its user provides.
# Versions: RestrictedPython==9.0
# Expected: with _getitem_, _write_ and _inplacevar_ given, an item is incremented as it is read and written apart; newer
#   syntax that touches nothing outside, as an annotation, compiles as f-strings and the walrus do.
# Seen: "Augmented assignment of object items and slices is not allowed.", "… of attributes is not allowed.", "AnnAssign
#   statements are not allowed.", "Match statements are not allowed.", "Nonlocal statements are not allowed."; while
#   `counts[word] = counts[word] + 1`, a starred target, a walrus in a comprehension and an f-string run.
# Matters: sandboxes of models' programs built on it: a large part of ordinary programs, all that count in a dict, score 0.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv RestrictedPython==9.0
run <<'PYTHON'
from RestrictedPython import compile_restricted_exec, safe_globals
from RestrictedPython.Eval import default_guarded_getitem, default_guarded_getiter
from RestrictedPython.Guards import guarded_iter_unpack_sequence, guarded_unpack_sequence

GUARDS = {
    "_getitem_": default_guarded_getitem,
    "_getiter_": default_guarded_getiter,
    "_getattr_": getattr,
    "_write_": lambda value: value,
    "_inplacevar_": lambda operator, left, right: left + right,
    "_iter_unpack_sequence_": guarded_iter_unpack_sequence,
    "_unpack_sequence_": guarded_unpack_sequence,
    "__metaclass__": type,
    "__name__": "program",
}
REFUSED = {
    "counts = {'a': 1}\ncounts['a'] += 1": "Augmented assignment of object items and slices is not allowed.",
    "class A:\n    n = 1\n\n    def add(self):\n        self.n += 1": "Augmented assignment of attributes is not allowed.",
    "x: int = 1": "AnnAssign statements are not allowed.",
    "match 1:\n    case 1:\n        x = 1": "Match statements are not allowed.",
    "def f():\n    x = 1\n    def g():\n        nonlocal x\n        x = 2": "Nonlocal statements are not allowed.",
}
ACCEPTED = (
    "counts = {'a': 1}\ncounts['a'] = counts['a'] + 1",
    "x = 1\nx += 1",
    "first, *rest = [1, 2, 3]",
    "x = [y for x in (1, 2) if (y := x + 1)]",
    "x = f'{1:>3}'",
)
for program, wanted in REFUSED.items():
    result = compile_restricted_exec(program)
    print(repr(program), "->", result.errors)
    assert result.code is None and any(wanted in error for error in result.errors), "it is accepted now"
for program in ACCEPTED:
    result = compile_restricted_exec(program)
    assert not result.errors, result.errors
    exec(result.code, {**safe_globals, **GUARDS})
    print(repr(program), "runs")
PYTHON
