"""Tests that cannot be judged, or would leave it to the program whether they pass, as far as their text shows it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from grpo_tasks_code.sandbox.host import names
from grpo_tasks_code.sandbox.host.handing import handed, own_classes
from grpo_tasks_code.sandbox.inside.proxies import EQUALITIES

_PLAIN_ATTRIBUTES = frozenset(
    name for kind in (int, float, complex, str, bytes, list, tuple, dict, set, frozenset) for name in dir(kind)
)
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_ADVICE = "compare its attributes, or what its methods return, with plain data"


def refusal_of(
    setup: ast.Module, test: ast.Module, programs: frozenset[str], objects: frozenset[str], exceptions: frozenset[str]
) -> str:
    """Why a test cannot be judged, or an empty string.

    Args:
        setup: What runs before it.
        test: The test.
        programs: Names that are the program's.
        objects: Of those, the classes that make objects, as `objects_of` finds them.
        exceptions: Of those, what is expected to be raised.
    """
    nodes = [node for tree in (setup, test) for node in ast.walk(tree)]
    values = _values(nodes)
    for node in nodes:
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in EQUALITIES:
                if _is_answer(value, values, programs):
                    return f"{ast.unparse(node)} asks the program whether its answer is right; {_ADVICE}."
            case ast.Compare(left=left, ops=ops, comparators=others):
                operands = (left, *others)
                for op, *pair in zip(ops, operands, operands[1:], strict=False):
                    if name := _compared(op, pair, values, objects):
                        return f"{ast.unparse(node)} compares an object of the program's class {name}; {_ADVICE}."
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
    """Of what may be classes, those that are: a function can have a capital too; no data has these attributes."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    values = _values(nodes)
    subjects = [each.value for each in nodes if isinstance(each, ast.Attribute) and each.attr not in _PLAIN_ATTRIBUTES]
    return frozenset[str]().union(*(_makers(each, values, classes) for each in subjects))


def _compared(op: ast.cmpop, operands: Sequence[ast.expr], values: Values, objects: frozenset[str]) -> str:
    """The class of an object that is compared, unless by which object it is, or two that the test made by their order.

    What an operator gives may be data: its comparison with data is decided when the test runs.
    """
    made = [_makers(each, values, objects) for each in operands]
    operated = [isinstance(each, (ast.BinOp, ast.UnaryOp)) for each in operands]
    if isinstance(op, (ast.Is, ast.IsNot)) or (isinstance(op, _ORDER) and all(made)):
        return ""
    if not all(made) and all(is_operated for is_operated, classes in zip(operated, made, strict=True) if classes):
        return ""
    return min(frozenset[str]().union(*made), default="")


Values = dict[str, list[ast.expr]]


def _values(nodes: Sequence[ast.AST]) -> Values:
    """Names, and what they are given."""
    found: Values = {}
    for node in nodes:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    for name, part in _given(target, value):
                        found.setdefault(name, []).append(part)
            case (
                ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                | ast.NamedExpr(target=ast.Name(id=name), value=value)
            ):
                found.setdefault(name, []).append(value)
    return found


def _given(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    match target, value:
        case ast.Name(id=name), _:
            yield name, value
        case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
            for each, part in zip(targets, values, strict=True):
                yield from _given(each, part)


def _is_answer(node: ast.expr, values: Values, programs: frozenset[str]) -> bool:
    """Whether it is what the program returned, or a name that was given that."""
    root = names.root(node)
    calls = [value for value in values.get(root or "", ()) if isinstance(value, ast.Call)]
    return any(names.root(each) in programs for each in calls) or (root in programs and not isinstance(node, ast.Name))


def _makers(
    node: ast.expr, values: Values, classes: frozenset[str], seen: frozenset[str] = frozenset()
) -> frozenset[str]:
    """The classes that an expression, or a name that was given one, makes an object of, by calls and operators."""
    match node:
        case ast.Name(id=name) if name not in seen:
            return frozenset[str]().union(
                *(_makers(each, values, classes, seen | {name}) for each in values.get(name, ()))
            )
        case ast.Call(func=ast.Name(id=name)) if name in classes:
            return frozenset({name})
        case ast.BinOp(left=left, right=right):
            return _makers(left, values, classes, seen) | _makers(right, values, classes, seen)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Invert(), operand=operand):
            return _makers(operand, values, classes, seen)
    return frozenset()


def _kept_back(setup: ast.Module, test: ast.Module, programs: frozenset[str]) -> Iterator[tuple[str, ast.Call]]:
    """Classes of a test and its set-up that the program does not have, and is handed."""
    shared = [*names.shared_with_the_program(setup), *own_classes(test, setup, programs)]
    for node in (node for tree in (setup, test) for node in ast.walk(tree)):
        if isinstance(node, ast.ClassDef) and node not in shared and not names.is_callable(node):
            call = handed([setup, test], node.name, programs)
            if call is not None:
                yield node.name, call
