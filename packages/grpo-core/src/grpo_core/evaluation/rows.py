"""The rows that a run trains on, and the held-out ones: always the same, whatever the seed, the model or the phase."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from grpo_core.config import RunConfig
from grpo_sdk.callbacks import ResolvedDefault
from grpo_sdk.errors import UserError
from grpo_sdk.paths import file_digest
from grpo_sdk.plugins.tasks import bind
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.mixture import shuffled
from grpo_sdk.task.row import Row
from grpo_sdk.task.rows import data_files
from grpo_sdk.task.spec import parse_task_specs

SUBSET_KEY = "evaluation subset"
"""Seeds the choice of a subset. It is not the run's seed: results of different seeds are compared on the same rows."""


def trained_tasks(config: RunConfig) -> list[BoundTask]:
    """The tasks that a configuration trains, each on its first rows where `trainer.train_size` says how many.

    That number becomes the task's option `size`, so that a file is read no further than these rows.
    """
    size = config.trainer.train_size
    tasks = [bind(spec) for spec in parse_task_specs(config.task)]
    return [
        task if size is None or size >= (task.config.size or math.inf) else task.with_options(size=size)
        for task in tasks
    ]


def limited_rows(tasks: Mapping[str, BoundTask]) -> list[ResolvedDefault]:
    """What is used of files that may hold more rows than `size` takes, for the user."""
    choices = []
    for label, task in tasks.items():
        if task.config.size is not None and (files := data_files(task.config)):
            facts = ", ".join(f"{size:,} bytes, hash {digest[:8]}" for size, digest in map(file_digest, files[:3]))
            used = f"{label}: the first {len(task.rows()):,} of split {task.config.split} in {task.config.path}"
            why = "repeated rows, and held-out ones among them, are looked for within the rows in use"
            choices.append(ResolvedDefault("rows", f"{used} ({facts}{', …' * (len(files) > 3)})", why))
    return choices


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
