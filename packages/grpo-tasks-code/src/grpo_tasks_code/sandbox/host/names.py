"""Static analysis of the names in tests: which they use, bind and change, to decide what runs where."""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module

BUILTINS = frozenset(dir(builtins))


def used(*trees: ast.AST) -> frozenset[str]:
    """Return the names that are read anywhere in the trees."""
    return frozenset(
        node.id
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    )


def bound(*trees: ast.AST) -> frozenset[str]:
    """Return the names that are bound anywhere in the trees, in any scope."""
    names: set[str] = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                names.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                names.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names.update((alias.asname or alias.name).partition(".")[0] for alias in aliases)
    return frozenset(names)


def free(tree: ast.Module) -> frozenset[str]:
    """Return the names that the code around a module must provide, built-in functions included."""
    return _globals(tree)[0]


def given(tree: ast.Module) -> frozenset[str]:
    """Return the names that a module binds for the code after it."""
    return _globals(tree)[1]


def _globals(tree: ast.Module) -> tuple[frozenset[str], frozenset[str]]:
    text = ast.unparse(tree)
    # Without the names in annotations, which are never evaluated.
    tables = [symtable.symtable(f"from __future__ import annotations\n{text}", "<test>", "exec")]
    read: set[str] = set()
    assigned: set[str] = set()
    for table in tables:
        tables += table.get_children()
        is_module = table.get_type() == "module"
        for symbol in table.get_symbols():
            if is_module or symbol.is_global():
                if symbol.is_referenced():
                    read.add(symbol.get_name())
                if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace():
                    assigned.add(symbol.get_name())
    if "annotations" not in text:
        assigned.remove("annotations")
    return frozenset(read - assigned), frozenset(assigned)


def root(node: ast.expr) -> str | None:
    """Return the name that a chain of attributes, calls and subscripts begins with: `a` of `a.b(c)[d].e`."""
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
    """Return the modules of the standard library whose members are used: `math` of `math.isclose(…)`."""
    return frozenset(
        node.value.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in MODULES
        and hasattr(import_module(node.value.id), node.attr)
    )


def roots(targets: Iterable[ast.AST]) -> frozenset[str]:
    """Return the roots of all expressions in the trees."""
    nodes = [node for target in targets for node in ast.walk(target) if isinstance(node, ast.expr)]
    return frozenset(name for node in nodes if (name := root(node)) is not None)


def bindings(node: ast.AST) -> Iterator[tuple[frozenset[str], ast.expr]]:
    """Yield the names that a node binds or changes, with their value; of a tuple, element by element."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)) if len(targets) == len(values):
            yield from ((roots([target]), value) for target, value in zip(targets, values, strict=True))
        case ast.Assign(targets=targets, value=value):
            yield roots(targets), value
        case (
            ast.AnnAssign(target=target, value=ast.expr() as value)
            | ast.AugAssign(target=target, value=value)
            | ast.NamedExpr(target=target, value=value)
            | ast.For(target=target, iter=value)
            | ast.comprehension(target=target, iter=value)
            | ast.withitem(optional_vars=ast.expr() as target, context_expr=value)
        ):
            yield roots([target]), value


def capitalised_calls(tree: ast.AST) -> frozenset[str]:
    """Return the names that are called and begin with a capital, as class names do."""
    return frozenset(
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id[:1].isupper()
    )


def is_callable(statement: ast.ClassDef) -> bool:
    """Return whether instances of the class can be called."""
    return any(isinstance(part, ast.FunctionDef) and part.name == "__call__" for part in statement.body)


def used_as_data(tree: ast.AST) -> frozenset[str]:
    """Return the functions whose results are compared, computed with, or asserted: they return data."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, ops=ops, comparators=others):
                is_identity = all(isinstance(op, (ast.Is, ast.IsNot)) for op in ops)
                is_of_objects = is_identity and not any(isinstance(value, ast.Constant) for value in (left, *others))
                operands = [] if is_of_objects else [left, *others]
            case ast.BinOp(left=left, right=right):
                operands = [left, right]
            case ast.BoolOp(values=values):
                operands = values
            case ast.UnaryOp(operand=operand) | ast.Assert(test=operand) | ast.Subscript(value=operand):
                operands = [operand]
            case _:
                continue
        names |= {
            value.func.id for value in operands if isinstance(value, ast.Call) and isinstance(value.func, ast.Name)
        }
    return frozenset(names)


def exceptions(tree: ast.AST) -> frozenset[str]:
    """Return the names used as exceptions: in `except …`, and as arguments of `raises` and `assertRaises`."""
    kinds: list[ast.AST] = []
    for node in ast.walk(tree):
        match node:
            case ast.ExceptHandler(type=ast.expr() as kind):
                kinds.append(kind)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[kind, *_]) if (
                "raises" in name.lower()
            ):
                kinds.append(kind)
    return used(*kinds)


def shared_with_the_program(setup: ast.Module, known: frozenset[str] = BUILTINS) -> list[ast.stmt]:
    """Return the part of the set-up that the program gets too: imports, and classes whose instances it may receive.

    Such classes have a state of their own, are enumerations or exceptions, or are empty, and hold no data but defaults.
    The program must not see anything else, such as a reference solution or a table of expected values in a class.
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
    """Return whether the program may receive instances of a class."""
    bases = {ast.unparse(base) for base in statement.bases} - {"object"}
    if any("Enum" in base for base in bases):
        return True
    is_dataclass = any("dataclass" in ast.unparse(decorator) for decorator in statement.decorator_list)
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
    """Return statements as source text."""
    return "\n".join(map(ast.unparse, statements))
