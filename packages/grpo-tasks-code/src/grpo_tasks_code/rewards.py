"""Reward functions over plain text, for tasks and for any other code; none of them imports torch.

Each takes the completion, extracts the program as `extraction.program_of` does, and runs it in the sandbox. When the
sandbox itself fails they raise `grpo_sdk.InfrastructureError`: the completion must then not be scored.
"""

from __future__ import annotations

from collections.abc import Sequence

from grpo_sdk import Invalid
from grpo_tasks_code.extraction import program_of
from grpo_tasks_code.sandbox import TestResult
from grpo_tasks_code.sandboxed import outcome_of, run_against_tests, run_program

__all__ = ["NO_PROGRAM", "execution", "passed_all_tests", "passed_tests", "prints"]

NO_PROGRAM = -1.0
"""Value in `execution` of a completion without a program (rl_coding_games: empty text)."""


def execution(
    completion: str,
    *,
    success_with_output: float = 1.0,
    success_no_output: float = 0.5,
    syntax_error: float = -0.5,
    runtime_error: float = -1.0,
    timeout_error: float = -1.0,
    timeout_s: float = 3.0,
    memory_mib: int = 512,
) -> float:
    """Return the value for how the program ends.

    Args:
        completion: Text of the model.
        success_with_output: Value for exit code 0 with more than white space on stdout; stderr does not matter.
        success_no_output: Value for exit code 0 without output.
        syntax_error: Value if Python cannot compile the program.
        runtime_error: Value for an exception, another exit code, a signal, or a limit on memory or output.
        timeout_error: Value if the program ran longer than `timeout_s`.
        timeout_s: Time limit in seconds.
        memory_mib: Memory limit in MiB.

    Raises:
        InfrastructureError: the sandbox failed.

    Examples:
        >>> from grpo_tasks_code.rewards import execution
        >>> execution("print(6 * 7)"), execution("print(6 *"), execution("1 / 0")
        (1.0, -0.5, -1.0)
    """
    try:
        program = program_of(completion)
    except Invalid:
        return NO_PROGRAM
    values = {
        "output": success_with_output,
        "silent": success_no_output,
        "syntax_error": syntax_error,
        "runtime_error": runtime_error,
        "timeout": timeout_error,
    }
    return values[outcome_of(run_program(program, timeout_s=timeout_s, memory_mib=memory_mib))]


def prints(completion: str, expected: str, *, stdin: str = "", timeout_s: float = 3.0, memory_mib: int = 512) -> float:
    """Return 1 if the program runs and prints `expected`, else 0.

    White space around the output and at the end of its lines does not matter, nor whether lines end with CRLF.

    Raises:
        InfrastructureError: the sandbox failed.

    Examples:
        >>> from grpo_tasks_code.rewards import prints
        >>> prints("print(int(input()) + 1)", "42", stdin="41"), prints("print(41)", "42")
        (1.0, 0.0)
    """
    try:
        program = program_of(completion)
    except Invalid:
        return 0.0
    result = run_program(program, stdin, timeout_s=timeout_s, memory_mib=memory_mib)
    return float(result.status == "ok" and _lines(result.stdout) == _lines(expected))


def _lines(output: str) -> list[str]:
    return [line.rstrip() for line in output.strip().split("\n")]


def passed_tests(
    completion: str, tests: Sequence[str], *, setup: str = "", timeout_s: float = 10.0, memory_mib: int = 512
) -> float:
    """Return the share of the tests that the program passes.

    Args:
        completion: Text of the model.
        tests: `assert …` statements, at least one; the program cannot see them.
        setup: Statements that run before the tests.
        timeout_s: Time limit in seconds of the program and all tests together.
        memory_mib: Memory limit in MiB.

    Raises:
        InfrastructureError: the sandbox failed.

    Examples:
        >>> from grpo_tasks_code.rewards import passed_tests
        >>> passed_tests("def double(n): return n + 2", ["assert double(2) == 4", "assert double(3) == 6"])
        0.5
    """
    result = _tested(completion, tests, setup, timeout_s, memory_mib)
    return result.passed / result.total if result and result.total else 0.0


def passed_all_tests(
    completion: str, tests: Sequence[str], *, setup: str = "", timeout_s: float = 10.0, memory_mib: int = 512
) -> float:
    """Return 1 if the program passes every test, else 0; arguments and errors as in `passed_tests`.

    Examples:
        >>> from grpo_tasks_code.rewards import passed_all_tests
        >>> passed_all_tests("def double(n): return 2 * n", ["assert double(2) == 4", "assert double(3) == 6"])
        1.0
    """
    result = _tested(completion, tests, setup, timeout_s, memory_mib)
    return float(result is not None and result.total > 0 and result.passed == result.total)


def _tested(completion: str, tests: Sequence[str], setup: str, timeout_s: float, memory_mib: int) -> TestResult | None:
    try:
        program = program_of(completion)
    except Invalid:
        return None
    return run_against_tests(program, tests, setup=setup, timeout_s=timeout_s, memory_mib=memory_mib)
