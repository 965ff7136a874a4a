"""What a run tells: `Execution`, `TestResult`, `Level`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Status = Literal[
    "ok", "syntax_error", "runtime_error", "timeout", "output_limit", "memory", "killed", "denied", "sandbox_error"
]
TestStatus = Literal["passed", "failed", Status]
Policy = Literal["restricted"]


@dataclass(frozen=True, slots=True)
class Level:
    """How strongly programs are isolated.

    Attributes:
        name: `L3`, `L2`, `L1`, or `remote`.
        title: `namespaces`, `landlock`, `rlimits`, or the provider.
        guarantee: What holds for every program, in one line.
        reason: Why it was chosen.
    """

    name: str
    title: str
    guarantee: str
    reason: str


@dataclass(frozen=True, slots=True)
class Execution:
    """One run of a program.

    Attributes:
        status: `ok`: it ended with exit code 0, whatever it wrote to stderr. `syntax_error`: it cannot be compiled.
            `runtime_error`: an exception, or another exit code. `timeout`: its time ran out, by the clock or on the
            processor. `output_limit`: it wrote too much. `memory`: a MemoryError ended it. `killed`: a signal did.
            `denied`: it was refused (its size, a policy), or ended for a system call that no honest program makes.
            `sandbox_error`: the sandbox failed; nothing is known of the program, and stderr ends with the reason.
        stdout: What it wrote, up to the limit; bytes that are not UTF-8 are replaced.
        stderr: Likewise.
        cpu_s: Processor seconds.
        wall_s: Seconds by the clock; neither starting the process nor waiting for a free one counts.
        level: `L3`, `L2` or `L1`; of a remote executor, what it says.
    """

    status: Status
    stdout: str
    stderr: str
    cpu_s: float
    wall_s: float
    level: str


@dataclass(frozen=True, slots=True)
class TestResult:
    """A program's tests.

    Attributes:
        passed: How many passed.
        total: How many there are.
        per_test: Which, in their order.
        statuses: `passed`, `failed`, or the status of the program's run that kept the test from being decided; with
            `sandbox_error` nothing is known.
        reasons: Why each did not pass, in a line of printable characters; never shown to the program.
        level: As in `Execution`.
        execution: The program's run.
    """

    __test__ = False  # not a class of tests, whatever pytest thinks of its name

    passed: int
    total: int
    per_test: Sequence[bool]
    statuses: Sequence[TestStatus]
    reasons: Sequence[str]
    level: str
    execution: Execution


def readable(text: str) -> str:
    """Text of which every unprintable character is written as its escape.

    A program's words can move a cursor, rename a terminal, or hold a lone surrogate, which no stream encodes.
    """
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def all_text(values: Sequence[object]) -> bool:
    """Whether all values are strings."""
    return all(isinstance(value, str) for value in values)
