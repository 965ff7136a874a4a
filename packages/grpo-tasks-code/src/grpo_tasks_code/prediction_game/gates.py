"""Checks that a program is fair to predict: it is short, and its source alone decides the one integer that it prints.

Names that give access to the machine are refused. What remains (addresses in the text of a function, the order of a
set, the depth of the stack, the size of memory) differs between several runs, whose output must agree. The order of a
set is undefined, and depends on addresses for functions, classes and None, which may be the same in every run on one
machine. So sets are reordered in all runs but the first.
"""

from __future__ import annotations

import ast
import importlib
import re
import warnings

from grpo_sdk import Invalid
from grpo_tasks_code.extraction import FENCE
from grpo_tasks_code.sandboxed import run_program

MAX_CHARS = 2_000
"""Length of a program. It also bounds the nesting for the parser, which runs in this process."""

_MODULES = "bisect collections functools heapq itertools math operator string"
_NAMES = (
    "attrgetter breakpoint compile delattr dir eval exec exit format format_map Formatter getattr globals hash help id "
    "input locals memoryview methodcaller object open quit setattr super sys type update_wrapper vars vformat wraps"
)
_PREFIXES = ("_", "ag_", "co_", "cr_", "f_", "gi_", "tb_")
"""Prefixes of refused attributes: private ones, and those of frames, code and generators, which reach every builtin."""

MODULES = frozenset(_MODULES.split())
"""Modules that may be imported: none gives access to time, machine, process or chance."""

NAMES = frozenset(_NAMES.split())
"""Refused names: they give access to the machine, to addresses, or to attributes that this check does not see."""

STATES = 4
"""Number of runs of a program, each in another state of the machine."""

_FRAMES, _BLOCKS, _MEMORY_MIB = 12, 100, 32
"""Differences between successive states: stack frames below the program, objects of each size, and memory."""

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")  # as print() writes one; int() is bounded

_SET, _OWN = "_set", "_own"
"""Names that no program can use: the class of its sets, and the function that converts results of operators."""
_OPERATORS = (
    *(f"__{reflected}{name}__" for name in ("and", "or", "sub", "xor") for reflected in ("", "r")),
    *("copy", "difference", "intersection", "symmetric_difference", "union"),
)
"""Methods of sets that return sets."""
_OF_VIEWS = frozenset({"keys", "items"})
"""Methods of dictionaries whose results have operators that return sets."""

_IN_STATE = """
import random

def unordered(base):
    def order(self):  # the second run has it the other way round: even of two items
        items = [*base.__iter__(self)]
        return iter(items[::-1] if {state} == 1 else random.Random({state}).sample(items, len(items)))

    def method(name):
        original = getattr(base, name)
        return lambda *arguments: own(original(*arguments))

    def pop(self):
        item = next(iter(self), None) if self else base.pop(self)
        self.discard(item)
        return item

    methods = {{name: method(name) for name in {operators} if hasattr(base, name)}}
    if base is set:
        methods["pop"] = pop
        methods["__repr__"] = lambda self: "{{" + ", ".join(map(repr, self)) + "}}" if self else "set()"
    return type(base.__name__, (base,), {{**methods, "__iter__": order}})

def own(value):
    return sets[type(value)](value) if type(value) in sets else value

sets = {{base: unordered(base) for base in (set, frozenset)}}
own_names = {{"_set": sets[set], "_own": own, "set": sets[set], "frozenset": sets[frozenset]}} if {state} else {{}}

def run(frames):
    if frames:  # max() calls its key from C, so that the stack of C grows too
        return max((0,), key=lambda _: run(frames - 1) or 0)
    exec(compile({program!r}, "main.py", "exec"), {{"__name__": "__main__", **own_names}})
blocks = [[bytes(size) for _ in range({blocks})] for size in range(0, 480, 16)]  # in every size class of the allocator
run({frames})
"""


def check_source(program: str, max_lines: int) -> None:
    """Refuse a program whose output may depend on more than its source.

    Raises:
        Invalid: the program is refused; says why.
    """
    if len(program) > MAX_CHARS:
        raise Invalid(f"a program of more than {MAX_CHARS} characters")
    if FENCE in program:
        raise Invalid(f"holds {FENCE}, which could end the block in which the opponent reads it")
    lines = len(program.strip().splitlines())
    if lines > max_lines:
        raise Invalid(f"{lines} lines; {max_lines} are allowed")
    for node in ast.walk(_parsed(program)):
        _check_node(node)


