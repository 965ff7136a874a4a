import contextlib
import io
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from grpo_tasks_code.programs.faults import FAULTS, break_program
from grpo_tasks_code.programs.generator import KINDS, Program, canonical, generate
from grpo_tasks_code.programs.interpreter import Refused, output_of


def programs(kind: str, count: int = 150) -> list[Program]:
    return [generate(Random(f"{kind}/{index}"), (kind,)) for index in range(count)]


def by_python(source: str) -> str:
    """What Python prints; only our own generated programs get here."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, "<generated>", "exec"), {})
    return printed.getvalue()


@pytest.mark.parametrize(("source", "output"), [
    ("a, b = 1, 2\na, b = b, a + b\nprint(a, b)", "2 3\n"),
    ("for i in range(9):\n    if i == 3:\n        break\n    print(i)", "0\n1\n2\n"),
    ("n = 5\nwhile n > 0:\n    n -= 2\n    if n == 1:\n        break\nprint(n)", "1\n"),
    ("x = 'ab'\nfor c in x:\n    print(c.upper() + x[-1])", "Ab\nBb\n"),
    ("xs = [3, 1]\nxs.append(2)\nprint(sorted(xs)[::2], xs.pop(), 2 in xs)", "[1, 3] 2 False\n"),
    ("def f(n):\n    if n < 2:\n        return n\n    return f(n - 1) + f(n - 2)\nprint(f(9))", "34\n"),
    ("def f():\n    print('in')\nprint(f())", "in\nNone\n"),
    ("print(-7 // 2, -7 % 3, len('abc') * 2)", "-4 2 6\n"),
    ("", ""),
])  # fmt: skip
def test_the_corner_of_python(source: str, output: str) -> None:
    assert output_of(source) == output == by_python(source)


@pytest.mark.parametrize("source", [
    "print(1 / 2)",
    "import os",
    "print(open('x'))",
    "print(1 // 0)",
    "print('a' + 1)",
    "while 1 > 0:\n    x = 1",
    "x = 1\nfor i in range(99):\n    x = x * 9",
    "print('a' * 1000000000000)",
    "def f(n):\n    return f(n + 1)\nprint(f(0))",
    "break",
    "return 1",
    "print((1).__class__)",
    "a, b = 1, 2, 3",
])  # fmt: skip
def test_what_it_does_not_know_or_cannot_bound_it_refuses(source: str) -> None:
    with pytest.raises(Refused):
        output_of(source)


@pytest.mark.parametrize("kind", KINDS)
def test_programs_print_what_python_prints_and_vary(kind: str) -> None:
    made = programs(kind)
    for program in made:
        assert by_python(program.source) == program.output + "\n", program
    assert programs(kind, 5) == made[:5]
    assert len({canonical(program.source) for program in made}) > 100
    ((_, most_frequent),) = Counter(program.output for program in made).most_common(1)
    assert most_frequent < 45  # of 150: a constant guess is mostly wrong


def test_limits_are_kept() -> None:
    for index in range(200):
        program = generate(Random(index), tuple(KINDS), max_chars=90, largest=99, only_integers=True)
        assert len(program.source) <= 90 and abs(int(program.output)) <= 99


def test_names_do_not_make_another_program() -> None:
    one = "def f(n):\n    return n + 1\nx = 3\nprint(f(x))"
    other = "def g(y):\n    return y + 1\nk = 3\nprint(g(k))"
    assert canonical(one) == canonical(other)
    assert canonical(one) != canonical(one.replace("3", "4"))
    # Two names are not one: x and y are told apart.
    assert canonical("x = 1\ny = 2\nprint(x)") != canonical("x = 1\ny = 2\nprint(y)")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_program_never_runs_with_output(fault: Callable[[Random, str], str]) -> None:
    broken = 0
    for index in range(120):
        random = Random(f"{fault.__name__}/{index}")
        source = generate(random, tuple(KINDS)).source
        assert break_program(random, source) != source
        wrong = fault(random, source)
        if wrong == source:
            continue
        broken += 1
        printed = ""
        with contextlib.suppress(Exception):  # of any kind: it is broken
            printed = by_python(wrong)
        assert not printed, wrong
    assert broken >= 20
