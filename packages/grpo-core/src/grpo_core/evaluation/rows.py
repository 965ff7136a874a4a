"""The held-out rows of a task: the same ones in every evaluation, whatever the seed, the model or the phase."""

from __future__ import annotations

import math
from collections.abc import Sequence

from grpo_core.errors import ExhaustedError, UserError
from grpo_core.prompts.mixture import shuffled
from grpo_core.task.bound import BoundTask
from grpo_core.task.row import Row, Split

SUBSET_KEY = "evaluation subset"
"""Seeds the choice of a subset. It is not the run's seed: results of different seeds are compared on the same rows."""


def held_out(task: BoundTask, *, size: int | None, split: Split) -> BoundTask:
    """The task on its held-out rows: `size` of `split`, or as many as there are."""
    held = task.with_options(split=split, size=size)
    try:
        held.rows()
    except ExhaustedError as exhausted:
        held = task.with_options(split=split, size=exhausted.available)
    return held


def subset(rows: Sequence[Row], share: float | None) -> list[Row]:
    """A share of the rows, drawn by the hash of their ids: always the same ones, and a smaller share is part of it.

    Args:
        rows: Rows in the task's order, which is kept.
        share: Share above 0, at most 1; None takes all. At least one row is taken.

    Raises:
        UserError: the share is out of range.
    """
    if share is None:
        return list(rows)
    if not 0 < share <= 1:
        raise UserError(f"eval.subset_frac={share:g}: must be above 0 and at most 1, as 0.1 for a tenth of them.")
    count = max(1, math.floor(len(rows) * share))
    chosen = set(shuffled([row.id for row in rows], SUBSET_KEY)[:count])
    return [row for row in rows if row.id in chosen]
