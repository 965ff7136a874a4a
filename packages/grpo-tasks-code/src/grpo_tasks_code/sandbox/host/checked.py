"""Base of executors: arguments are checked, and failures become results."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from grpo_tasks_code.sandbox import arguments
from grpo_tasks_code.sandbox.errors import ServerError
from grpo_tasks_code.sandbox.execution import Execution, Policy, Status, TestResult
from grpo_tasks_code.sandbox.executor import Cancellation, Executor
from grpo_tasks_code.sandbox.host.plan import Plan, plan_of
from grpo_tasks_code.sandbox.host.testing import undecided


@dataclass(frozen=True, slots=True)
class Script:
    """A program to run as a script, with checked arguments; see `Executor.run`."""

    program: bytes
    stdin: bytes
    limits: arguments.Limits
    policy: Policy | None
    machine_state: int


@dataclass(frozen=True, slots=True)
class TestedProgram:
    """A program to run against tests, with checked arguments; see `Executor.run_tests`.

    Attributes:
        plan: Plan of the tests.
        tests: Sources of the tests, with `setup` and `entry_point`.
    """

    __test__ = False  # not a class of tests, whatever pytest thinks of its name

    program: bytes
    limits: arguments.Limits
    plan: Plan
    tests: tuple[str, ...]
    setup: str
    entry_point: str | None


class CheckedExecutor(Executor):
    """Base of executors that implement `_run` and `_run_tests` for checked arguments.

    Either may raise `ServerError`: the result then has the status `sandbox_error` and the error's message.
    """

    @property
    @abstractmethod
    def _level_name(self) -> str:
        """Level to report for programs that are not run."""

    @abstractmethod
    def _run(self, script: Script, cancellation: Cancellation) -> Execution: ...

    @abstractmethod
    def _run_tests(self, program: TestedProgram) -> TestResult: ...

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
        """Run a program as a script and wait for it to end; see `Executor.run`."""
        limits = arguments.Limits(timeout_s, memory_mib, output_limit_bytes)
        arguments.check_policy(policy)
        arguments.check_whole("machine_state", machine_state, 0, arguments.MAX_MACHINE_STATE)
        script = Script(arguments.program_bytes(code), arguments.stdin_bytes(stdin), limits, policy, machine_state)
        if refusal := arguments.refusal_of(script.program):
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
        """Run hidden tests on a program; see `Executor.run_tests`."""
        limits = arguments.Limits(timeout_s, memory_mib)
        plan = plan_of(tests, setup, entry_point)
        program = TestedProgram(arguments.program_bytes(code), limits, plan, tuple(tests), setup, entry_point)
        if refusal := arguments.refusal_of(program.program):
            return undecided(len(tests), self._not_run("denied", refusal))
        try:
            return self._run_tests(program)
        except ServerError as error:
            return undecided(len(tests), self._not_run("sandbox_error", str(error)))

    def _not_run(self, status: Status, reason: str) -> Execution:
        return Execution(status, "", reason, 0.0, 0.0, self._level_name)
