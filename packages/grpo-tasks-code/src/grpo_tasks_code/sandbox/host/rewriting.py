"""Rewrites tests for the judge: names of the program become requests, and its changes of arguments are tracked.

    assert f(2) == LIMIT      assert f(2) == __value__('LIMIT')
    sort(xs)                  __in_place__(sort)(xs)
    assert xs == [1, 2]       assert __end__(__begin__(), not not xs == [1, 2])
    assert f(2) == 4          assert __checked__(__equal__(f(2), 4, 'f(2)'), 'f(2) == 4')
    raise ValueError          raise __raised__(ValueError)

`inside.mutations` explains the second and third, `assertions` the fourth.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from grpo_tasks_code.sandbox.host import assertions, names
from grpo_tasks_code.sandbox.inside.judging import BEGIN, CHECKED, END, EQUAL, IN_PLACE, RAISED, VALUE

MAX_TOLD_CHARS = 100
"""Longest part of a check that is told where it does not hold."""


def rewritten(
    tree: ast.Module, around: Sequence[ast.Module], programs: frozenset[str], exceptions: frozenset[str]
) -> str:
    """Return set-up or a test as a judge runs it.

    Args:
        tree: Statements to rewrite; the tree is changed.
        around: The tree, and what runs before it.
        programs: Names of the program.
        exceptions: Those that the tests use as exceptions.
    """
    rewriter = _Rewriter(
        programs - exceptions - names.given(tree), answers(around, programs), assertions.functions(*around) | programs
    )
    return ast.unparse(ast.fix_missing_locations(rewriter.visit(tree)))


class _Rewriter(ast.NodeTransformer):
    def __init__(self, programs: frozenset[str], answers: frozenset[str], unknown: frozenset[str]) -> None:
        self._programs, self._answers, self._unknown = programs, answers, unknown

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Load) and node.id in self._programs:
            return _call(VALUE, ast.Constant(node.id))
        return node

    def _visit_scope(self, node: ast.AST) -> ast.AST:
        """Visit a function or comprehension, whose own variables may hide names of the program."""
        programs, self._programs = self._programs, self._programs - names.bound(node)
        visited = self.generic_visit(node)
        self._programs = programs
        return visited

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _visit_scope
    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _visit_scope

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        node.value = self._subject(node.value)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.func = self._subject(node.func)
        node.args = [self.visit(part) for part in node.args]
        node.keywords = [self.visit(part) for part in node.keywords]
        return _call(CHECKED, node) if assertions.is_check(node, self._unknown) else node

    def _subject(self, node: ast.expr) -> ast.expr:
        """Visit what is called or has an attribute; names of the program stay, since proxies stand for them."""
        visited: ast.expr = node if isinstance(node, ast.Name) else self.visit(node)
        return visited

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        node.value = self._for_its_effect(node.value)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        match node:
            case ast.Compare(ops=[ast.Is() | ast.Eq()], comparators=[ast.Constant(value=None)]):
                node.left = self._for_its_effect(node.left)
                return node
        return self.generic_visit(node)

    def _for_its_effect(self, node: ast.expr) -> ast.expr:
        """Visit an expression whose result is not used; a call is made for what it does to its arguments."""
        visited: ast.expr = self.visit(node)
        is_ours = isinstance(visited, ast.Call) and isinstance(visited.func, ast.Name) and visited.func.id == CHECKED
        if isinstance(visited, ast.Call) and (visited.args or visited.keywords) and not is_ours:
            visited.func = _call(IN_PLACE, visited.func)
        return visited

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        self.generic_visit(node)
        if node.exc is not None:
            node.exc = _call(RAISED, node.exc)
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        is_check = assertions.is_check(node, self._unknown)
        told = _told(node.test)
        node.test = self._asserted(node.test)
        if is_check:
            node.test = _call(CHECKED, node.test, told)
        if node.msg is not None:
            node.msg = self.visit(node.msg)
        return node

    def _asserted(self, node: ast.expr) -> ast.expr:
        match node:
            case ast.BoolOp():
                node.values = [self._asserted(value) for value in node.values]
                return node
            case ast.UnaryOp(op=ast.Not()):
                node.operand = self._asserted(node.operand)
                return node
        is_about_arguments = self._is_about_arguments(node)
        told = _told(node.left) if isinstance(node, ast.Compare) else None
        visited: ast.expr = self.visit(node)
        if told and isinstance(visited, ast.Compare) and [*map(type, visited.ops)] == [ast.Eq]:
            visited = _call(EQUAL, visited.left, *visited.comparators, told)
        if not is_about_arguments:
            return visited
        truth = ast.UnaryOp(ast.Not(), ast.UnaryOp(ast.Not(), visited))
        return _call(END, _call(BEGIN), truth)

    def _is_about_arguments(self, node: ast.expr) -> bool:
        """Return whether it looks at the test's own values only, as `xs == [1, 2]` and `xs[:count] == [1, 2]`.

        `words[index] == max(words)` does not: an answer about a value that the program changed is right too easily.
        """
        used = [part.id for part in ast.walk(node) if isinstance(part, ast.Name) and part.id not in names.BUILTINS]
        indexed = {
            names.root(part)
            for part in ast.walk(node)
            if isinstance(part, ast.Subscript) and has_any(self._answers, part.slice)
        } - {None}
        return bool(used) and not has_any(self._answers, node) and all(used.count(str(part)) == 1 for part in indexed)


def has_any(wanted: frozenset[str], node: ast.AST) -> bool:
    """Return whether a node reads one of these names, other than as an index or slice."""
    if isinstance(node, ast.Subscript):
        return has_any(wanted, node.value)
    if isinstance(node, ast.Name):
        return node.id in wanted
    return any(has_any(wanted, child) for child in ast.iter_child_nodes(node))


def answers(trees: Sequence[ast.AST], programs: frozenset[str]) -> frozenset[str]:
    """Return the names whose values come from the program: its own, and those computed from them in these trees.

    Functions that call the program count too, and so do parameters that are called, which may be the program's.
    """
    nodes = [node for tree in trees for node in ast.walk(tree)]
    called = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    sources = programs | {node.arg for node in nodes if isinstance(node, ast.arg) and node.arg in called}
    makers = [maker for node in nodes for maker in _makers(node)]
    while True:
        more = {
            name for targets, parts in makers if any(has_any(sources, part) for part in parts) for name in targets
        } - sources
        if not more:
            return sources
        sources |= more


def _makers(node: ast.AST) -> Iterable[tuple[frozenset[str], Sequence[ast.AST]]]:
    """Yield the names that a node binds, with the parts of their values."""
    yield from ((bound, [value]) for bound, value in names.bindings(node))
    match node:
        case ast.FunctionDef(name=name, body=body) | ast.ClassDef(name=name, body=body):
            yield frozenset({name}), body
        case ast.Expr(value=ast.Call(func=ast.Attribute() as method, args=arguments)):  # results.append(f(1))
            yield names.roots([method]), arguments


def _told(node: ast.expr) -> ast.Constant:
    return ast.Constant(ast.unparse(node)[:MAX_TOLD_CHARS])


def _call(function: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(function, ast.Load()), list(arguments), [])
