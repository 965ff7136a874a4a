"""How tests are taken apart: what the program is asked, and what it never sees."""

import pytest

from grpo_sdk import UserError
from grpo_tasks_code.sandbox.host.plan import Judged, Pair, plan_of


def way_of(test: str, setup: str = "", entry_point: str | None = None) -> tuple[Pair, ...] | Judged:
    (way,) = plan_of([test], setup, entry_point).tests
    return way


def judged(test: str, setup: str = "", entry_point: str | None = None) -> Judged:
    way = way_of(test, setup, entry_point)
    assert isinstance(way, Judged)
    return way


TWO_CASES = (
    "METADATA = {'author': 'x'}\n\n\ndef check(candidate):\n    assert candidate(1) == 2\n"
    "    assert candidate(2) == 3, 'two'\n    assert True, 'good for debugging'\n"
)


@pytest.mark.parametrize(("test", "entry_point", "pairs"), [
    ("assert f([1], key='a') == {'x': (1, -2.5)}", None, [("f([1], key='a')", {"x": (1, -2.5)})]),
    ("assert (f(1)) == (1,), 'message'", None, [("f(1)", (1,))]),
    ("assert sum([1, 2]) == 3", None, [("sum([1, 2])", 3)]),  # named like a builtin
    (TWO_CASES, "increment", [("increment(1)", 2), ("increment(2)", 3)]),
])  # fmt: skip
def test_a_call_of_literals_and_a_literal_are_compared_here(
    test: str, entry_point: str | None, pairs: list[tuple[str, object]]
) -> None:
    way = way_of(test, "", entry_point)
    assert isinstance(way, tuple)
    assert [(pair.question, pair.expected) for pair in way] == pairs
    assert {pair.function for pair in way} == {pairs[0][0].partition("(")[0]}


@pytest.mark.parametrize(("definition", "is_shared"), [
    ("class Own:\n    def __init__(self, value): self.value = value", True),
    ("@dataclass\nclass Own:\n    x: int = 0\n    tags: list = field(default_factory=list)", True),
    ("class Own:\n    __slots__ = ('a',)", True),
    ("class Own:\n    rows: list = [(1, 2)]\n    def __init__(self): self.n = 1", False),
    ("class Own:\n    def solve(self, n): return n + 1", False),
    ("class Own:\n    def __init__(self): assert True", False),
])  # fmt: skip
def test_a_class_without_answers_is_the_programs_too(definition: str, is_shared: bool) -> None:
    setup = f"from dataclasses import dataclass, field\nfrom enum import Enum\n{definition}"
    assert plan_of(["assert f(1) == 2"], setup, None).shared == (("Own",) if is_shared else ())


def test_setup_that_uses_the_program_is_the_judges() -> None:
    setup = "root = Node(1)\nroot.left = Node(2)\nvalue = 5"
    plan = plan_of(["assert height(root) == 2", "assert height(None) == value"], setup, None)
    assert (plan.before, plan.setup.strip()) == ("", setup)
    assert (plan.names, plan.classes) == (("Node", "height"), ("Node",))
    # Each test runs after it, also one that could do without a judge.
    assert judged("assert f(1) == 2", "configure(3)")


@pytest.mark.parametrize(("test", "names"), [
    ("def helper(node: Tree, f=g) -> List[int]:\n    local = h(node)\n    return [*local]\nassert helper(1)", "gh"),
    ("class Case:\n    def area(self): return area(3)\nassert Case().area() == 9", ["area"]),
    ("try:\n    k(1)\nexcept Odd as error:\n    assert str(error)", ["Odd", "k"]),
    ("assert math.isclose(f(1), 2.5)", "f"),
    ("assert math.double(2) == 4", ["math"]),  # an object of the program's that has a module's name
])  # fmt: skip
def test_names_that_are_the_programs(test: str, names: str | list[str]) -> None:
    plan = plan_of([test], "", None)
    assert plan.names == tuple(names)
    assert plan.exceptions == (("Odd",) if "Odd" in names else ())
    assert not any(isinstance(way, Judged) and "__value__('Odd')" in way.source for way in plan.tests)
    assert plan.setup == ("import math\n" if "isclose" in test else "")


