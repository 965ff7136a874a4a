"""Any task of one turn in ms-swift's GRPO.

    from swift.rewards import orms                                 # plugin.py, for --external_plugins plugin.py
    from grpo_sdk.interop.swift import TaskORM
    orms["task"] = TaskORM                                         # and --reward_funcs task

`grpo export swift TASK DIR` writes rows, this file and the command line. Rows are `record`s: the task's spec is the
column `task`, the row as JSON the column `row`, so one file may hold rows of many tasks.

Read in ms-swift 4.6.0, which counts a reward of None as 0 in its group's mean. So a completion that could not be scored
gets the mean of its group here: its advantage is 0, and the others' differ from the mean of what was scored; their
standard deviation is smaller by sqrt((n - unscored - 1) / (n - 1)). This needs whole groups in a process; where there
are none, the run ends with an error that says what to set.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, groupby
from statistics import fmean
from typing import Any

from grpo_sdk.errors import DataError, UnscoredError, UserError
from grpo_sdk.interop.adapter import TaskAdapter, shared_adapter
from grpo_sdk.task.row import Row
from grpo_sdk.task.score import Score

__all__ = ["TaskORM", "record"]

MAX_GROUPS = 64
"""Groups that wait for their scores at the same time."""

logger = logging.getLogger(__name__)


class TaskORM:
    """Tasks as an outcome reward model; ms-swift makes it from its arguments.

    Args:
        args: ms-swift's arguments, of which `num_generations` and `num_generations_eval` are used.
        **unused: What else ms-swift passes.
    """

    def __init__(self, args: Any = None, **unused: object) -> None:
        sizes = (getattr(args, name, None) for name in ("num_generations", "num_generations_eval"))
        self._group_sizes = tuple(size for size in sizes if size)

    def __call__(
        self, completions: Sequence[str], row: Sequence[str] = (), task: Sequence[str] = (), **columns: object
    ) -> list[float]:
        """Score a batch.

        Args:
            completions: Texts.
            row: Row of each as JSON.
            task: Spec of each one's task.
            **columns: Other columns of the data.

        Raises:
            UnscoredError: nothing of the batch could be scored.
            UserError: ms-swift cannot train the task, or a process gets a part of a group where it needs the whole.
            DataError: a column is missing.
        """
        if not completions:
            return []
        if not len(completions) == len(row) == len(task):
            raise DataError(
                f"ms-swift: {len(completions)} completions, {len(row)} values of the column row and {len(task)} of the "
                "column task: make the data with grpo export swift."
            )
        groups = self._groups(list(zip(task, row, strict=True)))
        with ThreadPoolExecutor(min(len(groups), MAX_GROUPS)) as threads:  # which wait; workers score
            scored = threads.map(
                lambda members: self._score(completions, task[members[0]], row[members[0]], members), groups
            )
        scores = dict(chain.from_iterable(scored))
        values = {index: score.value for index, score in scores.items() if score.value is not None}
        if len(values) < len(completions):
            self._fill(values, scores, groups)
        return [values[index] for index in range(len(completions))]

    def _groups(self, keys: Sequence[tuple[str, str]]) -> list[list[int]]:
        """Indices of the completions of each prompt, which stand side by side, as often as a row was drawn."""
        groups = []
        for _, members in groupby(range(len(keys)), key=keys.__getitem__):
            together = list(members)
            # One completion a prompt, as in an evaluation, would make groups of any part of a group.
            sizes = (size for size in self._group_sizes if size > 1 and len(together) % size == 0)
            size = next(sizes, len(together))
            groups += [together[start : start + size] for start in range(0, len(together), size)]
        return groups

    def _score(
        self, completions: Sequence[str], spec: str, row: str, members: Sequence[int]
    ) -> list[tuple[int, Score]]:
        adapter = shared_adapter(spec, "ms-swift", "group")
        if adapter.task.task.group_specs():
            self._check_whole(members, f"task {adapter.task.name!r} compares the completions of a prompt")
        return list(zip(members, adapter.score_group([completions[i] for i in members], row), strict=True))

    def _fill(self, values: dict[int, float], scores: dict[int, Score], groups: list[list[int]]) -> None:
        """Give what could not be scored the mean of its group, or of the batch where its whole group was not scored."""
        unscored = [score for score in scores.values() if score.abstained]
        why = f"{unscored[0].fault}: {unscored[0].why}"
        if not values:
            raise UnscoredError(f"ms-swift: none of {len(scores)} completions could be scored: {why}")
        batch_mean = fmean(values.values())
        for members in groups:
            missing = [index for index in members if index not in values]
            if missing:
                self._check_whole(members, f"a completion could not be scored ({why}) and is to get its group's mean")
                scored = [values[index] for index in members if index in values]
                values |= dict.fromkeys(missing, fmean(scored) if scored else batch_mean)
        logger.warning(
            "%d of %d completions were not scored and got the mean of their group: %s", len(unscored), len(scores), why
        )

    def _check_whole(self, members: Sequence[int], reason: str) -> None:
        if len(members) not in self._group_sizes:
            sizes = " or ".join(map(str, self._group_sizes)) or "an unknown number of"
            raise UserError(
                f"ms-swift: {reason}, and this process got {len(members)} of its {sizes} completions: "
                "per_device_train_batch_size must be a multiple of num_generations."
            )


def record(adapter: TaskAdapter, row: Row) -> dict[str, Any]:
    """One row of ms-swift's data."""
    messages = adapter.first_messages(row)
    return {"messages": messages, "task": adapter.task.spec, "row": row.model_dump_json()}
