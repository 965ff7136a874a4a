"""Run untrusted programs in isolation: `run`, `run_many`, `arun`, `run_tests`, `level`.

The functions share one `Sandbox` per process, or use the server that `GRPO_SANDBOX_URL` names. Make a `Sandbox` of your
own to choose its level or size.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache

from grpo_tasks_code.sandbox.arguments import (
    DEFAULT_MEMORY_MIB,
    DEFAULT_OUTPUT_BYTES,
    DEFAULT_TESTS_TIMEOUT_S,
    DEFAULT_TIMEOUT_S,
)
from grpo_tasks_code.sandbox.errors import SandboxUnavailableError
from grpo_tasks_code.sandbox.execution import Execution, Level, Policy, Status, TestResult, TestStatus
from grpo_tasks_code.sandbox.executor import Executor
from grpo_tasks_code.sandbox.host.local import Sandbox
from grpo_tasks_code.sandbox.host.plan import plan_of

__all__ = [
    "Execution",
    "Executor",
    "Level",
    "Policy",
    "Sandbox",
    "SandboxUnavailableError",
    "Status",
    "TestResult",
    "TestStatus",
    "arun",
    "check_tests",
    "default_executor",
    "level",
    "run",
    "run_many",
    "run_tests",
]


_SANDBOXES = {allow_weak: Sandbox(allow_weak=allow_weak) for allow_weak in (False, True)}
"""Shared sandboxes; they start no process before the first program."""


@lru_cache
def _remote(url: str, token: str) -> Executor:
    from grpo_tasks_code.sandbox.remote import HttpExecutor

    return HttpExecutor(url, token)


def default_executor(*, allow_weak: bool = False) -> Executor:
    """Return the executor of this process: the shared `Sandbox`, or a client of the server `GRPO_SANDBOX_URL` names.

    Args:
        allow_weak: Accept level L1, which protects from accidents only.

    Raises:
        UserError: the variable is not an address.
    """
    url = os.environ.get("GRPO_SANDBOX_URL")
    return _remote(url, os.environ.get("GRPO_SANDBOX_TOKEN", "")) if url else _SANDBOXES[allow_weak]


def run(
    code: str,
    stdin: str = "",
    timeout_s: float = DEFAULT_TIMEOUT_S,
    memory_mib: int = DEFAULT_MEMORY_MIB,
    *,
    policy: Policy | None = None,
    allow_weak: bool = False,
    output_limit_bytes: int = DEFAULT_OUTPUT_BYTES,
    machine_state: int = 0,
) -> Execution:
    """Run a program and wait for it to end.

    Args:
        code: Python source.
        stdin: Its input.
        timeout_s: Limit of the program, by the clock and of processor time.
        memory_mib: Limit of its memory.
        policy: What is compiled; None is all of Python.
        allow_weak: Accept level L1, which protects from accidents only.
        output_limit_bytes: Limit of stdout, and of stderr.
        machine_state: Hash seed, 0 to 7; output that is the same in each depends on program and input alone.
    """
    return default_executor(allow_weak=allow_weak).run(
        code,
        stdin,
        timeout_s,
        memory_mib,
        policy=policy,
        output_limit_bytes=output_limit_bytes,
        machine_state=machine_state,
    )


def run_many(
    codes: Sequence[str],
    *,
    stdin: str = "",
    timeout_s: float = DEFAULT_TIMEOUT_S,
    memory_mib: int = DEFAULT_MEMORY_MIB,
    workers: int | None = None,
    policy: Policy | None = None,
    allow_weak: bool = False,
    output_limit_bytes: int = DEFAULT_OUTPUT_BYTES,
) -> list[Execution]:
    """Run programs, several at a time.

    Args:
        codes: Python sources.
        stdin: Input of each.
        timeout_s: Limit of each, by the clock and of processor time.
        memory_mib: Limit of the memory of each.
        workers: Programs at a time; None is the size of the sandbox.
        policy: What is compiled; None is all of Python.
        allow_weak: Accept level L1, which protects from accidents only.
        output_limit_bytes: Limit of stdout, and of stderr.
    """
    return default_executor(allow_weak=allow_weak).run_many(
        codes,
        stdin=stdin,
        timeout_s=timeout_s,
        memory_mib=memory_mib,
        workers=workers,
        policy=policy,
        output_limit_bytes=output_limit_bytes,
    )


async def arun(
    code: str,
    stdin: str = "",
    timeout_s: float = DEFAULT_TIMEOUT_S,
    memory_mib: int = DEFAULT_MEMORY_MIB,
    *,
    policy: Policy | None = None,
    allow_weak: bool = False,
    output_limit_bytes: int = DEFAULT_OUTPUT_BYTES,
) -> Execution:
    """Like `run`, without blocking the event loop.

    Args:
        code: Python source.
        stdin: Its input.
        timeout_s: Limit of the program, by the clock and of processor time.
        memory_mib: Limit of its memory.
        policy: What is compiled; None is all of Python.
        allow_weak: Accept level L1, which protects from accidents only.
        output_limit_bytes: Limit of stdout, and of stderr.
    """
    return await default_executor(allow_weak=allow_weak).arun(
        code, stdin, timeout_s, memory_mib, policy=policy, output_limit_bytes=output_limit_bytes
    )


def run_tests(
    code: str,
    tests: Sequence[str],
    timeout_s: float = DEFAULT_TESTS_TIMEOUT_S,
    *,
    setup: str = "",
    entry_point: str | None = None,
    memory_mib: int = DEFAULT_MEMORY_MIB,
    allow_weak: bool = False,
) -> TestResult:
    """Run hidden tests on a program; see docs/explanation/sandbox.md for what a test may do.

    Args:
        code: Python source of the program.
        tests: Sources with assertions, one for each test.
        timeout_s: Limit of the program for all tests together.
        setup: Source that runs before each test, beside the program.
        entry_point: Name of the function that `check(candidate)` of the tests receives.
        memory_mib: Limit of the program's memory.
        allow_weak: Accept level L1, which protects from accidents only.
    """
    return default_executor(allow_weak=allow_weak).run_tests(
        code, tests, timeout_s, setup=setup, entry_point=entry_point, memory_mib=memory_mib
    )


def check_tests(tests: Sequence[str], *, setup: str = "", entry_point: str | None = None) -> None:
    """Check that `run_tests` can decide these tests; call it when data is read.

    Args:
        tests: Sources with assertions, one for each test.
        setup: Source that runs before each test.
        entry_point: Name of the function that `check(candidate)` of the tests receives.

    Raises:
        UserError: a test is not Python, asserts nothing, or lets the program decide whether it passes.
    """
    plan_of(tests, setup, entry_point)


def level(*, allow_weak: bool = False) -> Level:
    """Return the isolation level in use, with its guarantee and the reason for choosing it.

    Args:
        allow_weak: Accept level L1, which protects from accidents only.

    Raises:
        SandboxUnavailableError: no allowed level works here; says what is missing and what to do.
    """
    return default_executor(allow_weak=allow_weak).level
