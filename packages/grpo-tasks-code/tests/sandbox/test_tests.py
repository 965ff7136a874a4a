"""`run_tests`: right programs pass, and nothing else does.

Programs that try are in sandbox_corpus/hacks.toml, and more forms of tests in tests_of_honest_programs.toml.
"""

import pytest

from grpo_tasks_code.sandbox import level, run_tests
from grpo_tasks_code.sandboxed import run_against_tests

MEDIAN = """
def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
"""


def test_a_right_program_passes_and_a_wrong_one_does_not() -> None:
    tests = ["assert median([3, 1, 2]) == 2", "assert median([1, 2, 3, 4]) == 2.5", "assert median([7]) == 7"]
    result = run_tests(MEDIAN, tests)
    assert (result.passed, result.total, list(result.per_test)) == (3, 3, [True] * 3)
    assert (list(result.statuses), list(result.reasons)) == (["passed"] * 3, [""] * 3)
    assert (result.execution.status, result.execution.level, result.level) == ("ok", level().name, level().name)
    wrong = run_tests(MEDIAN.replace(") / 2", ") // 2"), tests)
    assert list(wrong.per_test) == [True, False, True]
    assert wrong.reasons[1] == "median([1, 2, 3, 4]) is 2, and must be 2.5"
    assert repr(result) == "3 of 3 tests passed"
    assert repr(wrong) == "2 of 3 tests passed; test 2: median([1, 2, 3, 4]) is 2, and must be 2.5"
    assert run_tests(MEDIAN, []).total == 0


def test_the_program_is_a_module_whose_classes_a_setup_may_use_and_returns_long_data() -> None:
    code = "class Node:\n    left = __name__\ndef f(n): return list(range(n))\nif __name__ == '__main__':\n    input()"
    tests = ["assert root.left == 2", "assert Node().left == 'solution'", "assert f(200000) == list(range(200000))"]
    assert run_tests(code, tests, setup="root = Node()\nroot.left = 2").passed == 3


@pytest.mark.parametrize(("code", "status", "execution_status"), [
    ("x = 1", "failed", "ok"),
    ("def f(n): 1 / 0", "failed", "ok"),
    ("def f(n", "syntax_error", "syntax_error"),
    ("1 / 0\ndef f(n): return 1", "runtime_error", "runtime_error"),
    ("import sys\ndef f(n): return 1\nsys.exit(0)", "failed", "ok"),
    ("import os\ndef f(n): os._exit(0)", "failed", "ok"),
    ("import os\ndef f(n): os.kill(os.getpid(), 9)", "killed", "killed"),
    ("while True: print('x' * 1000)", "output_limit", "output_limit"),
    ("x" * 2_000_000, "denied", "denied"),
])  # fmt: skip
def test_how_a_program_fails(code: str, status: str, execution_status: str) -> None:
    result = run_tests(code, ["assert f(1) == 1", "assert f(2)"])
    assert (result.passed, result.total, len(result.per_test)) == (0, 2, 2)
    assert set(result.statuses) == {status}, result
    assert result.execution.status == execution_status
    assert all(result.reasons)


@pytest.mark.parametrize(("test", "reason"), [
    ("assert f(2) == 'x' * 900", "f(2) is [2, 2], and must be 'x"),
    ("ys = f(1)\nassert ys == [1, 1, 1]", "ys is [1, 1], and must be [1, 1, 1]"),
    ("assert sum(f(2)) < 4", "sum(f(2)) < 4 does not hold"),
    ("assert f(2)[0] == 2\nassert not f(1)", "not f(1) does not hold"),
    ("assert f(2)[0] == 3, 'too small'", "too small"),
    ("class A:\n    def __repr__(self): return 1 / 0\nassert f(2) == A()", "f(2) is [2, 2], and must be an object"),
    ("import io, sys\nsys.stdout = o = io.StringIO()\nf(3)\nassert o.getvalue() == '4'", r"is '3\n', and must be '4'"),
    ("import io, sys\nsys.stdin = io.StringIO('7')\nassert f('in') == 8", "f('in') is '7', and must be 8"),
])  # fmt: skip
def test_what_came_and_what_was_expected_are_told_in_one_short_line(test: str, reason: str) -> None:
    code = "def f(n):\n    if n == 'in': return input()\n    print(n)\n    return [n, n]"
    result = run_tests(code, [test])
    assert result.statuses == ["failed"] and reason in result.reasons[0] and len(result.reasons[0]) < 300


def test_the_time_is_for_all_tests_together() -> None:
    code = "import time\ndef f(n):\n    time.sleep(n)\n    return n"
    result = run_tests(code, ["assert f(0.1) == 0.1", "assert f(60) == 60", "assert f(0) == 0"], 1.0)
    assert list(result.statuses) == ["passed", "timeout", "timeout"]
    assert result.execution.status == "timeout"
    assert result.execution.wall_s < 10
    loading = run_tests("import time\ntime.sleep(900)", ["assert f(1) == 1"], 0.5)
    assert list(loading.statuses) == ["timeout"]


