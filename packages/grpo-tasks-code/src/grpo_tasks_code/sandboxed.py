"""The sandbox as the tasks use it: a failure of the sandbox is an `InfrastructureError`, never a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal, Required, TypedDict, Unpack

from grpo_sdk import InfrastructureError
from grpo_tasks_code.sandbox import Execution, RunOptions, TestResult, TestStatus, level, run, run_tests
from grpo_tasks_code.sandbox.results import readable

Outcome = Literal["output", "silent", "syntax_error", "runtime_error", "timeout"]
"""How a program ended: with output, with nothing but white space, or by a failure."""

MIN_MEMORY_MIB = 64
"""With less, Python itself does not start."""


def run_program(
    program: str, stdin: str = "", *, timeout_s: float, memory_mib: int, **options: Unpack[RunOptions]
) -> Execution:
    """Run a program; the options are as in `Executor.run`.

    Raises:
        InfrastructureError: the sandbox failed or there is none; the program has no verdict.
    """
    execution = run(program, stdin, timeout_s, memory_mib, **options)
    _check(execution)
    return execution


class _Options(TypedDict, total=False):
    """Options of `run_against_tests`, as in `Executor.run_tests`."""

    timeout_s: Required[float]
    memory_mib: Required[int]
    setup: str
    entry_point: str | None


def run_against_tests(
    program: str, tests: Sequence[str], *, reference: str | None = None, **options: Unpack[_Options]
) -> TestResult:
    """Run hidden tests on a program.

    A test of which no check ran passes only if the reference program runs none of its checks either.

    Raises:
        InfrastructureError: as in `run_program`.
    """
    result = run_tests(program, list(tests), **options)
    _check(result.execution)
    if "sandbox_error" in result.statuses:
        raise InfrastructureError("the sandbox failed between two tests; nothing is known of the program")
    if reference is None or "unchecked" not in result.statuses:
        return result
    of_reference = _statuses_of(reference, tuple(tests), tuple(options.items()))
    pairs = list(zip(result.statuses, of_reference, strict=True))
    statuses: list[TestStatus] = ["passed" if pair == ("unchecked", "unchecked") else pair[0] for pair in pairs]
    per_test = [status == "passed" for status in statuses]
    return replace(result, passed=sum(per_test), per_test=per_test, statuses=statuses)


@lru_cache
def _statuses_of(reference: str, tests: tuple[str, ...], options: tuple[tuple[str, Any], ...]) -> Sequence[TestStatus]:
    return run_against_tests(reference, tests, **dict(options)).statuses


def outcome_of(execution: Execution) -> Outcome:
    """Return how a program ended. Output on stderr does not matter: warnings are no failure."""
    match execution.status:
        case "ok":
            return "output" if execution.stdout.strip() else "silent"
        case "syntax_error" | "timeout" as ended:
            return ended
        case _:  # an exception, a signal, or a limit on memory, output or system calls
            return "runtime_error"


def conditions() -> dict[str, str]:
    """Return the isolation on which every score of these tasks depends: level, guarantee and reason.

    Raises:
        InfrastructureError: no allowed level works here.
    """
    return {"sandbox": str(level())}


def _check(execution: Execution) -> None:
    if execution.status == "sandbox_error":
        raise InfrastructureError(f"the sandbox failed: {readable(execution.last_line or 'no reason given')}")
