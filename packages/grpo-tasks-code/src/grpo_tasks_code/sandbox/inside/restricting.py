"""The policy `restricted`: RestrictedPython decides which parts of the language a program may use.

A subset of the language is not a sandbox; it is used inside one.
"""

from __future__ import annotations

import operator
import sys
import types
from importlib import import_module
from typing import Any

from RestrictedPython import Guards, compile_restricted_exec, safe_builtins, utility_builtins
from RestrictedPython.Eval import default_guarded_getitem, default_guarded_getiter

IMPORTABLE = ("itertools", "math", "random", "string")
"""Modules whose public names give no access to others; RestrictedPython itself offers the last three."""

_MORE_BUILTINS = (
    *(all, any, dict, enumerate, filter, frozenset, input, iter, list, map, max, min, next, print, reversed, set),
    *(sorted, sum, tuple, zip),
)
"""Functions that RestrictedPython leaves out because they iterate in C; here iteration is not guarded at all."""


_RECURSION_LIMIT = 50_000
"""Recursion limit of the check, for deeper syntax trees than Python itself compiles."""


def compile_policy(text: str, file_name: str) -> types.CodeType | str:
    """Return the program's code, or why the policy refuses it; Python has compiled the program before."""
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(_RECURSION_LIMIT)
    try:
        result = compile_restricted_exec(text, file_name)
    except Exception as error:  # what the foreign package cannot check is not allowed
        return f"{_REFUSED}it cannot be checked ({type(error).__name__}: {error})"
    finally:
        sys.setrecursionlimit(usual)
    if result.code is None:
        return _REFUSED + "; ".join(result.errors)
    return result.code  # type: ignore[no-any-return]  # RestrictedPython has no types


_REFUSED = "refused by the policy 'restricted': "


class _Print:
    """RestrictedPython's replacement of `print`, which here prints."""

    def __init__(self, getattr_: object = None) -> None:
        pass

    def _call_print(self, *objects: object, **options: Any) -> None:
        print(*objects, **options)


def _import(name: str, *ignored: object) -> Any:
    if name not in IMPORTABLE:
        raise ImportError(f"the policy 'restricted' has no module {name!r}; it has {', '.join(IMPORTABLE)}")
    return utility_builtins.get(name) or import_module(name)


def _in_place(symbol: str, left: Any, right: Any) -> Any:
    """Return `left symbol right`, e.g. `left += right`."""
    return _OPERATORS[symbol](left, right)


_SYMBOLS = "+= -= *= /= //= %= **= @= &= |= ^= <<= >>="
_FUNCTIONS = "add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift"
_OPERATORS = {
    symbol: getattr(operator, name) for symbol, name in zip(_SYMBOLS.split(), _FUNCTIONS.split(), strict=True)
}


def fill(namespace: dict[str, Any]) -> None:
    """Add the guards that the compiled program calls, and the policy's built-in functions."""
    builtins = safe_builtins | utility_builtins | {function.__name__: function for function in _MORE_BUILTINS}
    builtins |= {"__import__": _import, "_getattr_": Guards.safer_getattr}
    namespace.update(
        __builtins__=builtins,
        __metaclass__=type,
        _getattr_=Guards.safer_getattr,
        _getitem_=default_guarded_getitem,
        _getiter_=default_guarded_getiter,
        _inplacevar_=_in_place,
        _iter_unpack_sequence_=Guards.guarded_iter_unpack_sequence,
        _print_=_Print,
        _unpack_sequence_=Guards.guarded_unpack_sequence,
        _write_=Guards.full_write_guard,
    )
