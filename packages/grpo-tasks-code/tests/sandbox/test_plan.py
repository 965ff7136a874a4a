"""How tests are taken apart: what the program is asked, and what it never sees."""

from __future__ import annotations

import pytest

from grpo_core import UserError
from grpo_tasks_code.sandbox.host.plan import Judged, Pair, plan_of


def way_of(test: str, setup: str = "") -> tuple[Pair, ...] | Judged:
    (way,) = plan_of([test], setup, None).tests
    return way


def pairs_of(test: str) -> list[tuple[str, object]]:
    way = way_of(test)
    assert isinstance(way, tuple)
    return [(pair.question, pair.expected) for pair in way]


def judged(test: str, setup: str = "") -> str:
    way = way_of(test, setup)
    assert isinstance(way, Judged)
    return way.source


@pytest.mark.parametrize(
    ("test", "question", "expected"),
    [
        ("assert f(1, 2) == 3", "f(1, 2)", 3),
        ("assert 3 == f(1, 2)", "f(1, 2)", 3),
        ("assert f([1, 2], key='a') == {'x': (1, -2.5)}", "f([1, 2], key='a')", {"x": (1, -2.5)}),
        ("assert (f(1)) == (1,), 'message'", "f(1)", (1,)),
    ],
)
def test_a_call_of_literals_and_a_literal_are_compared_here(test: str, question: str, expected: object) -> None:
    assert pairs_of(test) == [(question, expected)]


def test_what_is_sent_for_a_comparison() -> None:
    (way,) = plan_of(["assert f([1, 2], key='a') == 3"], "", None).tests
    assert isinstance(way, tuple)
    assert (way[0].function, way[0].keywords) == ("f", ("key",))
    assert way[0].arguments == [[["list", [1, 2]], "a"], []]


@pytest.mark.parametrize(
    ("test", "source"),
    [
        ("assert f(1)", "assert f(1)"),
        ("assert f(1) is True", "assert f(1) is True"),
        ("assert len(f(1)) == 2", "assert len(f(1)) == 2"),
        ("assert f('a').startswith('b')", "assert f('a').startswith('b')"),
        ("assert f(g(1)) == 'a'", "assert f(g(1)) == 'a'"),
        ("assert Solution().two_sum([1]) == [0]", "assert Solution().two_sum([1]) == [0]"),
        ("assert f(*[1]) == 3", "assert f(*[1]) == 3"),
        # A name of the program's that is not called is asked for.
        ("assert f(1) == LIMIT", "assert f(1) == __value__('LIMIT')"),
        ("assert list(map(f, [1])) == [1]", "assert list(map(__value__('f'), [1])) == [1]"),
        ("assert config.limit == 5", "assert config.limit == 5"),
        ("try:\n    f(1)\nexcept Odd:\n    assert True", "try:\n    __in_place__(f)(1)\nexcept Odd:\n    assert True"),
        # What the program does to an argument is seen by what asks for it, and by nothing else.
        (
            "x = [2, 1]\nf(x)\nassert x == [1, 2]",
            "x = [2, 1]\n__in_place__(f)(x)\nassert __end__(__begin__(), not not x == [1, 2])",
        ),
        (
            "assert f(x) is None and x[0] == 1\nx = 3",
            "assert __in_place__(f)(x) is None and __end__(__begin__(), not not x[0] == 1)\nx = 3",
        ),
        (
            "x = [2, 1]\nn = f(x)\nassert x[:n] == [1]",
            "x = [2, 1]\nn = f(x)\nassert __end__(__begin__(), not not x[:n] == [1])",
        ),
        ("x = [2, 1]\ny = f(x)\nassert y == sorted(x)", "x = [2, 1]\ny = f(x)\nassert y == sorted(x)"),
        ("x = [2, 1]\ni = f(x)\nassert x[i] == max(x)", "x = [2, 1]\ni = f(x)\nassert x[i] == max(x)"),
        (
            "def g(x):\n    return f(x)\nassert g(1) == 2 and (not g(2))",
            "def g(x):\n    return f(x)\nassert g(1) == 2 and (not g(2))",
        ),
    ],
)
def test_the_rest_is_judged(test: str, source: str) -> None:
    assert judged(test) == source


