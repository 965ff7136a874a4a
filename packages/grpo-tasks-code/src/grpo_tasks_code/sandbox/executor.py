"""What runs programs, here or elsewhere, and what can be done with any of it: many at once, and without blocking."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import Protocol

from grpo_tasks_code.sandbox.arguments import (
    DEFAULT_MEMORY_MIB,
    DEFAULT_OUTPUT_BYTES,
    DEFAULT_TESTS_TIMEOUT_S,
    DEFAULT_TIMEOUT_S,
    MAX_WORKERS,
    check_whole,
)
from grpo_tasks_code.sandbox.execution import Execution, Level, Policy, TestResult

MAX_WAITING = 64
"""Programs of an event loop that are run, or wait for a turn, at once; more wait in the loop's queue."""


class Cancellation:
    """Lets one thread end the program that another waits for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._end: Callable[[], None] | None = None
        self._is_cancelled = False

    def cancel(self) -> None:
        """End the program now, or as soon as it starts."""
        with self._lock:
            self._is_cancelled = True
            if self._end is not None:
                self._end()

    @contextlib.contextmanager
    def ends(self, end: Callable[[], None]) -> Iterator[None]:
        """Within the block, cancelling calls a function."""
        with self._lock:
            self._end = end
            if self._is_cancelled:
                end()
        try:
            yield
        finally:
            with self._lock:
                self._end = None


class Executor(Protocol):
    """Runs programs: a `Sandbox` on this machine, or a client of one elsewhere.

    A program of whatever content gets an `Execution`, never an exception. What the executor itself fails at has the
    status `sandbox_error`, which is no statement about the program.

    Attributes:
        workers: How many programs it runs at once.
    """

    workers: int

    @property
    def level(self) -> Level:
        """The isolation that programs have, with what it guarantees and why it was chosen.

        Raises:
            SandboxUnavailableError: there is none that is allowed.
        """

    def run(
        self,
        code: str,
        stdin: str = "",
        timeout_s: float = DEFAULT_TIMEOUT_S,
        memory_mib: int = DEFAULT_MEMORY_MIB,
        *,
        policy: Policy | None = None,
        output_limit_bytes: int = DEFAULT_OUTPUT_BYTES,
        machine_state: int = 0,
        cancellation: Cancellation | None = None,
    ) -> Execution:
        """Run a program as a script and wait for its end.

        Args:
            code: The program.
            stdin: Its input.
            timeout_s: Seconds, by the clock and on the processor; neither waiting for a turn nor starting counts.
            memory_mib: What it may allocate.
            policy: `restricted` has RestrictedPython compile it: a subset of the language.
            output_limit_bytes: Of stdout, and of stderr.
            machine_state: 0 to 7: the hash seed, in processes of their own, whose memory lies elsewhere. What a program
                prints in every state depends on its text and its input alone.
            cancellation: Ends it from another thread; its status is then `killed`.

        Raises:
            UserError: an argument that cannot be meant; whatever the program is, it gets a verdict.
            SandboxUnavailableError: there is no isolation that is allowed.
        """

    def run_tests(
        self,
        code: str,
        tests: Sequence[str],
        timeout_s: float = DEFAULT_TESTS_TIMEOUT_S,
        *,
        setup: str = "",
        entry_point: str | None = None,
        memory_mib: int = DEFAULT_MEMORY_MIB,
    ) -> TestResult:
        """Run a program against tests that it never sees.

        The program's process is asked for the values of calls. What they must be is known only outside of it, where
        plain data is compared, so nothing that the program prints, patches, overrides or exits with decides a test.

        Args:
            code: The program; it runs as an imported module does.
            tests: `assert …` statements; with an entry point, sources that define `check(candidate)`.
            timeout_s: Seconds of the program for all tests together.
            setup: Statements before the tests (MBPP's `test_setup_code`); the program can use its imports and classes.
            entry_point: The function that `check` gets (HumanEval).
            memory_mib: What the program may allocate.

        Raises:
            UserError: tests that are not Python, or assert nothing, or an argument that cannot be meant.
            SandboxUnavailableError: there is no isolation that is allowed.
        """

    def reserve(self, workers: int) -> None:
        """Be ready to run so many programs at once, if that is more than `workers`; some have nothing to do for it."""
        return

    def run_many(
        self,
        codes: Sequence[str],
        *,
        stdin: str = "",
        timeout_s: float = DEFAULT_TIMEOUT_S,
        memory_mib: int = DEFAULT_MEMORY_MIB,
        workers: int | None = None,
        policy: Policy | None = None,
        output_limit_bytes: int = DEFAULT_OUTPUT_BYTES,
    ) -> list[Execution]:
        """Run programs, `workers` at a time; the executions are in their order. The rest is as in `run`."""
        check_whole("workers", self.workers if workers is None else workers, 1, MAX_WORKERS)
        if workers is not None:
            self.reserve(workers)
        cancellations = [Cancellation() for _ in codes]
        futures: list[Future[Execution]] = []
        with ThreadPoolExecutor(workers or self.workers, thread_name_prefix="sandbox") as threads:
            try:
                for code, cancellation in zip(codes, cancellations, strict=True):
                    call = functools.partial(
                        self.run, policy=policy, output_limit_bytes=output_limit_bytes, cancellation=cancellation
                    )
                    futures.append(threads.submit(call, code, stdin, timeout_s, memory_mib))
                return [future.result() for future in futures]
            except BaseException:  # an interrupt, or an argument that cannot be meant: nobody waits for the rest
                for future in futures:
                    future.cancel()
                for cancellation in cancellations:
                    cancellation.cancel()
                raise

    async def arun(
        self,
        code: str,
        stdin: str = "",
        timeout_s: float = DEFAULT_TIMEOUT_S,
        memory_mib: int = DEFAULT_MEMORY_MIB,
        *,
        policy: Policy | None = None,
        output_limit_bytes: int = DEFAULT_OUTPUT_BYTES,
    ) -> Execution:
        """Like `run`, without blocking the event loop; when this is cancelled, so is the program."""
        import asyncio  # 30 ms that most processes never need

        cancellation = Cancellation()
        call = functools.partial(
            self.run,
            code,
            stdin,
            timeout_s,
            memory_mib,
            policy=policy,
            output_limit_bytes=output_limit_bytes,
            cancellation=cancellation,
        )
        try:
            return await asyncio.get_running_loop().run_in_executor(_waiting_threads(), call)
        except asyncio.CancelledError:
            cancellation.cancel()
            raise


@lru_cache
def _waiting_threads() -> ThreadPoolExecutor:
    """Threads of our own: programs that wait for a turn must not keep the event loop's from its other work."""
    return ThreadPoolExecutor(MAX_WAITING, thread_name_prefix="sandbox")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_waiting_threads.cache_clear)
