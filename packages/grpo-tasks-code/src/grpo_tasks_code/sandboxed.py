"""The sandbox as the tasks use it: what says nothing about a program is an `InfrastructureError`, never a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from grpo_core import InfrastructureError
from grpo_tasks_code.sandbox import Execution, TestResult, level, run, run_tests
from grpo_tasks_code.sandbox.execution import readable

Outcome = Literal["output", "silent", "syntax_error", "runtime_error", "timeout"]
"""How a program ended: it ran and printed something, or nothing but white space, or it did not run to its end."""

MIN_MEMORY_MIB = 64
"""Below this Python itself does not start."""


def run_program(
    program: str, stdin: str = "", *, timeout_s: float, memory_mib: int, machine_state: int = 0
) -> Execution:
    """Run a program; `machine_state` as of `Executor.run`.

    Raises:
        InfrastructureError: the sandbox failed or there is none; nothing is known of the program.
    """
    execution = run(program, stdin, timeout_s=timeout_s, memory_mib=memory_mib, machine_state=machine_state)
    _check(execution)
    return execution


def run_against_tests(
    program: str,
    tests: Sequence[str],
    *,
    timeout_s: float,
    memory_mib: int,
    setup: str = "",
    entry_point: str | None = None,
) -> TestResult:
    """Run a program against tests that it cannot see.

    Raises:
        InfrastructureError: as in `run_program`.
    """
    result = run_tests(program, list(tests), timeout_s, setup=setup, entry_point=entry_point, memory_mib=memory_mib)
    _check(result.execution)
    if "sandbox_error" in result.statuses:
        raise InfrastructureError("the sandbox failed between two tests; nothing is known of the program")
    return result


def outcome_of(execution: Execution) -> Outcome:
    """How a program ended. What it writes to stderr decides nothing: warnings are no failure."""
    match execution.status:
        case "ok":
            return "output" if execution.stdout.strip() else "silent"
        case "syntax_error" | "timeout" as ended:
            return ended
        case _:  # an exception, a signal, or a limit on memory, output or system calls
            return "runtime_error"


def conditions() -> dict[str, str]:
    """The isolation that every score of these tasks depends on: its level, what that guarantees, why it was chosen.

    Raises:
        InfrastructureError: there is no level that is allowed here.
    """
    isolation = level()
    return {"sandbox": f"{isolation.name} {isolation.title}: {isolation.guarantee} ({isolation.reason})"}


def _check(execution: Execution) -> None:
    if execution.status == "sandbox_error":
        reason = execution.stderr.strip().splitlines()[-1:] or ["no reason given"]
        raise InfrastructureError(f"the sandbox failed: {readable(reason[0])}")
