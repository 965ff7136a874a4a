"""What checks a test has: one that checks nothing, or checks nothing when it runs, would pass any program.

An `assert` whose condition is computed, a call like `self.assertEqual(…)`, and `pytest.raises(…)` are checks: a test
with any passes only if one ran. `assert False` and `raise …` fail where they are reached, and need not be.
"""

from __future__ import annotations

import ast

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_RUNNERS = ("unittest.main(", "pytest.main(", "sys.exit(unittest.main(", "sys.exit(pytest.main(")


def is_check(node: ast.AST, own: frozenset[str]) -> bool:
    """Return whether a node checks something when it runs; `own` are the functions that the test itself defines."""
    match node:
        case ast.Assert(test=test):
            # A tuple is always true: `assert (f(1) == 2, "message")`.
            return not isinstance(test, (ast.Constant, ast.Tuple, ast.JoinedStr))
        case ast.Call(func=ast.Attribute(attr=name)) | ast.Call(func=ast.Name(id=name)):
            return name not in own and (name.startswith("assert") or name == "raises")
    return False


def functions(*trees: ast.AST) -> frozenset[str]:
    """Return the names of all functions and methods in the trees."""
    return frozenset(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, _Function))


def with_test_functions_called(setup: ast.Module, test: ast.Module) -> ast.Module:
    """Append the calls that pytest would make of what nothing else calls, and drop those of pytest and unittest.

    They are functions `test…` without arguments or with `parametrize`, and the methods `test…` of classes.
    """
    test = ast.Module([statement for statement in test.body if not _runs_tests(statement)], [])
    _, unused = _reached(setup, test)
    calls = []
    for statement in test.body:
        match statement:
            case ast.FunctionDef(name=name) if statement in unused and _is_pytests(statement):
                calls.append(f"{name}()")
            case ast.ClassDef(name=name, bases=bases, body=body):
                methods = [part.name for part in body if isinstance(part, _Function) and part.name.startswith("test")]
                if any(ast.unparse(base).endswith("TestCase") for base in bases):
                    runs = [f"{name}({name}.{method}.__name__).debug()" for method in methods]
                    calls += [f"{name}.setUpClass()", *runs, f"{name}.tearDownClass()"]
                elif name.startswith("Test"):
                    calls += [f"{name}().{method}()" for method in methods if method in {each.name for each in unused}]
    return ast.Module([*test.body, *ast.parse("\n".join(calls)).body], [])


def refusal_of(setup: ast.Module, test: ast.Module) -> str:
    """Return why any program would pass a test; empty if it may fail."""
    decides, unused = _reached(setup, test)
    if decides:
        return ""
    for function in unused:
        if any(isinstance(node, ast.Assert) for node in ast.walk(function)):
            call = f"{function.name}({ast.unparse(function.args)})"
            return f"asserts nothing, so any program would pass it; add the call of {call}, which nothing calls"
    return "asserts nothing, so any program would pass it"


def has_check(setup: ast.Module, test: ast.Module) -> bool:
    """Return whether a test has a check, one of which must run."""
    own = functions(setup, test)
    return any(is_check(node, own) for tree in (setup, test) for node in ast.walk(tree))


def _runs_tests(statement: ast.stmt) -> bool:
    match statement:
        case ast.If(body=[ast.Expr(value=value)]) | ast.Expr(value=value):
            return ast.unparse(value).startswith(_RUNNERS)
    return False


def _is_pytests(function: ast.FunctionDef) -> bool:
    given = function.args
    needed = len(given.posonlyargs) + len(given.args) - len(given.defaults) + given.kw_defaults.count(None)
    is_filled = any("parametrize" in ast.unparse(decorator) for decorator in function.decorator_list)
    return function.name.startswith("test") and (is_filled or not needed)


def _reached(*trees: ast.AST) -> tuple[bool, list[_Function]]:
    """Return whether a check, `assert False` or `raise` may run, and the functions whose names nothing uses that runs.

    A function counts as called where its name is used, since it may be passed on, and so does a method like `__eq__`.
    """
    own = functions(*trees)
    decides, names = False, set[str]()
    unused: list[_Function] = []
    waiting = list(trees)
    while waiting:
        node = waiting.pop()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                unused.append(node)
                waiting += [*node.decorator_list, node.args]
            case _:
                fails = isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant) and not node.test.value
                decides |= fails or isinstance(node, ast.Raise) or is_check(node, own)
                if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
                    names.add(node.id if isinstance(node, ast.Name) else node.attr)
                waiting += ast.iter_child_nodes(node)
        if not waiting:
            used = [each for each in unused if each.name in names or each.name[:2] == each.name[-2:] == "__"]
            unused = [function for function in unused if function not in used]
            waiting += [statement for function in used for statement in function.body]
    return decides, unused
