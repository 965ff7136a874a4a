"""Generates programs of a few kinds: arithmetic, variables, loops, branches, functions, lists, strings."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

_MAX_DRAWS = 1_000
"""Draws for one program; a kind that needs more has unsatisfiable conditions."""

_INTEGER = re.compile(r"-?[0-9]+")
_LETTERS = ("a", "b", "c", "k", "m", "n", "x", "y", "z")
_TOTALS = ("count", "result", "s", "t", "total")
_WORD_LIST = (
    "apple banana cherry garden island jacket kitten lemon mirror needle orange pencil planet rabbit river sailor "
    "silver spring summer table tiger violin window winter yellow zebra"
)
_WORDS = tuple(_WORD_LIST.split())


@dataclass(frozen=True, slots=True)
class Program:
    """A program and its output.

    Attributes:
        source: Source, without a final newline.
        output: Its one line of output, without the newline.
        kind: Key of `KINDS`.
    """

    source: str
    output: str
    kind: str


def generate(
    random: Random,
    kinds: Sequence[str],
    *,
    max_chars: int = 400,
    largest: int = 9_999,
    only_integers: bool = False,
) -> Program:
    """Draw a program that prints one line.

    Args:
        random: The only source of randomness.
        kinds: Keys of `KINDS` to draw from.
        max_chars: Largest length of the source.
        largest: Largest absolute value of a printed integer.
        only_integers: Whether the line must be one integer.
    """
    kind = random.choice(kinds)
    for _ in range(_MAX_DRAWS):
        source = "\n".join(KINDS[kind].make(random))
        if len(source) > max_chars:
            continue
        try:
            output = output_of(source)
        except ZeroDivisionError:
            continue
        is_fit = abs(int(output)) <= largest if _INTEGER.fullmatch(output) else not only_integers
        if output and "\n" not in output and is_fit:
            return Program(source, output, kind)
    raise AssertionError(f"no {kind!r} program of {max_chars} characters in {_MAX_DRAWS} draws")


def output_of(source: str) -> str:
    """Return what a program prints. It runs here: it must be one of the functions below, never a model's."""
    lines: list[str] = []
    exec(source, {"print": lambda value: lines.append(str(value))})
    return "\n".join(lines)


