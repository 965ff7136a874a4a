"""Describes what a function computes, as text that rewording does not change: part of a task's identity."""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import _lru_cache_wrapper, lru_cache, partial
from types import CodeType, FunctionType
from typing import Any

from grpo_core.task.judging import JudgedReward

_DEEPEST = 8
"""Levels of nesting that are looked into; a function may hold itself in its closure."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_DOCUMENTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign | ast.AugAssign


def meaning_of(value: Any, depth: int = 0) -> str:
    """Text that is equal in every process, and changes with what a function computes.

    A function is its normalised syntax tree with its defaults, the values that it closes over, and what it uses of its
    own file: functions, classes and assignments at the top level. Without source it is its bytecode. Containers,
    `partial`, methods and dataclasses (composers, `Opponent`) are their contents. A callable object is its `__call__`
    with its public attributes. Other objects count by class alone: their `repr` may hold an address, as a set's holds
    an order that depends on PYTHONHASHSEED.
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
        return f"{_tree_of(value) or inner(value.__code__)}({held})"
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


def _tree_of(function: FunctionType) -> str:
    try:
        lines, _ = inspect.findsource(function)
        source = "".join(lines)
        functions = _functions(source)
    except (OSError, SyntaxError):  # made with exec, typed into an interpreter, or the file changed since
        return ""
    code = function.__code__
    here = [node for node in functions.get(code.co_firstlineno, ()) if _may_be(node, code)]
    return "".join((normalised(here[0]), *_used(here[0], _definitions(source)))) if here else ""


_parsed = lru_cache(maxsize=64)(ast.parse)


@lru_cache(maxsize=64)
def _functions(source: str) -> dict[int, list[_Function]]:
    """The functions of a file by the line that their code objects name as their first."""
    functions: dict[int, list[_Function]] = {}
    for node in ast.walk(_parsed(source)):
        if isinstance(node, _Function):
            decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
            first_line = min([node.lineno, *(decorator.lineno for decorator in decorators)])
            functions.setdefault(first_line, []).append(node)
    return functions


@lru_cache(maxsize=64)
def _definitions(source: str) -> dict[str, list[ast.stmt]]:
    """The functions, classes and assignments at the top level of a file by the names that they bind or change."""
    definitions: dict[str, list[ast.stmt]] = {}
    for statement in _top_level(_parsed(source)):
        if isinstance(statement, _DOCUMENTED):
            names = {statement.name}
        else:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names = {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
        for name in names:
            definitions.setdefault(name, []).append(statement)
    return definitions


def _top_level(parent: ast.AST) -> Iterable[_Definition]:
    for statement in ast.iter_child_nodes(parent):
        if isinstance(statement, _Definition):
            yield statement
        elif isinstance(statement, (ast.stmt, ast.ExceptHandler)):  # `if`, `try`, `with` and loops
            yield from _top_level(statement)


def _used(function: _Function, definitions: Mapping[str, list[ast.stmt]]) -> list[str]:
    """Definitions that a function uses, directly or through others, each with its name, as text."""
    found: dict[str, list[ast.stmt]] = {}
    waiting: list[ast.AST] = [function]
    while waiting:
        for name in _free_names(waiting.pop()):
            if name in definitions and name not in found:
                found[name] = definitions[name]
                waiting += definitions[name]
    return [f"{name}: {_text(each)}" for name in sorted(found) for each in found[name] if each is not function]


@lru_cache(maxsize=4096)
def _text(definition: ast.stmt) -> str:
    return normalised(definition) if isinstance(definition, _Function) else _dump(definition, {})


@lru_cache(maxsize=4096)
def _free_names(node: ast.AST) -> set[str]:
    """Names that are read within a node; of a function, without its arguments and local variables."""
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}
    if not isinstance(node, _Function):
        return names
    bound = {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}
    return names - bound - _numbers(node).keys()


def _may_be(node: _Function, code: CodeType) -> bool:
    """Whether this is the function's node: a line may hold several lambdas."""
    if isinstance(node, ast.Lambda):
        body = node.body
        columns = [(line, column) for line, _, column, _ in code.co_positions() if line is not None and column]
        inside = [(body.lineno, body.col_offset) <= column for column in columns]
        return code.co_name == "<lambda>" and all(inside) and max(columns, default=(0, 0)) <= _end(body)
    return node.name == code.co_name


def _end(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


def normalised(function: _Function) -> str:
    """A function's syntax tree without what only readers see.

    Left out: layout, comments, docstrings, annotations, the function's own name, and the wording of raised exceptions
    and assertions. Local variables are numbered. Arguments keep their names, since callers pass them by name.
    """
    return _dump(function, _numbers(function))


_UNREAD = frozenset({"ctx", "kind", "annotation", "returns", "simple", "type_comment", "type_params"})
"""Fields of the tree that do not change what is computed."""
_NAMES: tuple[tuple[type[ast.AST], str], ...] = (
    (ast.Name, "id"),
    (ast.FunctionDef, "name"),
    (ast.AsyncFunctionDef, "name"),
    (ast.ClassDef, "name"),
    (ast.ExceptHandler, "name"),
    (ast.alias, "asname"),
    (ast.MatchAs, "name"),
    (ast.MatchStar, "name"),
    (ast.MatchMapping, "rest"),
)
"""Fields that bind or read a variable."""


def _numbers(function: _Function) -> dict[str, str]:
    """Local variables, and what stands for each."""
    nodes = list(ast.walk(function))
    fixed = {node.arg for node in nodes if isinstance(node, ast.arg)}
    fixed |= {name for node in nodes if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}
    bound = (
        getattr(node, field)
        for node in nodes
        for kind, field in _NAMES
        if isinstance(node, kind) and not isinstance(getattr(node, "ctx", None), ast.Load)
    )
    local = dict.fromkeys(name for name in bound if name is not None and name not in fixed)
    return {name: f"local {number}" for number, name in enumerate(local)}


def _dump(node: Any, numbers: Mapping[str, str], in_raise: bool = False) -> str:
    """A node with its fields; texts inside of `raise` count as one."""
    if isinstance(node, list):
        return f"[{','.join(_dump(item, numbers, in_raise) for item in node)}]"
    match node:
        case ast.AnnAssign(value=None):
            return "Pass()"
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            node = ast.Assign([target], value)
        case ast.Constant(value=str()) | ast.JoinedStr() if in_raise:
            return "text"
        case ast.AST():
            pass
        case _:
            return repr(node)
    contents = []
    for name, value in ast.iter_fields(node):
        if name in _UNREAD or value is None or value == [] or (isinstance(node, ast.Assert) and name == "msg"):
            continue
        if name == "body" and isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            value = value[1:]
        if any(isinstance(node, kind) and name == field for kind, field in _NAMES):
            value = numbers.get(value, value)
        contents.append(f"{name}={_dump(value, numbers, in_raise or isinstance(node, ast.Raise))}")
    return f"{type(node).__name__}({','.join(contents)})"


def _closed_over(function: FunctionType) -> Iterable[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # a name that is not bound yet
            yield None


def hashed(text: str) -> bytes:
    """Hash of a text, which may hold lone surrogates."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass")).digest()
