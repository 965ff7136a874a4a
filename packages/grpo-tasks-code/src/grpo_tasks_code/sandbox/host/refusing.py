"""Refuses tests that cannot be judged, or would let the program decide whether they pass, by their source."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from grpo_tasks_code.sandbox.host import names, rewriting
from grpo_tasks_code.sandbox.host.handing import handed, own_classes
from grpo_tasks_code.sandbox.inside.proxies import EQUALITIES

_PLAIN_ATTRIBUTES = frozenset(
    name for kind in (int, float, complex, str, bytes, list, tuple, dict, set, frozenset) for name in dir(kind)
)
_EXECUTING = frozenset({"eval", "exec", "compile", "pickle.load", "pickle.loads", "marshal.loads", "runpy.run_path"})
_ADVICE = "compare its attributes, or what its methods return, with plain data"


def refusal_of(setup: ast.Module, test: ast.Module, programs: frozenset[str], exceptions: frozenset[str]) -> str:
    """Return why a test cannot be judged; empty if it can.

    Args:
        setup: Set-up that runs before the test.
        test: The test.
        programs: Names of the program.
        exceptions: Those that are expected to be raised.
    """
    nodes = [node for tree in (setup, test) for node in ast.walk(tree)]
    values, answers = _values(nodes), rewriting.answers([setup, test], programs | {"open", "Path"})
    for node in nodes:
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in EQUALITIES:
                if _is_answer(value, values, programs):
                    return f"{ast.unparse(node)} asks the program whether its answer is right; {_ADVICE}."
            case ast.Call(func=function, args=[source, *_]) if ast.unparse(function) in _EXECUTING:
                if rewriting.has_any(answers, source):
                    return f"{ast.unparse(node)} runs what the program returns as a part of the test; {_ADVICE}."
            case ast.ClassDef(name=name, bases=bases):
                if inherited := names.used(*bases) & (programs - exceptions):
                    return f"its class {name} inherits from the program's {min(inherited)}; call that one's methods."
    for name, call in _kept_back(setup, test, programs):
        return (
            f"{ast.unparse(call)} hands the program an object of the test's class {name}, which it cannot have; give "
            "that class an __init__ and no data, and define it outside of functions."
        )
    return ""


def objects_of(trees: Sequence[ast.AST], classes: frozenset[str]) -> frozenset[str]:
    """Return which names are classes of objects: their results have attributes that no plain data has."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    values = _values(nodes)
    subjects = [part.value for part in nodes if isinstance(part, ast.Attribute) and part.attr not in _PLAIN_ATTRIBUTES]
    return frozenset[str]().union(*(_makers(part, values, classes) for part in subjects))


Values = dict[str, list[ast.expr]]


def _values(nodes: Sequence[ast.AST]) -> Values:
    """Return the names that are assigned, with their values."""
    values: Values = {}
    for node in nodes:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    for name, part in _given(target, value):
                        values.setdefault(name, []).append(part)
            case (
                ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                | ast.NamedExpr(target=ast.Name(id=name), value=value)
            ):
                values.setdefault(name, []).append(value)
    return values


def _given(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    match target, value:
        case ast.Name(id=name), _:
            yield name, value
        case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
            for element, part in zip(targets, values, strict=True):
                yield from _given(element, part)


def _is_answer(node: ast.expr, values: Values, programs: frozenset[str]) -> bool:
    """Return whether an expression is what the program returned, or a name for that."""
    root = names.root(node)
    calls = [value for value in values.get(root or "", ()) if isinstance(value, ast.Call)]
    return any(names.root(call) in programs for call in calls) or (root in programs and not isinstance(node, ast.Name))


def _makers(
    node: ast.expr, values: Values, classes: frozenset[str], seen: frozenset[str] = frozenset()
) -> frozenset[str]:
    """Return the classes of whose objects an expression may be, through names, calls and operators."""
    match node:
        case ast.Name(id=name) if name not in seen:
            return frozenset[str]().union(
                *(_makers(value, values, classes, seen | {name}) for value in values.get(name, ()))
            )
        case ast.Call(func=ast.Name(id=name)) if name in classes:
            return frozenset({name})
        case ast.BinOp(left=left, right=right):
            return _makers(left, values, classes, seen) | _makers(right, values, classes, seen)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Invert(), operand=operand):
            return _makers(operand, values, classes, seen)
    return frozenset()


def _kept_back(setup: ast.Module, test: ast.Module, programs: frozenset[str]) -> Iterator[tuple[str, ast.Call]]:
    """Yield the classes that a test passes to the program although it does not have them, with the call."""
    shared = [*names.shared_with_the_program(setup), *own_classes(test, setup, programs)]
    for node in (node for tree in (setup, test) for node in ast.walk(tree)):
        if isinstance(node, ast.ClassDef) and node not in shared and not names.is_callable(node):
            call = handed([setup, test], node.name, programs)
            if call is not None:
                yield node.name, call
