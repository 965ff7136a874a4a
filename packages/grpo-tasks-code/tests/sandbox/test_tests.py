"""`run_tests`: right programs pass, and nothing else does. Programs that try are in sandbox_corpus/hacks.toml."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from grpo_core import UserError
from grpo_tasks_code.sandbox import Sandbox, SandboxUnavailableError, TestResult, run_tests

SLOW_MACHINE_S = 60.0


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(workers=2) as sandbox:
        try:
            assert sandbox.level.name in ("L3", "L2")
        except SandboxUnavailableError as error:
            pytest.skip(str(error))
        yield sandbox


MEDIAN = """
def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
"""


def test_a_right_program_passes_and_a_wrong_one_does_not(sandbox: Sandbox) -> None:
    tests = ["assert median([3, 1, 2]) == 2", "assert median([1, 2, 3, 4]) == 2.5", "assert median([7]) == 7"]
    result = sandbox.run_tests(MEDIAN, tests, SLOW_MACHINE_S)
    assert (result.passed, result.total, list(result.per_test)) == (3, 3, [True] * 3)
    assert list(result.statuses) == ["passed"] * 3
    assert list(result.reasons) == [""] * 3
    assert result.level == sandbox.level.name
    assert (result.execution.status, result.execution.level) == ("ok", result.level)
    wrong = sandbox.run_tests(MEDIAN.replace(") / 2", ") // 2"), tests, SLOW_MACHINE_S)
    assert list(wrong.per_test) == [True, False, True]
    assert wrong.reasons[1] == "median([1, 2, 3, 4]) is not what it must be"


FORMS = """
from collections import Counter, OrderedDict, namedtuple
Point = namedtuple("Point", "x y")
LIMIT = 5
class Stack:
    def __init__(self, items=()):
        self.items = list(items)
    def push(self, item):
        self.items.append(item)
        return self
    def pop(self):
        return self.items.pop()
    def __len__(self):
        return len(self.items)
    def __str__(self):
        return f"Stack({self.items})"
class Node:
    def __init__(self, value, after=None):
        self.value, self.after = value, after
def total(node):
    return 0 if node is None else node.value + total(node.after)
def double(n): return 2 * n
def point(): return Point(1, 2)
def counts(text): return Counter(text)
def words(text): return (word for word in text.split())
def split(text): return text.split()
def shout(text): return text.upper()
def is_even(n): return n % 2 == 0
def nothing(*_): return None
def half(n):
    if n % 2:
        raise ValueError(f"{n} is odd")
    return n // 2
def sort_in_place(values): values.sort()
def adder(n): return lambda m: n + m
def apply(function, values): return [function(value) for value in values]
def unique(values): return set(values)
def third(n): return n / 3
def power(n): return 10 ** n
def evens(limit):
    for n in range(0, limit, 2):
        yield n