def test_what_the_program_gets_before_it_is_called() -> None:
    setup = """
import math
class Node:
    pass
class Reference:
    def solve(self, n):
        return n + 1
class Cases:
    WANT = [1]
def reference(n):
    return n + 1
EXPECTED = {1: 2}
"""
    plan = plan_of(
        ["assert f(1) == reference(1)", "assert f(1) == EXPECTED[1]", "assert math.isclose(f(1), 2)"], setup, None
    )
    assert plan.before == "import math\nclass Node:\n    pass"
    assert plan.shared == ("Node",)
    assert "reference" in plan.setup and "EXPECTED" in plan.setup and "WANT" in plan.setup
    assert plan.names == ("f",)


def test_classes_that_the_program_has_too() -> None:
    setup = """
from dataclasses import dataclass, field
from enum import Enum
class ListNode:
    def __init__(self, value): self.value = value
class Tree:
    left = right = None
@dataclass
class Point:
    x: int = 0
    tags: list = field(default_factory=list)
class Color(Enum):
    RED = 1
class Odd(ValueError):
    pass
class Slots:
    __slots__ = ("a",)
class Table:
    rows: list = [(1, 2)]
class Limit:
    n: int = 42
class Checked:
    def __init__(self): assert True
"""
    plan = plan_of(["assert f(1) == 2"], setup, None)
    assert plan.shared == ("ListNode", "Tree", "Point", "Color", "Odd", "Slots")


def test_setup_that_uses_the_program_is_the_judges() -> None:
    setup = "root = Node(1)\nroot.left = Node(2)\nvalue = 5"
    plan = plan_of(["assert height(root) == 2", "assert height(None) == value"], setup, None)
    assert plan.before == ""
    assert plan.setup.strip() == setup
    assert plan.names == ("Node", "height")
    assert plan.classes == ("Node",)
    # Each test runs after it, also one that could do without a judge.
    assert isinstance(way_of("assert f(1) == 2", "configure(3)"), Judged)


def test_a_module_that_only_the_program_imports_is_the_judges() -> None:
    plan = plan_of(["assert math.isclose(f(1), 2.5)", "assert f(2) == sys.getsizeof(2)"], "", None)
    assert (plan.setup, plan.before, plan.names) == ("import math\nimport sys\n", "", ("f",))
    # An object of the program's that has a module's name.
    assert plan_of(["assert math.double(2) == 4"], "", None).names == ("math",)


def test_names_that_are_the_programs() -> None:
    tests = [
        "def helper(node: Tree, f=g) -> List[int]:\n    local = h(node)\n    return [*local]\nassert helper(1)",
        "class Case:\n    def area(self): return area(3)\nassert Case().area() == 9",
        "try:\n    k(1)\nexcept Odd as error:\n    assert str(error)",
    ]
    plan = plan_of(tests, "", None)
    assert plan.names == ("Odd", "area", "g", "h", "k")
    assert plan.exceptions == ("Odd",)


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("assert f(3).equals(9)", "asks the program whether its answer is right"),
        ("got = f(3)\nassert got.is_equal([9])", "asks the program"),
        ("assert Vector(1).x == 1\nassert Vector(1) == Vector(1)", "object of the program's class Vector"),
        ("a = Vector(1)\na.scale(2)\nassert a == Vector(2)", "compares an object"),
        ("bag = Bag()\nbag.put(2)\nassert 2 in bag", "object of the program's class Bag"),
        ("a, b = Vector(1), Vector(2)\nassert (a + b).x == 3\nassert a + b == Vector(3)", "class Vector"),
        ("a = Vector(1)\nassert a.x == 1 and a < f(2)", "object of the program's class Vector"),
        ("class Own:\n    data = [1]\nassert f(Own()) == 1", "object of the test's class Own"),
        ("class Own:\n    data = [1]\nassert g(f(key=Own)) == 1", "object of the test's class Own"),
        ("def g():\n    class Own: pass\n    x = Own()\n    assert f(x) == 1\ng()", "object of the test's class Own"),
        ("class Own(Vector):\n    pass\nassert Own(1).x == 1", "inherits from the program's Vector"),
    ],
)
def test_a_test_that_leaves_it_to_the_program_is_refused(test: str, message: str) -> None:
    with pytest.raises(UserError, match=f"test 0 cannot be judged.*{message}"):
        plan_of([test], "", None)


