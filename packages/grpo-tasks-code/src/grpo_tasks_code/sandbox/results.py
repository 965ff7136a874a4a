"""Results of runs: `Execution`, `TestResult`, `Level`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Status = Literal[
    "ok", "syntax_error", "runtime_error", "timeout", "output_limit", "memory", "killed", "denied", "sandbox_error"
]
"""How a program ended; docs/explanation/sandbox.md describes each."""

TestStatus = Literal["passed", "failed", "unchecked", Status]
"""Result of one test (`unchecked`: it has checks, and none of them ran), or how the program ended before it had one."""

Policy = Literal["restricted"]
"""What the compiler accepts of a program: `restricted` is a subset of the language, by RestrictedPython."""


@dataclass(frozen=True, slots=True)
class Level:
    """How strongly programs are isolated.

    Attributes:
        name: `L3`, `L2`, `L1`, or `remote`.
        title: `namespaces`, `landlock`, `rlimits`, or the provider.
        guarantee: What the level guarantees for every program, in one line.
        reason: Why the level was chosen.
    """

    name: str
    title: str
    guarantee: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name} {self.title}: {self.guarantee} ({self.reason})"


@dataclass(frozen=True, slots=True)
class Execution:
    """One run of a program.

    Attributes:
        status: `ok`: exit code 0, whatever stderr holds. `syntax_error`: the program cannot be compiled.
            `runtime_error`: an exception, or another exit code. `timeout`: the time limit was reached, by the clock or
            on the processor. `output_limit`: too much output. `memory`: a MemoryError ended it. `killed`: a signal
            ended it. `denied`: it was refused (size, policy), or ended for a system call that no honest program makes.
            `sandbox_error`: the sandbox failed; the program has no verdict, and stderr ends with the reason.
        stdout: Standard output up to the limit; bytes that are not UTF-8 are replaced.
        stderr: Standard error, in the same form.
        cpu_s: Processor seconds used.
        wall_s: Wall-clock seconds, without starting the process and without waiting for a free one.
        level: `L3`, `L2` or `L1`; for a remote executor, the level it reports.
    """

    status: Status
    stdout: str
    stderr: str
    cpu_s: float
    wall_s: float
    level: str

    @property
    def last_line(self) -> str:
        """Last line of stderr, which says why a program or the sandbox failed; empty if there is none."""
        return next(reversed(self.stderr.strip().splitlines()), "")


@dataclass(frozen=True, slots=True)
class TestResult:
    """Results of a program's tests.

    Attributes:
        passed: Number of tests that passed.
        total: Number of tests.
        per_test: Whether each test passed, in order.
        statuses: `passed`, `failed`, `unchecked`, or the status of the run that kept the test from being decided; with
            `sandbox_error` the test has no verdict.
        reasons: Why each test did not pass, as one line of printable characters; never shown to the program.
        level: Isolation level, as in `Execution`.
        execution: Run of the program.
    """

    __test__ = False  # not a class of tests, whatever pytest thinks of its name

    passed: int
    total: int
    per_test: Sequence[bool]
    statuses: Sequence[TestStatus]
    reasons: Sequence[str]
    level: str
    execution: Execution

    def __repr__(self) -> str:
        passed = f"{self.passed} of {self.total} tests passed"
        failed = next((index for index, is_passed in enumerate(self.per_test) if not is_passed), None)
        return passed if failed is None else f"{passed}; test {failed + 1}: {self.reasons[failed]}"


def readable(text: str, kept: str = "") -> str:
    """Return the text with every unprintable character written as its escape, except for those in `kept`.

    A program's output can move a cursor, rename a terminal, or hold a lone surrogate, which no stream encodes.
    """
    return "".join(char if char.isprintable() or char in kept else ascii(char)[1:-1] for char in text)
