"""Completions with known verdicts, by which a judge's errors are measured."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from grpo_sdk.errors import DataError, UserError
from grpo_sdk.intervals import wilson
from grpo_sdk.task.row import Row

MAX_KNOWN = 10_000
"""Most completions with known verdicts: every one is a request."""

MAX_LINE_BYTES = 4 << 20

POSITIVE = 0.5
"""Least value of a verdict that counts as yes."""


@dataclass(frozen=True, slots=True)
class Known:
    """A completion whose verdict is known.

    Attributes:
        row: Its row, or the row's id.
        completion: The completion.
        verdict: The right value, in [0, 1]; True and False are 1 and 0.
    """

    row: Row | str
    completion: str
    verdict: float


@dataclass(frozen=True, slots=True)
class ErrorRate:
    """How often a judge errs on completions of one kind.

    Attributes:
        errors: Wrong verdicts.
        n: Verdicts.
        low: Lower end of the 95% interval (Wilson).
        high: Upper end.
    """

    errors: int
    n: int
    low: float
    high: float

    @classmethod
    def of(cls, errors: Sequence[bool]) -> ErrorRate | None:
        """The rate of some verdicts; None of none."""
        if not errors:
            return None
        interval = wilson(sum(errors), len(errors))
        return cls(sum(errors), len(errors), interval.low, interval.high)

    def text(self) -> str:
        """`0.08 (1 of 12, 95%: 0.01 to 0.35)`."""
        return f"{self.errors / self.n:.2f} ({self.errors} of {self.n}, 95%: {self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True, slots=True)
class JudgeErrors:
    """Errors of a judge on completions with known verdicts.

    Attributes:
        judge: Name of the part.
        model: The model that judges, with its place.
        known: Completions with known verdicts.
        not_judged: Those without a verdict: the validator refuses them, a part is missing that the judge needs, or the
            judge abstained.
        false_positive: Yes, where the right verdict is below one half; None where there is none such.
        false_negative: No, where the right verdict is one half or more.
        mean_error: Mean distance of the verdict from the right one; None without verdicts.
        why: Why the judge abstained, where it did.
    """

    judge: str
    model: str
    known: int
    not_judged: int
    false_positive: ErrorRate | None
    false_negative: ErrorRate | None
    mean_error: float | None
    why: str = ""

    @classmethod
    def of(
        cls, judge: str, model: str, known: Sequence[Known], values: Sequence[float | None], why: str = ""
    ) -> JudgeErrors:
        """The errors of verdicts on known completions, in order; None is no verdict."""
        judged = [(item.verdict, value) for item, value in zip(known, values, strict=True) if value is not None]
        return cls(
            judge,
            model,
            len(known),
            len(known) - len(judged),
            ErrorRate.of([value >= POSITIVE for right, value in judged if right < POSITIVE]),
            ErrorRate.of([value < POSITIVE for right, value in judged if right >= POSITIVE]),
            sum(abs(right - value) for right, value in judged) / len(judged) if judged else None,
            why,
        )

    def text(self) -> str:
        """One line."""
        rates = (("false positives", self.false_positive), ("false negatives", self.false_negative))
        parts = [f"{name} {rate.text()}" for name, rate in rates if rate is not None]
        if self.mean_error is not None:
            parts.append(f"mean error {self.mean_error:.2f}")
        if self.not_judged:
            why = f" ({self.why})" if self.why else ""
            parts.append(f"{self.not_judged} of {self.known} not judged{why}")
        return "; ".join(parts)

    def as_json(self) -> dict[str, Any]:
        """The errors as plain values."""
        return asdict(self)


def known_of(source: object, judge: str) -> list[Known]:
    """The completions with known verdicts that a judge has.

    Args:
        source: Several `Known`, or the path of a JSONL file of `{"row": ID or a whole row, "completion": TEXT,
            "verdict": NUMBER}`.
        judge: Its name, for messages.

    Raises:
        UserError: something else, or there is no such file.
        DataError: a wrong line, with its number.
    """
    where = f"judge {judge!r}: known"
    if isinstance(source, str | Path):
        return _checked(_read(Path(source).expanduser(), where), where)
    if isinstance(source, Iterable):
        items = list(source)
        if all(isinstance(item, Known) for item in items):
            return _checked(items, where)
    raise UserError(f"{where}={source!r:.80} must be a list of Known(row, completion, verdict), or a JSONL file.")


def _checked(items: list[Known], where: str) -> list[Known]:
    if len(items) > MAX_KNOWN:
        raise UserError(f"{where}: {len(items)} completions; at most {MAX_KNOWN} are asked about.")
    for item in items:
        right = item.verdict
        if not isinstance(right, bool | int | float) or not (math.isfinite(right) and 0 <= right <= 1):
            raise DataError(f"{where}: verdict {right!r:.40} of row {item.row!r:.60} must be a number from 0 to 1.")
    return items


def _read(path: Path, where: str) -> list[Known]:
    items = []
    try:
        with path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES), b""), 1):
                if line.strip():
                    items.append(_parsed(line, f"{where}: {path}:{number}"))
                if len(items) > MAX_KNOWN:
                    break
    except OSError as error:
        raise UserError(f"{where}: {path}: {error.strerror or error}.") from None
    return items


def _parsed(line: bytes, where: str) -> Known:
    try:
        content = json.loads(line)
        row, completion, verdict = content["row"], content["completion"], content["verdict"]
    except (ValueError, KeyError, TypeError):
        raise DataError(
            f'{where}: write {{"row": ID or a whole row, "completion": TEXT, "verdict": 0 to 1}}.'
        ) from None
    if not isinstance(completion, str) or not isinstance(row, str | dict):
        raise DataError(f"{where}: the row must be an id or a whole row, and the completion a text.")
    return Known(row if isinstance(row, str) else json.dumps(row), completion, verdict)
