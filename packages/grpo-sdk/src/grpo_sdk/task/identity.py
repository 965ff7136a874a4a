"""Describes what a function computes, as text that layout and comments do not change: part of a task's identity."""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from functools import _lru_cache_wrapper, lru_cache, partial
from types import CodeType, FunctionType
from typing import Any

from grpo_sdk.task.judging import JudgedReward

_DEEPEST = 8
"""Levels of nesting that are looked into; a function may hold itself in its closure."""

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def meaning_of(value: Any, depth: int = 0) -> str:
    """Text that is equal in every process, and changes with what a function computes.

    A function is the syntax tree of the file that defines it, without docstrings, its name there, its defaults and the
    values that it closes over; without source it is its bytecode. Containers, `partial`, methods and dataclasses
    (composers, `Opponent`) are their contents. A callable object is its `__call__` with its public attributes. Other
    objects count by class alone: their `repr` may hold an address, as a set's holds an order that depends on
    PYTHONHASHSEED.
    """

    def inner(*values: Any) -> str:
        return ", ".join(meaning_of(item, depth + 1) for item in values)

    if value is None or isinstance(value, (str, bytes, int, float)):
        return repr(value)
    if depth == _DEEPEST:
        return "…"
    if isinstance(value, (tuple, list)):
        return f"({inner(*value)})"
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(map(inner, value)))}}}"
    if isinstance(value, dict):
        return f"{{{inner(*value.items())}}}"
    if isinstance(value, partial):
        return f"partial({inner(value.func, value.args, value.keywords)})"
    if isinstance(value, CodeType):
        return f"code({inner(value.co_code, value.co_names, value.co_consts)})"
    if isinstance(value, FunctionType):
        by_name = [value.__kwdefaults__] if value.__kwdefaults__ else []
        held = inner(value.__defaults__, *by_name, *_closed_over(value))
        return f"{_source_of(value)}({held})"
    if isinstance(value, _lru_cache_wrapper) and isinstance(value.__wrapped__, FunctionType):
        return f"cached({inner(value.__wrapped__)})"
    if inspect.ismethod(value):
        return f"{inner(value.__self__, value.__func__)}"
    if isinstance(value, JudgedReward):
        return f"judge({inner(*value.grpo_meaning())})"
    if is_dataclass(value) and not isinstance(value, type):
        contents = (getattr(value, field.name) for field in fields(value))
        return f"{type(value).__qualname__}({inner(*contents)})"
    if isinstance(value, type):
        return value.__qualname__
    name = type(value).__qualname__
    call = inspect.getattr_static(type(value), "__call__", None)
    if isinstance(call, FunctionType):
        return f"{name}({inner(call, _settings_of(value))})"
    return name


def _settings_of(value: Any) -> dict[str, Any]:
    """The public attributes of a callable object; a leading underscore marks what changes, such as a cache."""
    return {name: each for name, each in getattr(value, "__dict__", {}).items() if not name.startswith("_")}


def _source_of(function: FunctionType) -> str:
    """The file that defines a function, and its name there; a lambda, which has none, has its bytecode."""
    try:
        lines, _ = inspect.findsource(function)
        text = f"{_file_digest(''.join(lines))}:{function.__qualname__}"
    except (OSError, SyntaxError):  # made with exec, typed into an interpreter, or the file changed since
        return meaning_of(function.__code__)
    return text + meaning_of(function.__code__) if function.__name__ == "<lambda>" else text


@lru_cache(maxsize=64)
def _file_digest(source: str) -> str:
    """Hash of a file's syntax tree without docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
    return hashed(ast.dump(tree)).hex()[:32]


def _closed_over(function: FunctionType) -> Iterable[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # a name that is not bound yet
            yield None


def hashed(text: str) -> bytes:
    """Hash of a text, which may hold lone surrogates."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass")).digest()
