"""Which names a piece of Python uses, binds and changes: enough to know what must run where."""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Iterable, Sequence
from importlib import import_module

BUILTINS = frozenset(dir(builtins))


def used(*trees: ast.AST) -> frozenset[str]:
    """Names that are read anywhere in them."""
    return frozenset(
        node.id
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    )


def bound(*trees: ast.AST) -> frozenset[str]:
    """Names that are given a value anywhere in them, in whatever scope."""
    found: set[str] = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                found.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                found.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                found.update((alias.asname or alias.name).partition(".")[0] for alias in aliases)
    return frozenset(found)


def free(tree: ast.Module) -> frozenset[str]:
    """Names that something around it must provide; built-in functions too."""
    return _globals(tree)[0]


def given(tree: ast.Module) -> frozenset[str]:
    """Names that it gives a value for what comes after it."""
    return _globals(tree)[1]


def _globals(tree: ast.Module) -> tuple[frozenset[str], frozenset[str]]:
    text = ast.unparse(tree)
    # Not the names in annotations, which nobody evaluates.
    tables = [symtable.symtable(f"from __future__ import annotations\n{text}", "<test>", "exec")]
    read: set[str] = set()
    made: set[str] = set()
    for table in tables:
        tables += table.get_children()
        is_module = table.get_type() == "module"
        for symbol in table.get_symbols():
            if is_module or symbol.is_global():
                if symbol.is_referenced():
                    read.add(symbol.get_name())
                if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace():
                    made.add(symbol.get_name())
    if "annotations" not in text:
        made.remove("annotations")
    return frozenset(read - made), frozenset(made)


def root(node: ast.expr) -> str | None:
    """The name that a chain of attributes, calls and subscripts begins with: `a` of `a.b(c)[d].e`."""
    while not isinstance(node, ast.Name):
        match node:
            case ast.Attribute(value=value) | ast.Subscript(value=value) | ast.Call(func=value):
                node = value
            case _:
                return None
    return node.id


_MODULES = (
    "asyncio cmath collections copy datetime decimal fractions functools itertools json math operator random re "
    "statistics string sys"
)
MODULES = frozenset(_MODULES.split())
"""Modules of the standard library that tests use without an import of their own, counting on the program's."""


def modules(tree: ast.AST) -> frozenset[str]:
    """Modules of the standard library whose members it uses: `math` of `math.isclose(…)`."""
    return frozenset(
        node.value.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in MODULES
        and hasattr(import_module(node.value.id), node.attr)
    )


def roots(targets: Iterable[ast.AST]) -> frozenset[str]:
    """The names that the expressions in these trees begin with, as `root` finds them."""
    nodes = [node for target in targets for node in ast.walk(target) if isinstance(node, ast.expr)]
    return frozenset(name for node in nodes if (name := root(node)) is not None)


def capitalised_calls(tree: ast.AST) -> frozenset[str]:
    """Names that are called and begin with a capital, as those of classes do."""
    return frozenset(
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id[:1].isupper()
    )


def is_callable(statement: ast.ClassDef) -> bool:
    """Whether its instances can be called."""
    return any(isinstance(part, ast.FunctionDef) and part.name == "__call__" for part in statement.body)


def used_as_data(tree: ast.AST) -> frozenset[str]:
    """Names of functions whose results are compared, computed with, or asserted as they are: they return data."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, ops=ops, comparators=others):
                is_identity = all(isinstance(op, (ast.Is, ast.IsNot)) for op in ops)
                is_of_objects = is_identity and not any(isinstance(each, ast.Constant) for each in (left, *others))
                operands = [] if is_of_objects else [left, *others]
            case ast.BinOp(left=left, right=right):
                operands = [left, right]
            case ast.BoolOp(values=values):
                operands = values
            case ast.UnaryOp(operand=operand) | ast.Assert(test=operand) | ast.Subscript(value=operand):
                operands = [operand]
            case _:
                continue
        found |= {each.func.id for each in operands if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)}
    return frozenset(found)


def exceptions(tree: ast.AST) -> frozenset[str]:
    """Names that it uses as exceptions: in `except …`, and as arguments of `raises` and `assertRaises`."""
    found: list[ast.AST] = []
    for node in ast.walk(tree):
        match node:
            case ast.ExceptHandler(type=ast.expr() as kind):
                found.append(kind)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[kind, *_]) if (
                "raises" in name.lower()
            ):
                found.append(kind)
    return used(*found)


def shared_with_the_program(setup: ast.Module, known: frozenset[str] = BUILTINS) -> list[ast.stmt]:
    """Of set-up, what the program has too: imports, and classes whose instances it may be handed.

    Those have a state of their own, are enumerations or exceptions, or are empty, and hold no data beside defaults.
    Everything else, a reference solution or a table of expected values, it must not see, be it in a class.
    """
    shared: list[ast.stmt] = []
    for statement in setup.body:
        is_known = free(ast.Module([statement], [])) <= known
        is_class = isinstance(statement, ast.ClassDef) and _is_for_both(statement)
        if isinstance(statement, (ast.Import, ast.ImportFrom)) or (is_class and is_known):
            shared.append(statement)
            known |= bound(statement)
    return shared


def _is_for_both(statement: ast.ClassDef) -> bool:
    """Whether a class is one whose instances the program may be handed."""
    bases = {ast.unparse(base) for base in statement.bases} - {"object"}
    if any("Enum" in base for base in bases):
        return True
    is_dataclass = any("dataclass" in ast.unparse(each) for each in statement.decorator_list)
    has_state = is_dataclass or bool(bases) or all(isinstance(part, (ast.Pass, ast.Expr)) for part in statement.body)
    for part in statement.body:
        match part:
            case ast.FunctionDef(name="__init__" | "__new__"):
                has_state = True
            case ast.Assign(targets=[ast.Name(id="__slots__")]):
                has_state = True
            case ast.AnnAssign(value=None):
                has_state = True
            case ast.AnnAssign(value=ast.Constant() | ast.Call()) if is_dataclass:
                pass
            case ast.Assign(value=ast.Constant(value=None)) | ast.AnnAssign(value=ast.Constant(value=None)):
                has_state = True
            case ast.Assign() | ast.AnnAssign():
                return False
    return has_state and not any(isinstance(node, ast.Assert) for node in ast.walk(statement))


def source(statements: Sequence[ast.stmt]) -> str:
    """Statements as text."""
    return "\n".join(map(ast.unparse, statements))