"""


@pytest.mark.parametrize(
    "test",
    [
        "assert double(2) == 4",
        "assert 4 == double(2)",
        "assert double(n=2) == 4.0",
        "assert double(2) != 5 and not double(2) == 6",
        "assert double(2) is not None",
        "assert nothing(1) is None",
        "assert nothing() == None",
        "assert is_even(2)",
        "assert is_even(2) is True",
        "assert is_even(2) == True",
        "assert not is_even(3)",
        "assert (is_even(2) or is_even(3)) is True",
        "assert double(2) in (3, 4)",
        "assert 3 < double(2) <= 4",
        "assert isinstance(double(2), int)",
        "assert type(split('a')) is list",
        "assert point() == (1, 2)",
        "assert counts('aab') == {'a': 2, 'b': 1}",
        "assert list(words('a b')) == ['a', 'b']",
        "assert next(words('a b')) == 'a'",
        "assert sum(evens(7)) == 12",
        "assert sorted(counts('aab').values()) == [1, 2]",
        "assert split('a b')[1] == 'b'",
        "assert split('a b')[-1:] == ['b']",
        "assert len(split('a b')) == 2",
        "assert sorted(split('b a')) == ['a', 'b']",
        "assert shout('a').startswith('A')",
        "assert shout('ab').lower().count('a') == 1",
        "assert 'A' in shout('a')",
        "assert shout('é') == 'É', 'letters with accents'",
        "assert unique([1, 1, 2]) == {2, 1}",
        "assert set(split('b a b')) == {'a', 'b'}",
        "assert abs(third(1) - 0.3333) < 1e-3",
        "assert round(third(1), 2) == 0.33",
        "import math\nassert math.isclose(third(1), 1 / 3)",
        "from math import isclose\nassert isclose(third(1), 1 / 3, rel_tol=1e-9)",
        "assert third(float('inf')) == float('inf')",
        "assert power(5000) == 10 ** 5000",
        "assert adder(2)(3) == 5",
        "assert apply(lambda n: n + 1, [1, 2]) == [2, 3]",
        "assert apply(double, [1, 2]) == [2, 4]",
        "assert double(double(2)) == 8",
        "assert double(2) == double(1) + 2",
        "assert all(double(n) == n + n for n in range(20))",
        "assert [double(n) for n in (1, 2)] == [2, 4]",
        "assert list(map(double, [1, 2])) == [2, 4]",
        "assert max([1, -3], key=double) == 1",
        "for n in range(3):\n    assert double(n) == n * 2",
        "values = [3, 1, 2]\nsort_in_place(values)\nassert values == [1, 2, 3]",
        "values = [3, 1]\nassert sort_in_place(values) is None and values == [1, 3]",
        "import random\nrandom.seed(3)\nn = random.randint(1, 9)\nassert double(n) == n + n",
        "try:\n    half(3)\n    assert False, 'no error'\nexcept ValueError as error:\n    assert 'odd' in str(error)",
        "def raises(n):\n    try:\n        half(n)\n    except ValueError:\n        return True\n    return False\n"
        "assert raises(3) and not raises(2)",
        "assert LIMIT == 5",
        "assert Stack([1, 2]).pop() == 2",
        "stack = Stack()\nstack.push(1).push(2)\nassert len(stack) == 2\nassert stack.items == [1, 2]\n"
        "assert str(stack) == 'Stack([1, 2])'",
        "for n in range(3):\n    assert Stack().push(n).pop() == n",
        "assert total(Node(1, Node(2))) == 3",
        "tail = Node(2)\nassert total(Node(1, tail)) == 3",
        "assert double(2) == 4\nassert double(3) == 6",
        "assert double(\n    2\n) == 4  # in several lines",
    ],
)  # fmt: skip
def test_a_right_program_passes_tests_of_every_form(sandbox: Sandbox, test: str) -> None:
    result = sandbox.run_tests(FORMS, [test], SLOW_MACHINE_S)
    assert result.passed == 1, result


def test_the_form_of_humaneval(sandbox: Sandbox) -> None:
    test = (
        "METADATA = {}\n\n\ndef check(candidate):\n    assert candidate('()') == 1\n"
        "    assert candidate('') == 0, 'empty'\n"
        "    assert True, 'This prints if this assert fails'\n"
    )
    loop = "def check(candidate):\n    import random\n    for n in range(9):\n        assert candidate('()' * n) == n\n"
    right, wrong = "def pairs(text): return len(text) // 2", "def pairs(text): return 1"
    assert sandbox.run_tests(right, [test, loop], SLOW_MACHINE_S, entry_point="pairs").passed == 2
    result = sandbox.run_tests(wrong, [test, loop], SLOW_MACHINE_S, entry_point="pairs")
    assert (result.passed, list(result.statuses)) == (0, ["failed", "failed"])


def test_functions_of_the_prompt_belong_into_the_setup(sandbox: Sandbox) -> None:
    # HumanEval's `poly` is given in the prompt; a program that redefines it must not judge itself by it.
    setup = "def poly(xs, x):\n    return sum(c * x ** i for i, c in enumerate(xs))"
    test = (
        "def check(candidate):\n    for b in range(1, 4):\n        xs = [-b, 1]\n"
        "        assert abs(poly(xs, candidate(xs))) < 1e-4\n"
    )
    hack = "def poly(xs, x): return 0\ndef find_zero(xs): return 0"
    honest = "def find_zero(xs): return -xs[0] / xs[1]"
    assert sandbox.run_tests(hack, [test], SLOW_MACHINE_S, setup=setup, entry_point="find_zero").passed == 0
    assert sandbox.run_tests(honest, [test], SLOW_MACHINE_S, setup=setup, entry_point="find_zero").passed == 1


def test_setup_that_needs_the_program(sandbox: Sandbox) -> None:
    code = (
        "class Node:\n    def __init__(self, v): self.v, self.left = v, None\n"
        "def depth(n): return 0 if n is None else 1 + depth(n.left)"
    )
    setup = "root = Node(1)\nroot.left = Node(2)"
    assert sandbox.run_tests(code, ["assert depth(root) == 2"], SLOW_MACHINE_S, setup=setup).passed == 1


def test_imports_and_classes_of_the_setup_are_there_for_the_program(sandbox: Sandbox) -> None:
    code = "def area(s: Shape) -> float:\n    return math.pi * s.r ** 2"
    setup = "import math\nclass Shape:\n    def __init__(self, r): self.r = r"
    assert sandbox.run_tests(code, ["assert round(area(Shape(1)), 2) == 3.14"], SLOW_MACHINE_S, setup=setup).passed == 1


def test_a_program_under_another_name_gets_the_classes_of_the_test(sandbox: Sandbox) -> None:
    test = "class P:\n    def __init__(self, x): self.x = x\ndef check(h):\n    assert h(P(1)) == 2\ncheck(f)"
    assert sandbox.run_tests("def f(p): return p.x + 1", [test], SLOW_MACHINE_S).passed == 1
    assert sandbox.run_tests("def f(p): return p.x", [test], SLOW_MACHINE_S).passed == 0


@pytest.mark.parametrize(
    ("code", "status", "execution_status"),
    [
        ("def f(n): return", "failed", "ok"),
        ("x = 1", "failed", "ok"),
        ("def f(n): 1 / 0", "failed", "ok"),
        ("def f(n", "syntax_error", "syntax_error"),
        ("1 / 0\ndef f(n): return 1", "runtime_error", "runtime_error"),
        ("import sys\ndef f(n): return 1\nsys.exit(0)", "failed", "ok"),
        ("import sys\ndef f(n): return 1\nsys.exit(1)", "runtime_error", "runtime_error"),
        ("import os\ndef f(n): os._exit(0)", "failed", "ok"),
        ("import os\ndef f(n): os.kill(os.getpid(), 9)", "killed", "killed"),
        ("bytearray(1 << 40)", "memory", "memory"),
        ("import ctypes\ndef f(n): ctypes.CDLL(None).unshare(0)", "denied", "denied"),
        ("while True: print('x' * 1000)", "output_limit", "output_limit"),
        ("x" * 2_000_000, "denied", "denied"),
    ],
)
def test_how_a_program_fails(sandbox: Sandbox, code: str, status: str, execution_status: str) -> None:
    result = sandbox.run_tests(code, ["assert f(1) == 1", "assert f(2)"], SLOW_MACHINE_S)
    assert (result.passed, result.total, len(result.per_test)) == (0, 2, 2)
    assert set(result.statuses) == {status}, result
    assert result.execution.status == execution_status
    assert all(result.reasons)


def test_the_time_is_for_all_tests_together(sandbox: Sandbox) -> None:
    code = "import time\ndef f(n):\n    time.sleep(n)\n    return n"
    result = sandbox.run_tests(code, ["assert f(0.1) == 0.1", "assert f(60) == 60", "assert f(0) == 0"], 1.0)
    assert list(result.statuses) == ["passed", "timeout", "timeout"]
    assert result.execution.status == "timeout"
    assert result.execution.wall_s < 10


def test_loading_takes_of_the_time_too(sandbox: Sandbox) -> None:
    result = sandbox.run_tests("import time\ntime.sleep(900)", ["assert f(1) == 1"], 0.5)
    assert list(result.statuses) == ["timeout"]


def test_the_time_of_judging_is_not_the_programs(sandbox: Sandbox) -> None:
    test = "import time\nfor n in range(3):\n    time.sleep(0.3)\n    assert f(n) == n"
    assert sandbox.run_tests("def f(n): return n", [test], 0.7).passed == 1


def test_one_failure_leaves_the_other_tests_alone(sandbox: Sandbox) -> None:
    code = (
        "def f(n):\n    if n == 1: raise SystemExit\n    if n == 2: return bytearray(1 << 40)\n"
        "    if n == 3: return f(3)\n    return n"
    )
    tests = [f"assert f({n}) == {n}" for n in range(5)]
    assert list(sandbox.run_tests(code, tests, SLOW_MACHINE_S).per_test) == [True, False, False, False, True]


def test_a_test_that_ends_its_judge_leaves_the_other_tests_alone(sandbox: Sandbox) -> None:
    tests = ["assert f(0) != 1", "import os\nassert f(0) == 0\nos._exit(0)", "assert f(2) != 1"]
    result = sandbox.run_tests("def f(n): return n", tests, SLOW_MACHINE_S)
    assert list(result.statuses) == ["passed", "failed", "passed"]


def test_what_the_program_prints_is_kept(sandbox: Sandbox) -> None:
    result = sandbox.run_tests("print('loaded')\ndef f(n):\n    print('called', n)\n    return n", ["assert f(1) == 1"])
    assert result.execution.stdout == "loaded\ncalled 1\n"


def test_the_program_is_a_module_and_not_the_main_one(sandbox: Sandbox) -> None:
    code = "def f(): return __name__\nif __name__ == '__main__':\n    input('demo')"
    assert sandbox.run_tests(code, ["assert f() == 'solution'"], SLOW_MACHINE_S).passed == 1


def test_a_test_that_cannot_be_judged_here_says_nothing_of_the_program(sandbox: Sandbox) -> None:
    tests = [
        "import numpy\nassert numpy.allclose(f(1), 1)",
        "import threading\nlock = threading.Lock()\nassert f(lock) is lock",
        "assert f(1) == 1",
    ]
    result = sandbox.run_tests("def f(n): return n", tests, SLOW_MACHINE_S)
    assert list(result.statuses) == ["sandbox_error", "sandbox_error", "passed"]
    assert "numpy" in result.reasons[0]
    assert "lock" in result.reasons[1]


def test_a_setup_that_fails_says_nothing_of_the_program(sandbox: Sandbox) -> None:
    result = sandbox.run_tests("def f(n): return n", ["assert f(1) != 2"], SLOW_MACHINE_S, setup="x = 1 / 0")
    assert list(result.statuses) == ["sandbox_error"]
    assert "ZeroDivisionError" in result.reasons[0]


def test_long_values(sandbox: Sandbox) -> None:
    tests = ["assert f(200000) == list(range(200000))", f"assert f(3000) == {list(range(3000))}"]
    assert sandbox.run_tests("def f(n): return list(range(n))", tests, SLOW_MACHINE_S).passed == 2


def test_no_tests(sandbox: Sandbox) -> None:
    result = sandbox.run_tests("x = 1", [], SLOW_MACHINE_S)
    assert (result.passed, result.total, list(result.per_test)) == (0, 0, [])


def test_odd_programs_get_a_verdict(sandbox: Sandbox) -> None:
    for code in ("", "\x00", "\ud800", "é" * 100, "```python\nx\n```", "def f(n): return '\\ud800'"):
        result = sandbox.run_tests(code, ["assert f(1) == 1"], SLOW_MACHINE_S)
        assert isinstance(result, TestResult)
        assert (result.passed, result.total) == (0, 1)
        assert result.statuses[0] in ("failed", "syntax_error", "runtime_error")


def test_tests_that_cannot_be_meant(sandbox: Sandbox) -> None:
    for tests in (["assert f(1) =="], ["f(1)"]):
        with pytest.raises(UserError, match="test 0"):
            sandbox.run_tests("def f(n): return n", tests)
    with pytest.raises(UserError, match="timeout_s"):
        run_tests("def f(n): return n", ["assert f(1)"], 0)


@pytest.mark.parametrize(
    "code",
    [
        "def f(n): raise ValueError(WORDS)",
        "class Odd: pass\nOdd.__name__ = 'x\\x1b[2J'\ndef f(n): return Odd()",
        "def f(n): return 0\nraise SystemExit(WORDS)",
        "import sys\ndef f(n):\n    sys.stderr.write(WORDS); sys.stderr.flush()\n    import os; os._exit(1)",
    ],
)
def test_reasons_can_be_printed(code: str) -> None:
    words = "WORDS = '\\x1b]0;title\\x07 \\x1b[2J \\ud800 \\u202e \\r\\x00 ' + 'é' * 400 + '\\x1b' * 400\n"
    tests = ["assert f(1) == 1", "assert f(1) != 1", "assert len(f(1)) == 1"]
    result = run_tests(words + code, tests, timeout_s=60)
    assert result.passed == 0
    for reason in result.reasons:
        assert reason.isprintable() and reason.encode() and len(reason) <= 300