def test_the_time_of_judging_is_not_the_programs() -> None:
    test = "import time\nfor n in range(3):\n    time.sleep(0.3)\n    assert f(n) == n"
    assert run_tests("def f(n): return n", [test], 0.7).passed == 1


def test_one_failure_leaves_the_other_tests_alone() -> None:
    code = (
        "def f(n):\n    if n == 1: raise SystemExit\n    if n == 2: return bytearray(1 << 40)\n"
        "    if n == 3: return f(3)\n    return n"
    )
    assert list(run_tests(code, [f"assert f({n}) == {n}" for n in range(5)]).per_test) == [True, *[False] * 3, True]
    tests = ["assert f(0) != 1", "import os\nassert f(0) == 0\nos._exit(0)", "assert f(4) != 1"]  # it ends its judge
    assert list(run_tests(code, tests).statuses) == ["passed", "failed", "passed"]


def test_what_the_program_prints_is_kept() -> None:
    result = run_tests("print('loaded')\ndef f(n):\n    print('called', n)\n    return n", ["assert f(1) == 1"])
    assert result.execution.stdout == "loaded\ncalled 1\n"


@pytest.mark.parametrize(("test", "setup", "reason"), [
    ("import torch\nassert torch.allclose(f(1), 1)", "", "torch"),
    ("import pytest\nwith pytest.warns(UserWarning):\n    assert f(1) == 1", "", "warns"),
    ("import threading\nlock = threading.Lock()\nassert f(lock) is lock", "", "lock"),
    ("assert f(1) != 2", "x = 1 / 0", "ZeroDivisionError"),
])  # fmt: skip
def test_what_cannot_be_judged_here_says_nothing_of_the_program(test: str, setup: str, reason: str) -> None:
    result = run_tests("def f(n): return n", [test, "assert f(1) == 1"], setup=setup)
    assert list(result.statuses) == ["sandbox_error", "passed"]
    assert reason in result.reasons[0]


@pytest.mark.parametrize(("test", "status"), [
    ("for x in f(4):\n    assert x > 0", "unchecked"),
    ("try:\n    assert f(4)[0] == 1\nexcept IndexError:\n    pass", "unchecked"),
    ("for x in f(4):\n    assert x > 0\nassert f(4) == []", "passed"),
    ("try:\n    f(4)[0]\n    assert False\nexcept IndexError:\n    pass", "passed"),
    ("if f(4):\n    raise AssertionError", "passed"),
])  # fmt: skip
def test_a_test_passes_only_if_one_of_its_checks_ran(test: str, status: str) -> None:
    assert list(run_tests("def f(n): return []", [test]).statuses) == [status]


def test_a_reference_program_that_runs_no_check_exempts_others() -> None:
    test = "for x in f(4):\n    assert x > 0"
    for reference, passed in (("def f(n): return []", 1), ("def f(n): return [n]", 0)):
        limits = {"timeout_s": 5.0, "memory_mib": 256}
        assert run_against_tests("def f(n): return []", [test], reference=reference, **limits).passed == passed


SAVE = "def save(path, text): open(path, 'w').write(text)\ndef load(path): return open(path).read()"
PLANT = "def f(): open('colorsys.py', 'w').write('rgb_to_hsv = lambda *_: 7')"


@pytest.mark.skipif(level().name != "L3", reason="only there programs have a folder")
@pytest.mark.parametrize(("code", "test", "passed"), [
    (SAVE, "save('a.txt', 'x')\nassert open('a.txt').read() == 'x'", 1),
    (SAVE, "import os, tempfile\np = tempfile.mkdtemp() + '/a'\nopen(p, 'w').write('x')\nassert load(p) == 'x'", 1),
    # The judge reads the program's files, and imports none of them.
    (PLANT, "import os\nf()\nimport colorsys\nassert colorsys.rgb_to_hsv(0, 0, 0) == 7", 0),
])  # fmt: skip
def test_files_of_the_working_folder_are_those_of_both(code: str, test: str, passed: int) -> None:
    assert run_tests(code, [test]).passed == passed


WORDS = "WORDS = '\\x1b]0;title\\x07 \\x1b[2J \\ud800 \\u202e \\r\\x00 ' + 'é' * 400 + '\\x1b' * 400\n"


@pytest.mark.parametrize("code", [
    "def f(n): raise ValueError(WORDS)",
    "class Odd: pass\nOdd.__name__ = 'x\\x1b[2J'\ndef f(n): return Odd()",
    "def f(n): return 0\nraise SystemExit(WORDS)",
    "import sys\ndef f(n):\n    sys.stderr.write(WORDS); sys.stderr.flush()\n    import os; os._exit(1)",
])  # fmt: skip
def test_reasons_can_be_printed(code: str) -> None:
    result = run_tests(WORDS + code, ["assert f(1) == 1", "assert f(1) != 1", "assert len(f(1)) == 1"])
    assert result.passed == 0
    for reason in result.reasons:
        assert reason.isprintable() and reason.encode() and len(reason) <= 300
