"""Whether a test asserts anything when it runs: an `assert` in a function that is never called decides nothing."""

from __future__ import annotations

import ast

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def with_test_functions_called(setup: ast.Module, test: ast.Module) -> ast.Module:
    """Append the calls that pytest would make: of unused functions `test…` of the test that take no arguments."""
    _, unused = _reached(setup, test)
    calls = [
        f"{statement.name}()"
        for statement in test.body
        if isinstance(statement, ast.FunctionDef) and statement in unused and _is_pytests(statement)
    ]
    return ast.Module([*test.body, *ast.parse("\n".join(calls)).body], [])


def refusal_of(setup: ast.Module, test: ast.Module) -> str:
    """Return why any program would pass a test; empty if it asserts."""
    asserts, unused = _reached(setup, test)
    if asserts:
        return ""
    for function in unused:
        if any(isinstance(node, ast.Assert) for node in ast.walk(function)):
            call = f"{function.name}({ast.unparse(function.args)})"
            return f"asserts nothing, so any program would pass it; add the call of {call}, which nothing calls"
    return "asserts nothing, so any program would pass it"


def _is_pytests(function: ast.FunctionDef) -> bool:
    given = function.args
    needed = len(given.posonlyargs) + len(given.args) - len(given.defaults) + given.kw_defaults.count(None)
    return function.name.startswith("test") and not needed


def _reached(*trees: ast.AST) -> tuple[bool, list[_Function]]:
    """Return whether an `assert` runs, and the functions whose names nothing uses that runs.

    A function counts as called where its name is used, since it may be passed on, and so does a method like `__eq__`.
    """
    asserts, names = False, set[str]()
    unused: list[_Function] = []
    waiting = list(trees)
    while waiting:
        node = waiting.pop()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                unused.append(node)
                waiting += [*node.decorator_list, node.args]
            case _:
                asserts |= isinstance(node, ast.Assert)
                if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
                    names.add(node.id if isinstance(node, ast.Name) else node.attr)
                waiting += ast.iter_child_nodes(node)
        if not waiting:
            used = [each for each in unused if each.name in names or each.name[:2] == each.name[-2:] == "__"]
            unused = [function for function in unused if function not in used]
            waiting += [statement for function in used for statement in function.body]
    return asserts, unused
