import contextlib
import io
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from grpo_tasks_code.programs.faults import FAULTS, break_program
from grpo_tasks_code.programs.generator import KINDS, Program, canonical, generate


def programs(kind: str, count: int = 150) -> list[Program]:
    return [generate(Random(f"{kind}/{index}"), (kind,)) for index in range(count)]


def by_python(source: str) -> str:
    """What Python prints; only our own generated programs get here."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, "<generated>", "exec"), {})
    return printed.getvalue()


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
