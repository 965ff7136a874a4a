from __future__ import annotations

import subprocess
import sys

import pytest

from grpo_core import InfrastructureError
from grpo_tasks_code import rewards, sandboxed
from grpo_tasks_code.sandbox import Execution

FIBONACCI = "```python\ndef fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\n```"
TESTS = ["assert fib(1) == 1", "assert fib(7) == 13", "assert fib(10) == 55"]


@pytest.mark.parametrize(
    ("completion", "value"),
    [
        ("```python\nprint('hello')\n```", 1.0),
        ("print('no block')", 1.0),
        ("```python\nimport sys\nprint('x', file=sys.stderr)\nprint(1)\n```", 1.0),  # stderr on exit 0 is no failure
        ("```python\nx = 1\n```", 0.5),
        ("```python\n# nothing\n```", 0.5),
        ("```python\nprint()\n```", 0.5),  # white space is no output
        ("```python\nprint('hello'\n```", -0.5),
        ("```python\nif True:\nprint(1)\n```", -0.5),  # IndentationError
        ("Sure! I would print hello.", -0.5),  # prose is no Python
        ("```python\nprint(1 / 0)\n```", -1.0),
        ("```python\nprint(1)\nraise SyntaxError\n```", -1.0),  # at run time: no syntax error
        ("```python\nprint(1)\nimport sys\nsys.exit(3)\n```", -1.0),
        ("```python\nwhile True: pass\n```", -1.0),
        ("", -1.0),
        ("```python\n\n```", -1.0),
    ],
)
def test_the_ladder_of_execution(completion: str, value: float) -> None:
    assert rewards.execution(completion, timeout_s=1.0) == value


def test_the_rungs_can_be_set() -> None:
    completion = "```python\nx = 1\n```"
    assert rewards.execution(completion, success_no_output=0.25) == 0.25
    assert rewards.execution("x(", syntax_error=-0.1) == -0.1
    assert rewards.execution("while 1: pass", timeout_s=0.5, timeout_error=-0.7) == -0.7


def test_prints() -> None:
    doubled = "print(2 * int(input()))"
    assert rewards.prints(doubled, "14", stdin="7\n") == 1.0
    assert rewards.prints(doubled, " 14\n", stdin="7\n") == 1.0
    assert rewards.prints(doubled, "15", stdin="7\n") == 0.0
    assert rewards.prints("print(14)\nraise SystemExit(1)", "14") == 0.0
    assert rewards.prints("", "") == 0.0


def test_passed_tests() -> None:
    assert rewards.passed_tests(FIBONACCI, TESTS) == 1.0
    assert rewards.passed_all_tests(FIBONACCI, TESTS) == 1.0
    wrong = FIBONACCI.replace("n - 2", "n - 1")  # fib(1) is 1 all the same
    assert rewards.passed_tests(wrong, TESTS) == pytest.approx(1 / 3)
    assert rewards.passed_all_tests(wrong, TESTS) == 0.0
    assert rewards.passed_tests("", TESTS) == rewards.passed_all_tests("", TESTS) == 0.0
    assert rewards.passed_tests("def fib(:", TESTS) == 0.0


@pytest.mark.parametrize(
    "test",
    [
        "def test_seven():\n    assert fib(7) == 13",
        "def check(n, value):\n    assert fib(n) == value\nif __name__ == '__main__':\n    check(7, 13)",
    ],
)
def test_a_test_runs_as_pytest_or_python_would_run_it(test: str) -> None:
    assert rewards.passed_tests(FIBONACCI, [test]) == 1.0
    assert rewards.passed_tests("def fib(n):\n    return n", [test]) == rewards.passed_tests("x = 1", [test]) == 0.0


def test_setup_runs_before_the_tests() -> None:
    assert rewards.passed_tests(FIBONACCI, ["assert fib(seven) == 13"], setup="seven = 7") == 1.0


def test_a_failing_sandbox_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Execution("sandbox_error", "", "Traceback\nOSError: no space", 0.0, 0.0, "L2")
    monkeypatch.setattr(sandboxed, "run", lambda *args, **options: broken)
    with pytest.raises(InfrastructureError, match="OSError: no space"):
        rewards.execution("print(1)")


def test_they_import_nothing_heavy_and_no_trainer() -> None:
    probe = (
        "import sys\nfrom grpo_tasks_code.rewards import execution\nassert execution('print(1)') == 1.0\n"
        "print(sorted({'torch', 'transformers', 'datasets', 'numpy'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