@pytest.mark.parametrize(
    "test",
    [
        "assert Find_Max([1]) == 1",
        "largest = Find_Max([1])\nassert largest == 1",
        "bag = Bag()\nbag.put(2)\nassert bag is not None",
        "assert 'a'.equals is None or f(1) == 1",
    ],
)
def test_what_may_be_data_is_not_refused(test: str) -> None:
    plan_of([test], "", None)


def test_the_form_of_humaneval() -> None:
    test = (
        "METADATA = {'author': 'x'}\n\n\ndef check(candidate):\n    assert candidate(1) == 2\n"
        "    assert candidate(2) == 3, 'two'\n    assert True, 'good for debugging'\n"
    )
    plan = plan_of([test], "", "increment")
    assert [[(p.question, p.expected) for p in way] for way in plan.tests if isinstance(way, tuple)] == [
        [("increment(1)", 2), ("increment(2)", 3)]
    ]
    loop = "def check(candidate):\n    for n in range(3):\n        assert candidate(n) == n + 1\n"
    (way,) = plan_of([loop], "", "increment").tests
    assert isinstance(way, Judged)
    assert way.source == "for n in range(3):\n    assert increment(n) == n + 1"


def test_a_check_that_returns_is_called() -> None:
    (way,) = plan_of(
        ["def check(candidate):\n    if candidate(1) == 2:\n        return\n    assert False\n"], "", "f"
    ).tests
    assert isinstance(way, Judged)
    assert way.source.endswith("__in_place__(check)(__value__('f'))")


def test_a_function_named_like_a_builtin() -> None:
    plan = plan_of(["assert sum([1, 2]) == 3"], "", None)
    assert plan.names == ("sum",)
    assert pairs_of("assert sum([1, 2]) == 3") == [("sum([1, 2])", 3)]
    assert plan_of(["assert sum(f(1)) == 3"], "", None).names == ("f",)


