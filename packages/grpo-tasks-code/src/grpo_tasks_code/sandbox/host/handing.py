"""Which of a test's own classes it hands the program, as a class, as an object, or inside of data."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from grpo_tasks_code.sandbox.host import names

_CONTAINERS = frozenset({"deque", "dict", "frozenset", "iter", "list", "reversed", "set", "sorted", "tuple", "zip"})
_FILLING = frozenset({"add", "append", "appendleft", "extend", "insert", "put", "push"})


def handed(trees: Sequence[ast.AST], kind: str, programs: frozenset[str]) -> ast.Call | None:
    """The first call of the program that is given this class, or something that holds an object of it; None if none is.

    Not one that is given an attribute of such an object, or what its methods return: that is other data.
    """
    nodes = [node for tree in trees for node in ast.walk(tree)]
    flow = _Flow(nodes, kind)
    for node in nodes:
        if isinstance(node, ast.Call) and names.root(node.func) in programs and any(map(flow.carries, _given(node))):
            return node
    return None


def own_classes(test: ast.Module, setup: ast.Module, programs: frozenset[str]) -> list[ast.stmt]:
    """Of a test, the classes that the program gets too, since it is handed objects of theirs, and all imports.

    Not others, which may be a reference solution, nor one whose objects can be called: what calls those is called back.
    """
    known = names.BUILTINS | names.bound(*names.shared_with_the_program(setup))
    found = names.shared_with_the_program(test, known)
    needed = [each for each in found if isinstance(each, ast.ClassDef) and _is_needed(each, [setup, test], programs)]
    classes = [each for each in found if isinstance(each, ast.ClassDef)]
    for _ in classes:  # and those that they are made with
        needed += [each for each in classes if each not in needed and each.name in names.used(*needed)]
    return [each for each in found if needed and (each in needed or not isinstance(each, ast.ClassDef))]


def _is_needed(kind: ast.ClassDef, trees: Sequence[ast.AST], programs: frozenset[str]) -> bool:
    return not names.is_callable(kind) and handed(trees, kind.name, programs) is not None


class _Flow:
    """Where objects of a class get to.

    Args:
        nodes: All of a test.
        kind: The class.
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
        """Whether a value is such an object, or the class, or holds one."""
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
            ):
                return self.carries(value)
            case ast.Starred(value=value) | ast.Subscript(value=value) | ast.NamedExpr(value=value):
                return self.carries(value)
            case ast.IfExp(body=left, orelse=right) | ast.BinOp(left=left, right=right):
                return self.carries(left) or self.carries(right)
        return False

    def _named(self, node: ast.AST) -> Iterator[str]:
        """Names that a node gives such a value."""
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)) if len(targets) == len(
                values
            ):
                for target, value in zip(targets, values, strict=True):
                    if self.carries(value):
                        yield from names.roots([target])
            case ast.Assign(targets=targets, value=value) if self.carries(value):
                yield from names.roots(targets)
            case (
                ast.AnnAssign(target=target, value=value)
                | ast.AugAssign(target=target, value=value)
                | ast.NamedExpr(target=target, value=value)
                | ast.For(target=target, iter=value)
                | ast.comprehension(target=target, iter=value)
            ) if self.carries(value):
                yield from names.roots([target])
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in _FILLING:
                if any(map(self.carries, _given(node))):
                    yield from names.roots([value])
            case ast.Call(func=ast.Name(id=name)) if name in self._functions and any(map(self.carries, _given(node))):
                yield from (each.arg for each in ast.walk(self._functions[name].args) if isinstance(each, ast.arg))


def _given(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(each.value for each in call.keywords)]


def _returned(function: ast.FunctionDef) -> list[ast.expr | None]:
    return [each.value for each in ast.walk(function) if isinstance(each, (ast.Return, ast.Yield))]
