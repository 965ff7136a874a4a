"""Finds which of its own classes a test passes to the program: as a class, as an object, or inside data."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from grpo_tasks_code.sandbox.host import names

_CONTAINERS = frozenset({"deque", "dict", "frozenset", "iter", "list", "reversed", "set", "sorted", "tuple", "zip"})
_FILLING = frozenset({"add", "append", "appendleft", "extend", "insert", "put", "push"})


def handed(trees: Sequence[ast.AST], kind: str, programs: frozenset[str]) -> ast.Call | None:
    """Return the first call of the program that gets this class, or a value that holds an object of it, or None.

    Attributes of such objects, and what their methods return, are other data and do not count.
    """
    nodes = [node for tree in trees for node in ast.walk(tree)]
    flow = Flow(nodes, kind)
    programs = _with_aliases(nodes, programs)
    for node in nodes:
        if isinstance(node, ast.Call) and names.root(node.func) in programs and any(map(flow.carries, _given(node))):
            return node
    return None


def own_classes(test: ast.Module, setup: ast.Module, programs: frozenset[str]) -> list[ast.stmt]:
    """Return the classes of a test that the program needs, because it gets their objects, and all imports.

    Other classes may be a reference solution. Objects that can be called are not needed: their calls are callbacks.
    """
    known = names.BUILTINS | names.bound(*names.shared_with_the_program(setup))
    statements = names.shared_with_the_program(test, known)
    classes = [node for node in statements if isinstance(node, ast.ClassDef)]
    needed = [node for node in classes if not names.is_callable(node) and handed([setup, test], node.name, programs)]
    for _ in classes:  # and the classes that these use
        needed += [node for node in classes if node not in needed and node.name in names.used(*needed)]
    return [node for node in statements if needed and (node in needed or not isinstance(node, ast.ClassDef))]


class Flow:
    """Data flow of the objects of a class.

    Args:
        nodes: All nodes of a test.
        kind: Name of the class.
    """

    def __init__(self, nodes: Sequence[ast.AST], kind: str) -> None:
        self._functions = {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}
        self._names, self._makers = {kind}, {kind}
        size = 0
        while size < len(self._names) + len(self._makers):
            size = len(self._names) + len(self._makers)
            for node in nodes:
                self._names.update(self._named(node))
            self._makers |= {
                name for name, function in self._functions.items() if any(map(self.carries, _returned(function)))
            }

    def carries(self, node: ast.AST | None) -> bool:
        """Return whether a value is the class, an object of it, or holds one."""
        match node:
            case ast.Name(id=name):
                return name in self._names
            case ast.Call(func=ast.Name(id=name)):
                holds = name in _CONTAINERS or (name[:1].isupper() and name not in self._functions)
                return name in self._makers or (holds and any(map(self.carries, _given(node))))
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts) | ast.Dict(values=parts):
                return any(map(self.carries, parts))
            case (
                ast.ListComp(elt=value)
                | ast.SetComp(elt=value)
                | ast.GeneratorExp(elt=value)
                | ast.DictComp(value=value)
                | ast.Starred(value=value)
                | ast.Subscript(value=value)
                | ast.NamedExpr(value=value)
                | ast.UnaryOp(operand=value)
            ):
                return self.carries(value)
            case ast.IfExp(body=left, orelse=right) | ast.BinOp(left=left, right=right):
                return self.carries(left) or self.carries(right)
        return False

    def _named(self, node: ast.AST) -> Iterator[str]:
        """Yield the names to which a node assigns such a value."""
        for bound, value in names.bindings(node):
            if self.carries(value):
                yield from bound
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in _FILLING:
                if any(map(self.carries, _given(node))):
                    yield from names.roots([value])
            case ast.Call(func=ast.Name(id=name)) if name in self._functions and any(map(self.carries, _given(node))):
                yield from (part.arg for part in ast.walk(self._functions[name].args) if isinstance(part, ast.arg))


def _with_aliases(nodes: Sequence[ast.AST], programs: frozenset[str]) -> frozenset[str]:
    """Add other names of the functions: `g` of `g = f`, and `h` of `def check(h)` where `check(f)` calls it."""
    functions = {node.name: node.args for node in nodes if isinstance(node, ast.FunctionDef)}
    size = 0
    while size < len(programs):
        size = len(programs)
        for node in nodes:
            match node:
                case ast.Assign(targets=targets, value=ast.Name(id=name)) if name in programs:
                    programs |= {target.id for target in targets if isinstance(target, ast.Name)}
                case ast.Call(func=ast.Name(id=called)) if called in functions:
                    parameters = [*functions[called].posonlyargs, *functions[called].args]
                    given = [*zip((part.arg for part in parameters), node.args, strict=False)]
                    given += [(keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg]
                    programs |= {name for name, value in given if isinstance(value, ast.Name) and value.id in programs}
    return programs


def _given(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _returned(function: ast.FunctionDef) -> list[ast.expr | None]:
    return [node.value for node in ast.walk(function) if isinstance(node, (ast.Return, ast.Yield))]