def _parsed(program: str) -> ast.AST:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about odd literals, whatever the process's own settings
            return ast.parse(program)
    # Null bytes and lone surrogates are ValueErrors; a long chain of operators exhausts the parser's stack.
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Invalid(f"no Python: {type(error).__name__}") from None


def _check_node(node: ast.AST) -> None:
    match node:
        case ast.Import(names=names):
            _check_modules(*(alias.name for alias in names))
        case ast.ImportFrom(module=module, names=names):
            _check_modules(module or ".")
            _check_imported(module or ".", *(alias.name for alias in names))
        case ast.Name(id=name) if name != "_":
            _check_names(name)
        case ast.Attribute(attr=name):
            _check_attribute(name)
        case ast.MatchClass(kwd_attrs=names):
            for name in names:
                _check_attribute(name)


def _check_modules(*names: str) -> None:
    for name in names:
        if name not in MODULES:
            raise Invalid(f"imports {name}; allowed are {', '.join(sorted(MODULES))}")


def _check_imported(module: str, *names: str) -> None:
    _check_names(*names)
    for name in names:
        if name != "*" and not hasattr(importlib.import_module(module), name):
            raise Invalid(f"imports {name} from {module}, which has none: the error names a path of the machine")


def _check_attribute(name: str) -> None:
    _check_names(name)
    if name.startswith(_PREFIXES):
        raise Invalid(f"uses the attribute {name}, which may lead to anything")


def _check_names(*names: str) -> None:
    for name in names:
        if name in NAMES or name.startswith("_"):
            raise Invalid(f"uses {name}, which may give something else each time")


def output_of(program: str, *, largest: int, timeout_s: float, memory_mib: int) -> int:
    """Return the one integer that a program prints in every state of the machine.

    Raises:
        Invalid: the program does not run, prints anything else, or prints something else in another state.
        InfrastructureError: the sandbox failed.
    """
    first = _printed(program, 0, timeout_s=timeout_s, memory_mib=memory_mib)
    if _INTEGER.fullmatch(first) is None:
        raise Invalid("it does not print exactly one integer")
    output = int(first)
    if abs(output) > largest:
        raise Invalid(f"it prints an integer beyond {largest}")
    for state in range(1, STATES):
        if _printed(program, state, timeout_s=timeout_s, memory_mib=memory_mib) != first:
            raise Invalid("it does not print the same on every machine: its text alone does not decide the integer")
    return output


class _OwnSets(ast.NodeTransformer):
    """Replaces the sets of a program by those of another class.

    Args:
        has_views: Whether operators may be applied to views of dictionaries.
    """

    def __init__(self, has_views: bool) -> None:
        self._has_views = has_views

    def visit_Set(self, node: ast.Set) -> ast.AST:
        self.generic_visit(node)
        return _call(_SET, ast.List(node.elts, ast.Load()))

    def visit_SetComp(self, node: ast.SetComp) -> ast.AST:
        self.generic_visit(node)
        return _call(_SET, ast.GeneratorExp(node.elt, node.generators))

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        is_of_sets = isinstance(node.op, (ast.Sub, ast.BitAnd, ast.BitOr, ast.BitXor))
        return _call(_OWN, node) if self._has_views and is_of_sets else node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        if not self._has_views or any(isinstance(part, (ast.Call, ast.NamedExpr)) for part in ast.walk(node.target)):
            return node
        target = ast.unparse(node.target)  # not `x = _own(x - y)`: of a set, another name would keep the old one
        return [node, *ast.parse(f"{target} = {_OWN}({target})").body]


def _call(function: str, argument: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(function, ast.Load()), [argument], [])


def _with_own_sets(program: str) -> str:
    tree = _parsed(program)
    has_views = any(isinstance(node, ast.Attribute) and node.attr in _OF_VIEWS for node in ast.walk(tree))
    try:
        return ast.unparse(ast.fix_missing_locations(_OwnSets(has_views).visit(tree)))
    except RecursionError:
        raise Invalid("nested too deep") from None


def _printed(program: str, state: int, *, timeout_s: float, memory_mib: int) -> str:
    source = _IN_STATE.format(
        program=_with_own_sets(program) if state else program,
        state=state,
        operators=_OPERATORS,
        frames=state * _FRAMES,
        blocks=state * _BLOCKS,
    )
    memory_mib += state * _MEMORY_MIB
    execution = run_program(source, timeout_s=timeout_s, memory_mib=memory_mib, machine_state=state)
    if execution.status != "ok":
        raise Invalid(f"it does not run: {execution.status}")
    return execution.stdout.strip()