@pytest.mark.parametrize(
    ("tests", "options", "message"),
    [
        (["assert f(1) =="], {}, "test 0 is not Python"),
        (["assert f(1) == 1", "f(2)"], {}, "test 1 asserts nothing"),
        (["def near(a):\n    assert a == 1\nnear(f(1))", "f(2)"], {}, "test 1 asserts nothing"),
        (["f(2)"], {"setup": "def near(a):\n    assert a == 1"}, r"add the call of near\(a\), which nothing calls"),
        (["def check(candidate):\n    assert candidate(1) == 2"], {}, r"add the call of check\(candidate\)"),
        (["def test_f(x, y=1):\n    assert f(x) == 2"], {}, r"add the call of test_f\(x, y=1\)"),
        (["async def test_f():\n    assert await f(1) == 2"], {}, r"add the call of test_f\(\)"),
        (["class TestF:\n    def test_f(self):\n        assert f(1) == 2\nTestF()"], {}, r"test_f\(self\)"),
        (["def a():\n    b()\ndef b():\n    assert f(1) == 2"], {}, r"add the call of b\(\)"),
        (["assert f(1) == 1\0"], {}, "test 0 is not Python"),
        (["assert f(1) == 1"], {"setup": "import"}, "setup is not Python"),
        (["assert f(1) == 1"], {"entry_point": "f"}, "def check"),
        (["def check(): assert True"], {"entry_point": "f"}, "def check"),
        (["def check(c): assert c"], {"entry_point": "f()"}, "not the name"),
    ],
)
def test_tests_that_cannot_be_meant(tests: list[str], options: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        plan_of(tests, options.get("setup", ""), options.get("entry_point"))


@pytest.mark.parametrize(
    ("test", "setup"),
    [
        ("for n in range(3):\n    with suppress(KeyError):\n        assert f(n) == n", ""),
        ("near(f(1), 2)", "def near(a, b):\n    assert abs(a - b) < 0.1"),
        ("a()", "def a():\n    b()\ndef b():\n    assert f(1) == 2"),
        ("class Case:\n    def run(self):\n        assert f(1) == 2\nCase().run()", ""),
        ("class Two:\n    def __eq__(self, other):\n        assert other == 2\nf(1) == Two()", ""),
        ("def check(n):\n    assert f(n) == n\nlist(map(check, range(3)))", ""),
        ("def main():\n    assert f(1) == 2\nif __name__ == '__main__':\n    main()", ""),
    ],
)
def test_an_assertion_counts_where_it_runs(test: str, setup: str) -> None:
    assert judged(test, setup)


def test_functions_that_pytest_would_call_are_called() -> None:
    test = "def test_a():\n    assert f(1) == 2\ndef test_b(n=2):\n    check(n)\ndef check(n):\n    assert f(n) == n"
    assert judged(test).endswith("assert f(n) == n\ntest_a()\ntest_b()")
    assert judged(f"{test}\ntest_a()").endswith("assert f(n) == n\ntest_a()\ntest_b()")


def test_no_tests() -> None:
    assert plan_of([], "", None).tests == ()


def test_the_program_gets_no_class_of_a_test_that_it_is_not_handed() -> None:
    test = """
from enum import Enum
class Base:
    def __init__(self): self.n = 1
class Thing(Base):
    def __init__(self, n): self.n = n
class Reference:
    def __init__(self): self.table = {1: 42}
    def solve(self, n): return self.table[n]
    def sample(self): return 1
class Case:
    def __init__(self, n, want): self.n, self.want = n, want
cases, reference, things = [Case(1, 42)], Reference(), []
things.append(Thing(3))
n = reference.sample()
for case in cases:
    assert f(case.n, things) == case.want
assert f(n, [*things]) == reference.solve(n)
"""
    way = plan_of([test], "", None).tests[0]
    assert isinstance(way, Judged)
    assert way.shared == ("Base", "Thing")
    assert "Reference" not in way.before and "Case" not in way.before
    assert "class Thing" not in way.source and "class Reference" in way.source


@pytest.mark.parametrize(
    "test",
    [
        "things = [Own(n) for n in (1, 2)]\nassert f(things) == 3",
        "for each in (Own(1), Own(2)):\n    assert f(each) == 1",
        "def make(n):\n    return Own(n)\nassert f(make(1)) == 1",
        "def check(thing, n):\n    assert f(thing) == n\ncheck(Own(1), 1)",
        "head = Own(1)\nhead.next = Own(2)\nassert f(head) == 3",
        "assert f({'a': Own(1)}, *[Own(2)]) == 3",
        "assert Solver(1).solve(x=Own(1)) == 3",
        "T = Own\nassert f(T) == 3",
        "def check(h):\n    assert h(Own(1)) == 1\ncheck(f)",
        "def check(n, *, h):\n    assert h(Own(n)) == 1\ndef all(k):\n    check(1, h=k)\nall(f)",
        "g = f\nassert g(Own(1)) == 1",
    ],
)
def test_what_is_handed_on(test: str) -> None:
    data = "class Own:\n    table = [1]\n"
    with pytest.raises(UserError, match="object of the test's class Own"):
        plan_of([data + test], "", None)
    (way,) = plan_of(["class Own:\n    def __init__(self, n): self.n = n\n" + test], "", None).tests
    assert isinstance(way, Judged) and way.shared == ("Own",)
