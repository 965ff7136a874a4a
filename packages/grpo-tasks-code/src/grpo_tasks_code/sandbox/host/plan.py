"""Plans of tests: test sources analysed once for all completions.

    assert median([3, 1, 2]) == 2

becomes a call, whose arguments are sent to the program's process, and the expected value 2, which stays here. A test of
any other form runs in a judge's process with the set-up, and there calls the program's functions by messages:

    assert all(abs(root(n) ** 2 - n) < 1e-9 for n in range(5))
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from grpo_sdk import UserError
from grpo_tasks_code.sandbox.host import assertions, names, rewriting
from grpo_tasks_code.sandbox.host.handing import Flow, handed, own_classes
from grpo_tasks_code.sandbox.inside.judging import END_CHECKS
from grpo_tasks_code.sandbox.inside.passing import Parcel
from grpo_tasks_code.sandbox.inside.proxies import EQUALITIES
from grpo_tasks_code.sandbox.inside.values import NotPlainError, encode

MAX_COMPARED_BYTES = 1 << 13
"""Largest expected value that is compared in this process; a judge compares larger ones."""

_PLAIN_ATTRIBUTES = frozenset(
    name for kind in (int, float, complex, str, bytes, list, tuple, dict, set, frozenset) for name in dir(kind)
)
_EXECUTING = frozenset({"eval", "exec", "compile", "pickle.load", "pickle.loads", "marshal.loads", "runpy.run_path"})
_ADVICE = "compare its attributes, or what its methods return, with plain data"

_CACHED_PLANS = 1024
"""Plans kept: each prompt's tests are used for all its completions."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A call with literal arguments and its expected value.

    Attributes:
        question: Source of the call.
        function: Name of the function.
        arguments: Encoded argument values.
        keywords: Names of the last arguments.
        expected: Expected value.
        size: Size of its encoding in bytes.
    """

    question: str
    function: str
    arguments: Parcel
    keywords: tuple[str, ...]
    expected: Any
    size: int


@dataclass(frozen=True, slots=True)
class Judged:
    """A test that a judge runs.

    Attributes:
        source: Statements of the test, as `rewriting` prepares them.
        before: Imports and those of its classes that the program gets too.
        shared: Names of these classes.
    """

    source: str
    before: str = ""
    shared: tuple[str, ...] = ()


Way = tuple[Pair, ...] | Judged
"""How a test is decided: by comparisons, or by a judge."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of one set of tests, for `run_tests`.

    Attributes:
        before: Part of the set-up that the program gets too.
        shared: Classes in that part, whose instances travel by value.
        setup: Whole set-up, as a judge runs it before each test.
        names: Names that set-up and tests use from the program.
        classes: Those names that are used as classes.
        objects: Those classes whose objects are not used as data, even if they inherit from data.
        exceptions: Those names that are expected to be raised.
        tests: Tests in the given order.
        given: Tests, set-up and entry point from which it was made.
    """

    before: str
    shared: tuple[str, ...]
    setup: str
    names: tuple[str, ...]
    classes: tuple[str, ...]
    objects: tuple[str, ...]
    exceptions: tuple[str, ...]
    tests: tuple[Way, ...]
    given: tuple[tuple[str, ...], str, str | None]


def plan_of(tests: Sequence[str], setup: str, entry_point: str | None) -> Plan:
    """Analyse tests.

    Args:
        tests: Sources, each with an assert that runs, or functions `test…` without arguments, which are called; with an
            entry point, each defines `check` with one argument.
        setup: Statements that run before each test.
        entry_point: Name of the function that is passed to `check`.

    Raises:
        UserError: a test is not Python, not of this form, or lets the program decide whether it passes.
    """
    return _plan_of(tuple(tests), setup, entry_point)


@lru_cache(_CACHED_PLANS)
def _plan_of(tests: tuple[str, ...], setup: str, entry_point: str | None) -> Plan:
    shared = _parse(setup, "setup")
    trees = [_parse(test, f"test {index}") for index, test in enumerate(tests)]
    if entry_point is not None:
        if not entry_point.isidentifier():
            raise UserError(f"entry_point={entry_point!r} is not the name of a function.")
        trees = [_with_check_called(tree, entry_point, index) for index, tree in enumerate(trees)]
    trees = [assertions.with_test_functions_called(shared, tree) for tree in trees]
    for index, tree in enumerate(trees):
        if refusal := assertions.refusal_of(shared, tree):
            raise UserError(f"test {index} {refusal}: {tests[index]!r:.200}")
    free = frozenset[str]().union(*map(names.free, [shared, *trees])) - names.given(shared)
    # The judge uses its own modules, since the program can patch those that it imported.
    modules = frozenset[str]().union(*map(names.modules, [shared, *trees])) & free
    programs = free - modules - names.BUILTINS | ({entry_point} if entry_point else set())
    if not programs:  # the program redefines a built-in function
        programs = frozenset().union(*map(_function_of, trees))
    capitalised = frozenset().union(*map(names.capitalised_calls, [shared, *trees])) & programs
    objects = _objects_of([shared, *trees], capitalised)
    classes = capitalised - frozenset[str]().union(*map(names.used_as_data, trees)) | objects
    exceptions = frozenset[str]().union(*map(names.exceptions, [shared, *trees])) & programs
    for index, tree in enumerate(trees):
        if refusal := _refusal_of(shared, tree, programs, exceptions):
            raise UserError(f"test {index} cannot be judged: {refusal}")
    comparable = frozenset[str]() if _acts(shared, programs) else programs
    ways = tuple(_way(tree, shared, comparable, programs, exceptions) for tree in trees)
    before = names.shared_with_the_program(shared)
    imports = [f"import {module}" for module in sorted(modules)]
    return Plan(
        names.source(before),
        tuple(statement.name for statement in before if isinstance(statement, ast.ClassDef)),
        "\n".join([*imports, rewriting.rewritten(shared, [shared], programs, exceptions)]),
        tuple(sorted(programs)),
        tuple(sorted(classes)),
        tuple(sorted(objects)),
        tuple(sorted(exceptions)),
        ways,
        (tests, setup, entry_point),
    )


def _parse(text: str, what: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UserError(f"{what} is not Python ({error}): {text!r:.200}") from None


def _function_of(tree: ast.Module) -> frozenset[str]:
    """Return the function of `assert function(…) …`."""
    for node in ast.walk(tree):
        match node:
            case ast.Assert(test=ast.Compare(left=ast.Call(func=ast.Name(id=name))) | ast.Call(func=ast.Name(id=name))):
                return frozenset({name})
    return frozenset()


class _Renamer(ast.NodeTransformer):
    def __init__(self, old: str, new: str) -> None:
        self._old, self._new = old, new

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._new, node.ctx) if node.id == self._old else node


def _with_check_called(tree: ast.Module, entry_point: str, index: int) -> ast.Module:
    """Convert HumanEval's form: the statements of `check`, with the function itself as the argument.

    Raises:
        UserError: the test does not define `check`.
    """
    checks = [each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == "check"]
    if not checks or len(checks[-1].args.args) != 1:
        raise UserError(f"test {index} has an entry point, so it must define `def check(candidate): …`.")
    check, rest = checks[-1], [statement for statement in tree.body if statement not in checks]
    parameter = check.args.args[0].arg
    is_leaving = any(isinstance(node, (ast.Return, ast.Global, ast.Nonlocal)) for node in ast.walk(check))
    if not is_leaving and parameter not in names.bound(*check.body):
        renamed = [_Renamer(parameter, entry_point).visit(statement) for statement in check.body]
        body = [*rest, *renamed]
    else:
        call = ast.Call(ast.Name("check", ast.Load()), [ast.Name(entry_point, ast.Load())], [])
        body = [*rest, check, ast.Expr(call)]
    return ast.fix_missing_locations(ast.Module(body, []))


def _way(
    tree: ast.Module,
    setup: ast.Module,
    comparable: frozenset[str],
    programs: frozenset[str],
    exceptions: frozenset[str],
) -> Way:
    pairs = _pairs(tree, comparable)
    if pairs is not None:
        return pairs
    before = own_classes(tree, setup, programs)
    classes = tuple(node.name for node in before if isinstance(node, ast.ClassDef))
    rest = ast.Module([node for node in tree.body if not (isinstance(node, ast.ClassDef) and node in before)], [])
    around = [setup, ast.Module(before, []), rest]
    source = rewriting.rewritten(rest, around, programs - {*classes}, exceptions)
    if assertions.has_check(setup, tree):
        source += f"\n{END_CHECKS}()"
    return Judged(source, names.source(before), classes)


def _acts(setup: ast.Module, programs: frozenset[str]) -> bool:
    """Return whether set-up has an effect on every test: it asserts, or uses the program."""
    return any(
        isinstance(statement, ast.Assert)
        or (not isinstance(statement, (ast.FunctionDef, ast.ClassDef)) and names.used(statement) & programs)
        for statement in setup.body
    )


def _pairs(tree: ast.Module, programs: frozenset[str]) -> tuple[Pair, ...] | None:
    """Return the comparisons of a test that only compares calls on literals with literals, else None."""
    pairs: list[Pair] = []
    programs -= names.bound(tree)
    for statement in tree.body:
        if not _does_nothing(statement):
            pair = _pair(statement, programs)
            if pair is None:
                return None
            pairs.append(pair)
    return tuple(pairs)


def _pair(statement: ast.stmt, programs: frozenset[str]) -> Pair | None:
    match statement:
        case ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right])):
            for question, literal in ((left, right), (right, left)):
                match question:
                    case ast.Call(func=ast.Name(id=function)) if function in programs:
                        pair = _pair_of(question, function, literal)
                        if pair is not None and pair.size <= MAX_COMPARED_BYTES:
                            return pair
    return None


def _pair_of(question: ast.Call, function: str, literal: ast.expr) -> Pair | None:
    try:
        nodes = [*question.args, *(keyword.value for keyword in question.keywords)]
        arguments = [[encode(ast.literal_eval(node)) for node in nodes], []]
        expected = ast.literal_eval(literal)
        size = len(json.dumps(encode(expected)))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError, NotPlainError):
        return None
    keywords = [keyword.arg for keyword in question.keywords]
    if None in keywords:  # **options
        return None
    return Pair(ast.unparse(question), function, arguments, tuple(map(str, keywords)), expected, size)


def _does_nothing(statement: ast.stmt) -> bool:
    """Return whether this is a docstring, `pass`, `assert True`, or a constant like HumanEval's METADATA."""
    match statement:
        case ast.Pass() | ast.Expr(value=ast.Constant()) | ast.Assert(test=ast.Constant(value=True)):
            return True
        case ast.Assign(targets=[ast.Name()], value=value):
            try:
                ast.literal_eval(value)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                return False
            return True
    return False


def _refusal_of(setup: ast.Module, test: ast.Module, programs: frozenset[str], exceptions: frozenset[str]) -> str:
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


def _objects_of(trees: Sequence[ast.AST], classes: frozenset[str]) -> frozenset[str]:
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
