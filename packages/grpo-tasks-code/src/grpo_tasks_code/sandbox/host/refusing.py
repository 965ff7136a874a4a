"""Tests that would leave it to the program whether they pass, as far as their text shows it."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from grpo_tasks_code.sandbox.host import names
from grpo_tasks_code.sandbox.inside.proxies import EQUALITIES

_PLAIN_ATTRIBUTES = frozenset(
    name for kind in (int, float, complex, str, bytes, list, tuple, dict, set, frozenset) for name in dir(kind)
)
_ADVICE = "compare its attributes, or what its methods return, with plain data"


def refusal_of(trees: Sequence[ast.AST], programs: frozenset[str], classes: frozenset[str]) -> str:
    """Why a test cannot be judged, or an empty string.

    Args:
        trees: Set-up and test.
        programs: Names that are the program's.
        classes: Of those, what may make objects.
    """
    nodes = [node for tree in trees for node in ast.walk(tree)]
    answers = _answers(nodes, programs)
    objects = objects_of(trees, programs, classes)
    for node in nodes:
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in EQUALITIES:
                if (root := names.root(value)) in answers or (root in programs and not isinstance(value, ast.Name)):
                    return f"{ast.unparse(node)} asks the program whether its answer is right; {_ADVICE}."
            case ast.Compare(left=left, ops=ops, comparators=others):
                if all(isinstance(op, (ast.Is, ast.IsNot)) for op in ops):
                    continue
                made = [name for operand in (left, *others) if (name := _maker(operand, answers, classes)) in objects]
                if made:
                    return f"{ast.unparse(node)} compares an object of the program's class {made[0]}; {_ADVICE}."
    return ""


def objects_of(trees: Sequence[ast.AST], programs: frozenset[str], classes: frozenset[str]) -> frozenset[str]:
    """Of what may be classes, those that are: a function can have a capital too; no data has these attributes."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    answers = _answers(nodes, programs)
    subjects = [each.value for each in nodes if isinstance(each, ast.Attribute) and each.attr not in _PLAIN_ATTRIBUTES]
    return frozenset(name for each in subjects if (name := _maker(each, answers, classes)) is not None)


def _answers(nodes: Sequence[ast.AST], programs: frozenset[str]) -> dict[str, ast.Call]:
    """Names that are given what a call of the program returns."""
    return {
        target.id: node.value
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and names.root(node.value) in programs
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _maker(node: ast.expr, answers: dict[str, ast.Call], classes: frozenset[str]) -> str | None:
    """The class that an expression makes an object of, or a name was given one of."""
    match answers.get(node.id) if isinstance(node, ast.Name) else node:
        case ast.Call(func=ast.Name(id=name)) if name in classes:
            return name
    return None
