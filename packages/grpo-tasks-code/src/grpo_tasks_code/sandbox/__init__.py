"""Run untrusted programs in isolation: `run`, `run_many`, `arun`, `run_tests`, `level`.

The functions share one `Sandbox` per process, or use the server that `GRPO_SANDBOX_URL` names. Make a `Sandbox` of your
own to choose its level or size.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from typing import Unpack

from grpo_tasks_code.sandbox.arguments import DEFAULT_MEMORY_MIB, DEFAULT_TESTS_TIMEOUT_S, DEFAULT_TIMEOUT_S
from grpo_tasks_code.sandbox.errors import SandboxUnavailableError
from grpo_tasks_code.sandbox.executor import Executor, ManyOptions, RunOptions
from grpo_tasks_code.sandbox.host.local import Sandbox
from grpo_tasks_code.sandbox.host.plan import plan_of
from grpo_tasks_code.sandbox.results import Execution, Level, Policy, Status, TestResult, TestStatus

__all__ = [
    "Execution",
    "Executor",
    "Level",
    "ManyOptions",
    "Policy",
    "RunOptions",
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
    allow_weak: bool = False,
    **options: Unpack[RunOptions],
) -> Execution:
    """Run a program and wait for it to end.

    Args:
        code: Python source.
        stdin: Its input.
        timeout_s: Limit of the program, by the clock and of processor time.
        memory_mib: Limit of its memory.
        allow_weak: Accept level L1, which protects from accidents only.
        options: See `RunOptions`.
    """
    return default_executor(allow_weak=allow_weak).run(code, stdin, timeout_s, memory_mib, **options)


def run_many(
    codes: Sequence[str], *, workers: int | None = None, allow_weak: bool = False, **options: Unpack[ManyOptions]
) -> list[Execution]:
    """Run programs, several at a time.

    Args:
        codes: Python sources.
        workers: Programs at a time; None is the size of the sandbox.
        allow_weak: Accept level L1, which protects from accidents only.
        options: See `ManyOptions`.
    """
    return default_executor(allow_weak=allow_weak).run_many(codes, workers=workers, **options)


async def arun(
    code: str,
    stdin: str = "",
    timeout_s: float = DEFAULT_TIMEOUT_S,
    memory_mib: int = DEFAULT_MEMORY_MIB,
    *,
    allow_weak: bool = False,
    **options: Unpack[RunOptions],
) -> Execution:
    """Like `run`, without blocking the event loop.

    Args:
        code: Python source.
        stdin: Its input.
        timeout_s: Limit of the program, by the clock and of processor time.
        memory_mib: Limit of its memory.
        allow_weak: Accept level L1, which protects from accidents only.
        options: See `RunOptions`.
    """
    return await default_executor(allow_weak=allow_weak).arun(code, stdin, timeout_s, memory_mib, **options)


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
