"""`Executor`: runs programs here or elsewhere; one, many at once, or without blocking."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import TypedDict, Unpack

from grpo_tasks_code.sandbox import arguments
from grpo_tasks_code.sandbox.errors import SandboxUnavailableError, ServerError
from grpo_tasks_code.sandbox.host.interpreter import Interpreter
from grpo_tasks_code.sandbox.host.plan import Plan, plan_of
from grpo_tasks_code.sandbox.host.testing import undecided
from grpo_tasks_code.sandbox.results import Execution, Level, Policy, Status, TestResult

MAX_WAITING = 64
"""Most programs of an event loop that run or wait for a server at once; the others wait in the loop's queue."""


class Cancellation:
    """Lets one thread end the program that another thread waits for."""

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
        """Have `cancel` call a function within the block."""
        with self._lock:
            self._end = end
            if self._is_cancelled:
                end()
        try:
            yield
        finally:
            with self._lock:
                self._end = None


class RunOptions(TypedDict, total=False):
    """Options of a run; `Executor.run` describes each."""

    policy: Policy | None
    output_limit_bytes: int
    machine_state: int


class ManyOptions(RunOptions, total=False):
    """Options of several runs at a time."""

    stdin: str
    timeout_s: float
    memory_mib: int


class Executor:
    """Runs programs: a `Sandbox` on this machine, or a client of a sandbox elsewhere.

    Every program gets an `Execution`, never an exception. Failures of the executor itself have the status
    `sandbox_error`, which says nothing about the program.

    A subclass has `workers` and `level`, and either `run` and `run_tests`, or `_run` and `_run_tests`. These get
    checked arguments, and a `ServerError` that they raise becomes a `sandbox_error` with its message.

    Attributes:
        workers: Number of programs that run at once.
    """

    workers: int

    @property
    def level(self) -> Level:
        """Isolation level, with its guarantee and the reason for choosing it.

        Raises:
            SandboxUnavailableError: no allowed level works here.
        """
        raise NotImplementedError  # each kind of executor says

    def run(
        self,
        code: str,
        stdin: str = "",
        timeout_s: float = arguments.DEFAULT_TIMEOUT_S,
        memory_mib: int = arguments.DEFAULT_MEMORY_MIB,
        *,
        policy: Policy | None = None,
        output_limit_bytes: int = arguments.DEFAULT_OUTPUT_BYTES,
        machine_state: int = 0,
        cancellation: Cancellation | None = None,
    ) -> Execution:
        """Run a program as a script and wait for it to end.

        Args:
            code: Source of the program.
            stdin: Standard input.
            timeout_s: Time limit in seconds, by the clock and on the processor. Waiting for a free server and starting
                the process do not count.
            memory_mib: Memory limit in MiB.
            policy: `restricted` compiles the program with RestrictedPython, which accepts a subset of the language.
            output_limit_bytes: Limit of stdout, and of stderr.
            machine_state: Hash seed, 0 to 7; each has processes of its own, with another memory layout. Output that is
                the same in every state depends on the program and its input alone.
            cancellation: Ends the program from another thread; its status is then `killed`.

        Raises:
            UserError: an invalid argument; the program's content never raises.
            SandboxUnavailableError: no allowed level works here.
        """
        limits = arguments.Limits(timeout_s, memory_mib, output_limit_bytes)
        script = arguments.Script(code, stdin, limits, policy, machine_state)
        if refusal := arguments.refusal_of(code):
            return self._not_run("denied", refusal)
        try:
            return self._run(script, cancellation or Cancellation())
        except ServerError as error:
            return self._not_run("sandbox_error", str(error))

    def run_tests(
        self,
        code: str,
        tests: Sequence[str],
        timeout_s: float = arguments.DEFAULT_TESTS_TIMEOUT_S,
        *,
        setup: str = "",
        entry_point: str | None = None,
        memory_mib: int = arguments.DEFAULT_MEMORY_MIB,
    ) -> TestResult:
        """Run hidden tests on a program.

        The program's process computes the values of calls. The expected values exist only outside of it, where plain
        data is compared, so nothing that the program prints, patches, overrides or exits with decides a test.

        Args:
            code: Source of the program, which runs like an imported module.
            tests: `assert …` statements; with an entry point, sources that define `check(candidate)`.
            timeout_s: Time limit in seconds of the program for all tests together.
            setup: Statements before the tests (MBPP's `test_setup_code`); the program can use its imports and classes.
            entry_point: Name of the function that is passed to `check` (HumanEval).
            memory_mib: Memory limit of the program in MiB.

        Raises:
            UserError: tests that are not Python or assert nothing, or an invalid argument.
            SandboxUnavailableError: no allowed level works here.
        """
        limits, plan = arguments.Limits(timeout_s, memory_mib), plan_of(tests, setup, entry_point)
        if refusal := arguments.refusal_of(code):
            return undecided(len(tests), self._not_run("denied", refusal))
        try:
            return self._run_tests(code, plan, limits)
        except ServerError as error:
            return undecided(len(tests), self._not_run("sandbox_error", str(error)))

    def _run(self, script: arguments.Script, cancellation: Cancellation) -> Execution:
        raise NotImplementedError  # who has `run` of their own does without

    def _run_tests(self, code: str, plan: Plan, limits: arguments.Limits) -> TestResult:
        raise NotImplementedError  # as above

    def _not_run(self, status: Status, reason: str) -> Execution:
        return Execution(status, "", reason, 0.0, 0.0, self._level_name)

    @property
    def _level_name(self) -> str:
        return self.level.name

    def reserve(self, workers: int) -> None:
        """Prepare to run this many programs at once, if that is more than `workers`; the default does nothing."""
        return

    def interpreter(self, limits: arguments.Limits) -> Interpreter:
        """Return an interpreter whose variables stay from call to call.

        Args:
            limits: Limits of each call; memory is that of the process.

        Raises:
            SandboxUnavailableError: this executor has none, or no allowed level works here.
        """
        raise SandboxUnavailableError(
            f"interpreters that keep their variables run on this machine alone, not at level {self._level_name}: unset "
            "GRPO_SANDBOX_URL"
        )

    def run_many(
        self, codes: Sequence[str], *, workers: int | None = None, **options: Unpack[ManyOptions]
    ) -> list[Execution]:
        """Run programs, `workers` at a time; executions are in the order of the programs. The rest is as in `run`."""
        arguments.check_whole("workers", self.workers if workers is None else workers, 1, arguments.MAX_WORKERS)
        if workers is not None:
            self.reserve(workers)
        cancellations = [Cancellation() for _ in codes]
        futures: list[Future[Execution]] = []
        with ThreadPoolExecutor(workers or self.workers, thread_name_prefix="sandbox") as threads:
            try:
                for code, cancellation in zip(codes, cancellations, strict=True):
                    futures.append(threads.submit(self.run, code, cancellation=cancellation, **options))
                return [future.result() for future in futures]
            except BaseException:  # an interrupt, or an invalid argument: nobody waits for the rest
                for future in futures:
                    future.cancel()
                for cancellation in cancellations:
                    cancellation.cancel()
                raise

    async def arun(
        self,
        code: str,
        stdin: str = "",
        timeout_s: float = arguments.DEFAULT_TIMEOUT_S,
        memory_mib: int = arguments.DEFAULT_MEMORY_MIB,
        **options: Unpack[RunOptions],
    ) -> Execution:
        """Run a program without blocking the event loop; cancelling the coroutine ends the program."""
        import asyncio  # 30 ms that most processes never need

        cancellation = Cancellation()
        call = functools.partial(self.run, code, stdin, timeout_s, memory_mib, cancellation=cancellation, **options)
        try:
            return await asyncio.get_running_loop().run_in_executor(_waiting_threads(), call)
        except asyncio.CancelledError:
            cancellation.cancel()
            raise


@lru_cache
def _waiting_threads() -> ThreadPoolExecutor:
    """Threads of the sandbox's own: waiting programs must not use up the event loop's threads."""
    return ThreadPoolExecutor(MAX_WAITING, thread_name_prefix="sandbox")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_waiting_threads.cache_clear)
