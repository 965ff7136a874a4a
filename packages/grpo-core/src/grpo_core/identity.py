"""What a function does, as text: part of a task's identity."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from functools import partial
from types import CodeType, FunctionType
from typing import Any

_DEEPEST = 8
"""Levels of nesting that are looked into; a function may hold itself in its closure."""


def source_of(given: Any, depth: int = 0) -> str:
    """Text that is equal in every process, and changes with what a function does.

    A function is its source with its defaults and the values that it closes over; without source, its bytecode.
    Containers, `partial`, methods and dataclasses (composers, `Opponent`) are their contents. Other objects count by
    class alone: their `repr` may hold an address, as a set's holds an order that depends on PYTHONHASHSEED.
    """

    def inner(*values: Any) -> str:
        return ", ".join(source_of(value, depth + 1) for value in values)

    if given is None or isinstance(given, (str, bytes, int, float)):
        return repr(given)
    if depth == _DEEPEST:
        return "…"
    if isinstance(given, (tuple, list)):
        return f"({inner(*given)})"
    if isinstance(given, (set, frozenset)):
        return f"{{{', '.join(sorted(map(inner, given)))}}}"
    if isinstance(given, dict):
        return f"{{{inner(*given.items())}}}"
    if isinstance(given, partial):
        return f"partial({inner(given.func, given.args, given.keywords)})"
    if isinstance(given, CodeType):
        return f"code({inner(given.co_code, given.co_names, given.co_consts)})"
    if isinstance(given, FunctionType):
        return f"{_text(given) or inner(given.__code__)}({inner(given.__defaults__, *_closed_over(given))})"
    if inspect.ismethod(given):
        return f"{inner(given.__self__, given.__func__)}"
    if is_dataclass(given) and not isinstance(given, type):
        values = (getattr(given, field.name) for field in fields(given))
        return f"{type(given).__qualname__}({inner(*values)})"
    return given.__qualname__ if isinstance(given, type) else type(given).__qualname__


def _text(function: FunctionType) -> str:
    try:
        return inspect.getsource(function)
    except OSError:  # made with exec, or typed into an interpreter
        return ""


def _closed_over(function: FunctionType) -> Iterable[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # a name that is not bound yet
            yield None
