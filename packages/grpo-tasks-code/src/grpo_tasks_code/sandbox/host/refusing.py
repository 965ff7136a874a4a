"""Refuses tests that cannot be judged, or would let the program decide whether they pass, by their source."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from grpo_tasks_code.sandbox.host import names, rewriting
from grpo_tasks_code.sandbox.host.handing import Flow, handed, own_classes
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
    results, answers = _results(nodes, programs), rewriting.answers([setup, test], programs | {"open", "Path"})
    for node in nodes:
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in EQUALITIES:
                if names.root(value) in results or (names.root(value) in programs and not isinstance(value, ast.Name)):
                    return f"{ast.unparse(node)} asks the program whether its answer is right; {_ADVICE}."
            case ast.Call(func=function, args=[source, *_]) if ast.unparse(function) in _EXECUTING:
                if rewriting.has_any(answers, source):
                    return f"{ast.unparse(node)} runs what the program returns as a part of the test; {_ADVICE}."
            case ast.Attribute(attr="environ"):
                return f"the program does not see what becomes of {ast.unparse(node)}; call its functions with values."
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
    subjects = [part.value for part in nodes if isinstance(part, ast.Attribute) and part.attr not in _PLAIN_ATTRIBUTES]
    results = [part for part in subjects if not (isinstance(part, ast.Name) and part.id in classes)]
    return frozenset(name for name in classes if any(map(Flow(nodes, name).carries, results)))


def _results(nodes: Sequence[ast.AST], programs: frozenset[str]) -> frozenset[str]:
    """Return the names of what the program returned."""
    return frozenset[str]().union(
        *(
            bound
            for node in nodes
            for bound, value in names.bindings(node)
            if isinstance(value, ast.Call) and names.root(value) in programs
        )
    )


def _kept_back(setup: ast.Module, test: ast.Module, programs: frozenset[str]) -> Iterator[tuple[str, ast.Call]]:
    """Yield the classes that a test passes to the program although it does not have them, with the call."""
    shared = [*names.shared_with_the_program(setup), *own_classes(test, setup, programs)]
    for node in (node for tree in (setup, test) for node in ast.walk(tree)):
        if isinstance(node, ast.ClassDef) and node not in shared and not names.is_callable(node):
            call = handed([setup, test], node.name, programs)
            if call is not None:
                yield node.name, call
