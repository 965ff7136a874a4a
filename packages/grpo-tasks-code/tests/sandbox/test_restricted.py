"""RestrictedPython as a policy, within a level."""

import sys
from collections.abc import Iterator

import pytest

from grpo_tasks_code.sandbox import Sandbox
from grpo_tasks_code.sandbox.inside import restricting

SLOW_MACHINE_S = 60.0


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """Of one level: the policy is the same at each."""
    with Sandbox(workers=2) as sandbox:
        yield sandbox


def test_an_ordinary_program_of_the_subset(sandbox: Sandbox) -> None:
    code = """
import math
from itertools import islice
def squares(limit):
    return [n * n for n in range(limit) if n % 2]
class Point:
    pass
total = 0
for n, (a, b) in enumerate([(1, 2), (3, 4)]):
    total += a * b
data = {"x": [1, 2]}
data["y"] = total
print(squares(6), total, data, math.isqrt(17), sorted({3, 1}), input(), end="!")
"""
    execution = sandbox.run(code, "given", SLOW_MACHINE_S, policy="restricted")
    assert (execution.status, execution.stdout) == ("ok", "[1, 9, 25] 14 {'x': [1, 2], 'y': 14} 4 [1, 3] given!")
    assert execution.level == sandbox.level.name


@pytest.mark.parametrize(("code", "status", "reason"), [
    ("().__class__.__bases__[0].__subclasses__()", "denied", "__class__"),
    ("x: int = 1", "denied", "AnnAssign"),
    ("exec('1')", "denied", "Exec"),
    ("def f():\n    global x\n    x = 2\nasync def g(): pass", "denied", "AsyncFunctionDef"),
    ("x = ", "syntax_error", ""),
    ("import os", "runtime_error", ""),
    ("import string\nstring.Formatter()", "runtime_error", ""),
    ("'{0.__class__}'.format(1)", "runtime_error", ""),
    ("print(getattr(1, '__class__'))", "runtime_error", ""),
])  # fmt: skip
def test_what_the_policy_refuses_is_denied(sandbox: Sandbox, code: str, status: str, reason: str) -> None:
    execution = sandbox.run(code, timeout_s=SLOW_MACHINE_S, policy="restricted")
    assert (execution.status, execution.stdout) == (status, "")
    assert reason in execution.stderr
    assert ("refused by the policy 'restricted'" in execution.stderr) == (status == "denied")


def test_it_is_off_by_default_and_runs_beside_the_others(sandbox: Sandbox) -> None:
    code = "x: int = 1\nprint(x)"
    assert sandbox.run(code, timeout_s=SLOW_MACHINE_S).stdout == "1\n"
    statuses = [each.status for each in sandbox.run_many([code] * 3, timeout_s=SLOW_MACHINE_S, policy="restricted")]
    assert statuses == ["denied"] * 3


@pytest.mark.parametrize("code", [
    "x = " + "+".join(["1"] * (900 if sys.version_info[:2] == (3, 12) else 1500)),  # whose bound nothing raises
    "x = " + "-" * 300 + "1",
    "x = " + "1 if 0 else " * 1000 + "2",
    "if 0: pass\n" + "elif 0: pass\n" * 1000,
])  # fmt: skip
def test_what_python_compiles_can_be_checked(sandbox: Sandbox, code: str) -> None:
    without = sandbox.run(code, timeout_s=SLOW_MACHINE_S)
    execution = sandbox.run(code, timeout_s=SLOW_MACHINE_S, policy="restricted")
    assert execution.status == without.status == "ok", execution.stderr[-300:]


@pytest.mark.parametrize("code", ["x = " + "+".join(["1"] * 100_000), "x = " + "-" * 100_000 + "1"])
def test_what_cannot_be_checked_is_the_programs_failure(sandbox: Sandbox, code: str) -> None:
    assert sandbox.run(code, timeout_s=SLOW_MACHINE_S, policy="restricted").status in ("syntax_error", "denied")


def test_a_checker_that_fails_has_not_allowed_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(text: str, file_name: str) -> object:
        raise NotImplementedError("a statement of tomorrow")

    monkeypatch.setattr(restricting, "compile_restricted_exec", fails)
    refusal = restricting.compile_policy("x = 1", "main.py")
    assert "it cannot be checked (NotImplementedError: a statement of tomorrow)" in str(refusal)
