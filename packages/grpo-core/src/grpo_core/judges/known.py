"""Completions with known verdicts, by which a judge's errors are measured."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_core.task.row import Row


@dataclass(frozen=True, slots=True)
class Known:
    """A completion whose verdict is known.

    Attributes:
        row: Its row, or the row's id.
        completion: The completion.
        verdict: The right value, in [0, 1].
    """

    row: Row | str
    completion: str
    verdict: float
