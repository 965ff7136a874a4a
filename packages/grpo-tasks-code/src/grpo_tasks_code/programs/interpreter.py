"""An interpreter of a small subset of Python with bounded steps: the output of generated programs without a sandbox.

The subset has assignments, `if`, `for`, `while`, `break`, functions, `print`, whole numbers, strings, lists, and a few
built-in functions and methods. Everything else is refused; where there is an output, it is that of Python.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat, takewhile
from typing import Any

MAX_STEPS = 5_000
"""Statements and expressions evaluated; generated loops need far fewer."""

MAX_INTEGER = 10**12
MAX_LENGTH = 1_000
"""Length of a string or list."""

MAX_CALLS = 50
"""Nesting of calls."""


class Refused(ValueError):
    """The program uses more than the subset, exceeds a bound, or fails as it would in Python."""


class _Break(Exception):
    pass


class _Return(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, items: item in items,
}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "abs": abs,
    "len": len,
    "max": max,
    "min": min,
    "range": range,
    "sorted": sorted,
    "str": str,
    "sum": sum,
}
_METHODS: Mapping[type, frozenset[str]] = {
    str: frozenset({"count", "lower", "replace", "upper"}),
    list: frozenset({"append", "count", "pop"}),
}


def output_of(source: str) -> str:
    """Return the output of a program, with its final newline.

    Raises:
        Refused: the program uses more than the subset, runs too long, grows too large, or fails.
    """
    try:
        tree = ast.parse(source)
        run = _Run()
        run.block(tree.body, {})
    except Refused:
        raise
    except (_Return, _Break, ArithmeticError, LookupError, SyntaxError, TypeError, ValueError) as error:
        raise Refused(f"it fails: {type(error).__name__}: {error}") from None
    return "".join(run.printed)


class _Run:
    def __init__(self) -> None:
        self.printed: list[str] = []
        self._steps = self._depth = 0
        self._defined: dict[str, ast.FunctionDef] = {}

    def block(self, statements: Sequence[ast.stmt], names: dict[str, Any]) -> None:
        for statement in statements:
            self._step()
            self._statement(statement, names)

    def _statement(self, statement: ast.stmt, names: dict[str, Any]) -> None:
        match statement:
            case ast.Assign(targets=[target], value=value):
                self._assign(target, self._value(value, names), names)
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                names[name] = self._binary(op, self._known(name, names), self._value(value, names))
            case ast.Expr(value=ast.Call(func=ast.Name(id="print"), args=arguments, keywords=[])):
                self.printed.append(" ".join(str(self._value(argument, names)) for argument in arguments) + "\n")
            case ast.Expr(value=value):
                self._value(value, names)
            case ast.If(test=test, body=body, orelse=otherwise):
                self.block(body if self._value(test, names) else otherwise, names)
            case ast.For(target=target, iter=items, body=body, orelse=[]):
                self._loop(body, names, self._value(items, names), target)
            case ast.While(test=test, body=body, orelse=[]):
                self._loop(body, names, takewhile(lambda _: self._value(test, names), repeat(None)))
            case ast.FunctionDef(name=name):
                self._defined[name] = statement
            case ast.Return(value=ast.expr() as value):
                raise _Return(self._value(value, names))
            case ast.Break():
                raise _Break
            case _:
                raise Refused(f"{type(statement).__name__} is not interpreted here")

    def _assign(self, target: ast.expr, value: Any, names: dict[str, Any]) -> None:
        match target:
            case ast.Name(id=name):
                names[name] = value
            case ast.Tuple(elts=parts):
                for part, item in zip(parts, value, strict=True):
                    self._assign(part, item, names)
            case _:
                raise Refused("only names are assigned here")

    def _loop(
        self, body: Sequence[ast.stmt], names: dict[str, Any], items: Iterable[Any], target: ast.expr | None = None
    ) -> None:
        for item in items:
            if target is not None:
                self._assign(target, item, names)
            try:
                self.block(body, names)
            except _Break:
                return

    def _value(self, node: ast.expr, names: dict[str, Any]) -> Any:
        self._step()
        match node:
            case ast.Constant(value=int() | str() as value):
                return value
            case ast.Name(id=name):
                return self._known(name, names)
            case ast.BinOp(left=left, op=op, right=right):
                return self._binary(op, self._value(left, names), self._value(right, names))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self._value(operand, names)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
                return _COMPARISONS[type(op)](self._value(left, names), self._value(right, names))
            case ast.List(elts=items):
                return [self._value(item, names) for item in items]
            case ast.Tuple(elts=items):
                return tuple(self._value(item, names) for item in items)
            case ast.Subscript(value=value, slice=index):
                return self._value(value, names)[self._index(index, names)]
            case ast.Call(func=function, args=arguments, keywords=[]):
                return self._call(function, [self._value(argument, names) for argument in arguments], names)
            case _:
                raise Refused(f"{type(node).__name__} is not interpreted here")

    def _index(self, index: ast.expr, names: dict[str, Any]) -> Any:
        if not isinstance(index, ast.Slice):
            return self._value(index, names)
        return slice(*(part and self._value(part, names) for part in (index.lower, index.upper, index.step)))

    def _call(self, function: ast.expr, arguments: list[Any], names: dict[str, Any]) -> Any:
        match function:
            case ast.Name(id=name) if name in self._defined:
                return self._call_defined(self._defined[name], arguments)
            case ast.Name(id=name) if name in _FUNCTIONS:
                return _FUNCTIONS[name](*arguments)
            case ast.Attribute(value=value, attr=name):
                owner = self._value(value, names)
                if name in _METHODS.get(type(owner), ()):
                    return _bounded(getattr(owner, name)(*arguments))
        raise Refused("such a call is not interpreted here")

    def _call_defined(self, function: ast.FunctionDef, arguments: list[Any]) -> Any:
        self._depth += 1
        if self._depth > MAX_CALLS:
            raise Refused(f"more than {MAX_CALLS} calls inside one another")
        try:
            self.block(function.body, dict(zip((name.arg for name in function.args.args), arguments, strict=True)))
        except _Return as returned:
            return returned.value
        finally:
            self._depth -= 1
        return None

    def _binary(self, op: ast.operator, left: Any, right: Any) -> Any:
        if type(op) not in _BINARY:
            raise Refused(f"{type(op).__name__} is not interpreted here")
        repeats = [value for value in (left, right) if isinstance(value, int)] if isinstance(op, ast.Mult) else []
        if len(repeats) == 1 and repeats[0] > MAX_LENGTH:  # checked before the value is computed
            raise Refused(f"a text or list longer than {MAX_LENGTH}")
        return _bounded(_BINARY[type(op)](left, right))

    def _known(self, name: str, names: Mapping[str, Any]) -> Any:
        if name not in names:
            raise Refused(f"{name} is not defined")
        return names[name]

    def _step(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise Refused(f"more than {MAX_STEPS} steps")


def _bounded(value: Any) -> Any:
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise Refused(f"a number beyond {MAX_INTEGER}")
    if isinstance(value, str | list) and len(value) > MAX_LENGTH:
        raise Refused(f"a text or list longer than {MAX_LENGTH}")
    return value