@pytest.mark.parametrize(("test", "message"), [
    ("assert f(3).equals(9)", "asks the program whether its answer is right"),
    ("assert eval(f(3)) == 9", "runs what the program returns"),
    ("f('a')\nwith open('a') as file:\n    assert pickle.load(file) == [1]", "runs what the program returns"),
    ("x = f([1])\nassert pickle.loads(x) == [1]", "runs what the program returns"),
    ("class Own:\n    data = [1]\nassert g(f(key=Own)) == 1", "object of the test's class Own"),
    ("def g():\n    class Own: pass\n    x = Own()\n    assert f(x) == 1\ng()", "object of the test's class Own"),
    ("import os\nos.environ['A'] = '1'\nassert f() == '1'", "does not see what becomes of os.environ"),
    ("class Own(Vector):\n    pass\nassert Own(1).x == 1", "inherits from the program's Vector"),
])  # fmt: skip
def test_a_test_that_leaves_it_to_the_program_is_refused(test: str, message: str) -> None:
    with pytest.raises(UserError, match=f"test 0 cannot be judged.*{message}"):
        plan_of([test], "", None)


@pytest.mark.parametrize(("tests", "options", "message"), [
    (["assert f(1) =="], {}, "test 0 is not Python"),
    (["assert f(1) == 1", "f(2)"], {}, "test 1 asserts nothing"),
    (["assert (f(1) == 2, 'one')"], {}, "asserts nothing"),
    (["assert f(1) == 1", "assert True"], {}, "test 1 asserts nothing"),
    (["f(2)"], {"setup": "def near(a):\n    assert a == 1"}, r"add the call of near\(a\), which nothing calls"),
    (["def check(candidate):\n    assert candidate(1) == 2"], {}, r"add the call of check\(candidate\)"),
    (["async def test_f():\n    assert await f(1) == 2"], {}, r"add the call of test_f\(\)"),
    (["assert f(1) == 1"], {"setup": "import"}, "setup is not Python"),
    (["assert f(1) == 1"], {"entry_point": "f"}, "def check"),
    (["def check(): assert True"], {"entry_point": "f"}, "def check"),
    (["def check(c): assert c"], {"entry_point": "f()"}, "not the name"),
])  # fmt: skip
def test_tests_that_cannot_be_meant(tests: list[str], options: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        plan_of(tests, options.get("setup", ""), options.get("entry_point"))


@pytest.mark.parametrize(("test", "setup"), [
    # What is no call of literals,
    ("assert f(1)", ""),
    ("assert f(g(1)) == 'a'", ""),
    # what may be data,
    ("bag = Bag()\nbag.put(2)\nassert bag is not None", ""),
    ("assert 'a'.equals is None or f(1) == 1", ""),
    # and an assertion counts where it runs.
    ("near(f(1), 2)", "def near(a, b):\n    assert abs(a - b) < 0.1"),
    ("class Case:\n    def run(self):\n        assert f(1) == 2\nCase().run()", ""),
    ("class Two:\n    def __eq__(self, other):\n        assert other == 2\nf(1) == Two()", ""),
    ("def check(n):\n    assert f(n) == n\nlist(map(check, range(3)))", ""),
    ("def main():\n    assert f(1) == 2\nif __name__ == '__main__':\n    main()", ""),
])  # fmt: skip
def test_what_is_judged(test: str, setup: str) -> None:
    assert judged(test, setup)


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
    way = judged(test)
    assert way.shared == ("Base", "Thing")
    assert "Reference" not in way.before and "Case" not in way.before
    assert "class Thing" not in way.source and "class Reference" in way.source


@pytest.mark.parametrize("test", [
    "things = [Own(n) for n in (1, 2)]\nassert f(things) == 3",
    "def make(n):\n    return Own(n)\nassert f(make(1)) == 1",
    "def check(thing, n):\n    assert f(thing) == n\ncheck(Own(1), 1)",
    "head = Own(1)\nhead.next = Own(2)\nassert f(head) == 3",
    "def check(n, *, h):\n    assert h(Own(n)) == 1\ndef all(k):\n    check(1, h=k)\nall(f)",
    "g = f\nassert g(Own(1)) == 1",
])  # fmt: skip
def test_what_is_handed_on(test: str) -> None:
    with pytest.raises(UserError, match="object of the test's class Own"):
        plan_of([f"class Own:\n    table = [1]\n{test}"], "", None)
    assert judged(f"class Own:\n    def __init__(self, n): self.n = n\n{test}").shared == ("Own",)