def canonical(source: str) -> str:
    """Return the program with its names numbered by first appearance, equal for programs that differ only in names."""
    tree = ast.parse(source)
    numbers: dict[str, str] = {}
    nodes = [*ast.walk(tree)]
    defined = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    defined |= {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    defined |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    # `walk` goes level by level, in an order that does not depend on names.
    for node in nodes:
        match node:
            case ast.Name(id=name) if name in defined:
                node.id = numbers.setdefault(name, f"v{len(numbers)}")
            case ast.arg(arg=name):
                node.arg = numbers.setdefault(name, f"v{len(numbers)}")
            case ast.FunctionDef(name=name):
                node.name = numbers.setdefault(name, f"v{len(numbers)}")
    return ast.unparse(tree)


def _arithmetic(random: Random) -> Iterable[str]:
    a, b, c = (_number(random) for _ in range(3))
    match random.randrange(3):
        case 0:
            yield f"print({_operation(random, a, b)})"
        case 1:
            yield f"print({_operation(random, f'({_operation(random, a, b)})', c)})"
        case _:
            yield f"print({a} {random.choice('+-')} {_operation(random, b, c)})"


def _variables(random: Random) -> Iterable[str]:
    x, y = random.sample(_LETTERS, 2)
    yield f"{x} = {_number(random)}"
    yield f"{y} = {_operation(random, x, _number(random))}"
    for _ in range(random.randint(0, 2)):
        changed, other = random.sample((x, y), 2)
        if random.random() < 0.5:
            yield f"{changed} {random.choice('+-')}= {random.choice((other, _number(random)))}"
        else:
            yield f"{changed} = {_operation(random, other, _number(random))}"
    yield f"print({random.choice((x, y, f'{x} + {y}', f'{x} - {y}', f'{x} * {y}'))})"


def _for_loop(random: Random) -> Iterable[str]:
    total, i = random.choice(_TOTALS), random.choice("ijk")
    start, stop = random.randint(0, 4), random.randint(5, 12)
    yield f"{total} = {random.choice((0, 0, 1, random.randint(2, 9)))}"
    yield f"for {i} in range({stop if start == 0 else f'{start}, {stop}'}):"
    match random.randrange(4):
        case 0:
            yield f"    {total} += {i}"
        case 1:
            yield f"    {total} += {_operation(random, i, _number(random, 2, 9))}"
        case 2:
            yield f"    {total} = {_operation(random, f'({total} + {i})', _number(random, 2, 9))}"
        case _:
            yield f"    if {i} % {random.randint(2, 4)} == {random.randint(0, 1)}:"
            yield f"        {total} += {i}"
    yield f"print({total})"


def _while_loop(random: Random) -> Iterable[str]:
    n, total = random.choice("mnxy"), random.choice(_TOTALS)
    yield f"{n} = {random.randint(10, 99)}"
    yield f"{total} = 0"
    if random.random() < 0.5:
        yield f"while {n} > {random.randint(0, 5)}:"
        yield f"    {n} -= {random.randint(2, 9)}"
    else:
        yield f"while {n} > 0:"
        yield f"    {n} //= {random.randint(2, 5)}"
    yield f"    {total} += {random.choice(('1', n, f'{n} % {random.randint(2, 9)}'))}"
    yield f"print({random.choice((total, total, f'{total} + {n}'))})"


def _branch(random: Random) -> Iterable[str]:
    x = random.choice(_LETTERS)
    yield f"{x} = {_operation(random, _number(random), _number(random))}"
    test = random.choice((f"{x} > {_number(random, 5, 60)}", f"{x} % {random.randint(2, 5)} == {random.randint(0, 1)}"))
    yield f"if {test}:"
    yield f"    {x} = {_operation(random, x, _number(random, 2, 9))}"
    yield "else:"
    yield f"    {x} = {_operation(random, x, _number(random, 2, 9))}"
    yield f"print({x})"


def _function(random: Random) -> Iterable[str]:
    f, x = random.choice("fgh"), random.choice("nx")
    match random.randrange(3):
        case 0:
            yield f"def {f}({x}):"
            yield f"    return {_operation(random, x, _number(random))}"
            yield f"print({f}({_number(random)}) {random.choice('+-')} {f}({_number(random)}))"
        case 1:
            yield f"def {f}({x}):"
            yield f"    if {x} < {random.randint(1, 3)}:"
            yield f"        return {random.randint(0, 3)}"
            yield f"    return {f}({x} - {random.randint(1, 2)}) {random.choice('+-')} {x}"
            yield f"print({f}({random.randint(4, 12)}))"
        case _:
            yield f"def {f}(a, b):"
            yield f"    return {_operation(random, _operation(random, 'a', 'b'), _number(random, 2, 9))}"
            yield f"print({f}({_number(random)}, {_number(random)}))"


def _list(random: Random) -> Iterable[str]:
    items = random.choice(("items", "nums", "values", "xs"))
    values = [random.randint(1, 20) for _ in range(random.randint(3, 5))]
    i, j = random.sample(range(len(values)), 2)
    yield f"{items} = {values}"
    if random.random() < 0.3:
        yield f"{items}.append({_number(random)})"
    choices = (
        f"sum({items})",
        f"max({items}) - min({items})",
        f"{items}[{i}] {random.choice('+-*')} {items}[{j}]",
        f"len({items}) * {items}[{i}]",
        f"{items}[-{random.randint(1, 2)}]",
        f"sorted({items})",
        f"{items}[{random.randint(0, 1)}:{random.randint(2, 3)}]",
    )
    yield f"print({random.choice(choices)})"


def _string(random: Random) -> Iterable[str]:
    name, word = random.choice(("name", "s", "text", "word")), random.choice(_WORDS)
    yield f'{name} = "{word}"'
    choices = (
        f"len({name}) {random.choice('+*')} {random.randint(2, 9)}",
        f'{name}.count("{random.choice(word)}")',
        f"{name}[{random.randint(0, 1)}:{random.randint(2, 4)}]",
        f"{name}[0] + {name}[-{random.randint(1, 2)}]",
        f"{name}.upper()",
        f"{name} * {random.randint(2, 3)}",
        f'{name}.replace("{random.choice(word)}", "{random.choice("aeiou")}")',
    )
    yield f"print({random.choice(choices)})"


def _number(random: Random, low: int = 2, high: int = 20) -> str:
    return str(random.randint(low, high))


def _operation(random: Random, left: str, right: str) -> str:
    """Return `left op right`; a compound left side gets parentheses."""
    op = random.choice(("+", "-", "*", "//", "%", "+", "-", "*"))
    return f"({left}) {op} {right}" if " " in left and not left.startswith("(") else f"{left} {op} {right}"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of program.

    Attributes:
        level: Difficulty of predicting the output, 1 to 4.
        hint: Name in a prompt: "Use …".
        make: Function of a `Random` that yields the lines of a program.
    """

    level: int
    hint: str
    make: Callable[[Random], Iterable[str]]


KINDS: Mapping[str, Kind] = {
    "arithmetic": Kind(1, "arithmetic", _arithmetic),
    "variables": Kind(2, "variables", _variables),
    "for_loop": Kind(3, "a for loop", _for_loop),
    "while_loop": Kind(3, "a while loop", _while_loop),
    "branch": Kind(3, "an if statement", _branch),
    "function": Kind(4, "a function", _function),
    "list": Kind(4, "a list", _list),
    "string": Kind(4, "a string", _string),
}
"""Every kind, easiest first."""

LEVELS = max(kind.level for kind in KINDS.values())


def kinds_of(level: int) -> tuple[str, ...]:
    """Return the kinds of a level."""
    return tuple(name for name, kind in KINDS.items() if kind.level == level)
