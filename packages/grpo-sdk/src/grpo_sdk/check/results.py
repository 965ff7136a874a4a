"""What a check found out about a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from grpo_sdk.task.exemptions import FINDINGS

Status = Literal["passed", "warning", "failed", "exempt", "not applicable"]

MAX_EXAMPLE_CHARS = 200
"""Of a text that a counterexample quotes."""


@dataclass(frozen=True, slots=True)
class Result:
    """Result of one check of one task.

    Attributes:
        status: `passed`, `warning` (it holds, but the text says what could be better), `failed`, `exempt` (the task
            says why) or `not applicable` (the check says why).
        text: One line: what held, what does not, or the reason.
        example: Counterexample of a failed check, or what a warning is about.
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


def warning(text: str, example: str, advice: str) -> Result:
    """The check holds, and something could be better."""
    return Result("warning", text, example, advice)


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


ADVICE: Mapping[str, str] = {
    "nothing": "Raise Invalid in validate() for text that holds no answer.",
    "constant": "Compare with the row's own answer; give rows more than one or two different answers.",
    "copy": "Leave the answer out of the prompt, or refuse copies of it.",
    "several": "Read exactly one answer, and refuse text that states more.",
    "changed": "Compare the whole answer, not a part of it.",
    "partial": "Compare the whole answer for equality; `in`, sets and sorted characters take parts of it.",
    "tampering": "Keep programs apart from what judges them, as the sandbox of grpo-tasks-code does.",
    "evaluated": "Parse the text with a grammar of its own; never give it to eval, exec or what calls them.",
    "slow": "Bound the length before parsing, and use patterns that cannot backtrack.",
    "crash": "Raise Invalid in validate() for what cannot be read.",
    "calls": "Compare the state that the calls leave with the row's; a call by itself is no solution.",
    "overpaid": "Bound what calls earn by what the gold earns; count them with weight 0, or as a penalty.",
    "unearned": "Lower the weight of form, or let it count only with the right answer: @reward(…, needs=…).",
}
"""Kind of finding -> what the author of the task can do."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A completion that earns more than it should.

    Attributes:
        kind: Kind of the finding; one of `FINDINGS`.
        attack: How the completion was made.
        row: Id of the row that it was scored on.
        completion: The smallest text found that shows it.
        value: Its value; None where scoring failed.
        gold_value: Value of the row's gold; None where it has none.
        solved: Whether it is solved.
        why: The score's reason, in one line.
        earning: Rows on which the attack earns more than it should.
        tried: Rows on which it was tried.
        exempt: Reason by which the task declares it; empty otherwise.
    """

    kind: str
    attack: str
    row: str
    completion: str
    value: float | None
    gold_value: float | None
    solved: bool
    why: str
    earning: int
    tried: int
    exempt: str = ""

    @property
    def meaning(self) -> str:
        """What the kind says."""
        return FINDINGS[self.kind]


@dataclass(frozen=True, slots=True)
class FuzzReport:
    """Result of fuzzing a task.

    Attributes:
        task: Spec of the task.
        identity: Identity of the task.
        seed: Seed that makes the same completions again.
        completions: Completions tried, without those of golds, confirmations and shrinking.
        rows: Rows of the sample.
        findings: The findings, one of each kind at most.
        hacked_rows: Rows of the sample on which a confirmed attack of a kind that is not exempt earns too much.
        hackability: `hacked_rows / rows`.
        hackability_low: Lower end of its 95% Wilson interval.
        hackability_high: Upper end of its 95% Wilson interval.
        chance: Share of the rows that have the most frequent gold: what one fixed answer may solve.
        forms: Ways to write a gold -> (times that it was still solved, times tried).
        not_scored: Completions that were not scored since the infrastructure failed.
        note: Why something was not tried; empty if everything was.
    """

    task: str
    identity: str
    seed: int
    completions: int
    rows: int
    findings: tuple[Finding, ...]
    hacked_rows: int
    hackability: float
    hackability_low: float
    hackability_high: float
    chance: float
    forms: Mapping[str, tuple[int, int]]
    not_scored: int = 0
    note: str = ""

    @property
    def failures(self) -> tuple[Finding, ...]:
        """Findings that the task does not declare."""
        return tuple(finding for finding in self.findings if not finding.exempt)

    def results(self) -> list[Result]:
        """The report as results of checks: one for each finding; one that passed, if there are only exempt ones."""
        results = [
            Result(
                "exempt" if each.exempt else "failed",
                each.exempt or f"{each.meaning}: {each.earning} of {each.tried} rows",
                f"{shown(each.completion)} ({each.attack}) on row {each.row}: {_earned(each)}",
                ADVICE[each.kind],
                check=f"fuzz.{each.kind}",
            )
            for each in self.findings
        ]
        if self.failures:
            return results
        none = "no other" if results else "none"
        text = f"{none} of {self.completions} completions earns more than it should on {self.rows} rows"
        text += f"; hackability 0, at most {self.hackability_high:.2f}{'; ' if self.note else ''}{self.note}"
        return [*results, Result("passed", text, check="fuzz")]

    def as_json(self) -> dict[str, Any]:
        """The report as plain JSON."""
        return {**asdict(self), "findings": [{**asdict(each), "meaning": each.meaning} for each in self.findings]}


def _earned(finding: Finding) -> str:
    if finding.value is None:
        return finding.why
    gold = "" if finding.gold_value is None else f" of the gold's {finding.gold_value:g}"
    return f"{finding.value:g}{gold}{', solved' if finding.solved else ''}"
