"""What a check found out about a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Status = Literal["passed", "failed", "exempt", "not applicable"]

MAX_EXAMPLE_CHARS = 200
"""Of a text that a counterexample quotes."""


@dataclass(frozen=True, slots=True)
class Result:
    """Result of one check of one task.

    Attributes:
        status: `passed`, `failed`, `exempt` (the task says why) or `not applicable` (the check says why).
        text: One line: what held, what does not, or the reason.
        example: Counterexample of a failed check.
        advice: What the author of the task can do about it.
        measured: Numbers that were measured, by name.
        check: Name of the check.
        seconds: Time that it took.
    """

    status: Status
    text: str
    example: str = ""
    advice: str = ""
    measured: Mapping[str, float] = field(default_factory=dict)
    check: str = ""
    seconds: float = 0.0


def passed(text: str, **measured: float) -> Result:
    """The check holds."""
    return Result("passed", text, measured=measured)


def failed(text: str, example: str, advice: str, **measured: float) -> Result:
    """The check does not hold."""
    return Result("failed", text, example, advice, measured)


def not_applicable(reason: str) -> Result:
    """The check says nothing about this task."""
    return Result("not applicable", reason)


@dataclass(frozen=True, slots=True)
class TaskReport:
    """Results of the checks of one task.

    Attributes:
        task: Full name.
        spec: Spec with which it was checked.
        rows: Rows that completions were scored for.
        seed: Seed of their choice.
        results: One per check, in the order of the table.
        unavailable: Why nothing was checked, where the task's rows cannot be loaded; empty otherwise.
        fuzz: Report of the fuzzer as JSON values; None where it was not asked for.
        judges: Rewards that a judge decides. None was asked: each was taken as satisfied with every valid completion.
    """

    task: str
    spec: str
    rows: int
    seed: int
    results: Sequence[Result] = ()
    unavailable: str = ""
    fuzz: Mapping[str, Any] | None = None
    judges: Sequence[str] = ()

    @property
    def failures(self) -> list[Result]:
        """The checks that do not hold."""
        return [result for result in self.results if result.status == "failed"]

    def count(self, status: Status) -> int:
        """Number of checks with a status."""
        return sum(result.status == status for result in self.results)

    def as_json(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        return {**asdict(self), "failed": bool(self.failures)}


def shown(text: str) -> str:
    """A completion as a counterexample quotes it: on one line, its middle left out where it is long."""
    if len(text) > MAX_EXAMPLE_CHARS:
        half = MAX_EXAMPLE_CHARS // 2
        return f"{text[:half]!r} … {text[-half:]!r} ({len(text):,} characters)"
    return repr(text)
