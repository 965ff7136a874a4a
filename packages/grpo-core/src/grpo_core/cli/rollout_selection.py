"""Selecting a run's completions from a log of any size."""

from __future__ import annotations

import heapq
import math
import sys
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from grpo_sdk.errors import UserError, unknown_name
from grpo_sdk.records.rollouts import RolloutRecord, read_rollouts
from grpo_sdk.scoring.abstention import is_out_of_time
from grpo_sdk.task.spec import names_of

Judgement = Literal["solved", "unsolved", "abstained"]
Order = Literal["worst", "best", "slowest"]


@dataclass(frozen=True, slots=True)
class Selection:
    """Filters, order and limit of a selection of completions; None excludes nothing.

    Attributes:
        task: Spec of a task, its name without options, or what its option `name` says.
        step: A step, `all`, or None for the last step that has any.
        judged: `solved`; `unsolved`: scored, but not solved; or `abstained`: not scored.
        order: Whether the worst scores, the best or the slowest come first; completions that were not scored come last,
            but those that ran out of time are the slowest.
        limit: Largest number of completions, or of groups with `whole_groups`.
        whole_groups: Whether to add all other completions of the same prompts.
    """

    task: str | None = None
    step: int | Literal["all"] | None = None
    judged: Judgement | None = None
    order: Order = "worst"
    limit: int = 10
    whole_groups: bool = False

    @property
    def exact_step(self) -> int | None:
        """The step, if one is named."""
        return self.step if isinstance(self.step, int) else None

    def rank(self, record: RolloutRecord) -> tuple[bool, float]:
        """Return the sort key of a completion; equal scores keep the order of the log."""
        if self.order == "slowest":
            return False, -scoring_seconds(record)
        value = record.score.value
        if value is None:
            return True, 0.0
        return False, value if self.order == "worst" else -value


def judgement(record: RolloutRecord) -> Judgement:
    """Return whether a completion was solved, unsolved or abstained."""
    if record.score.value is None:
        return "abstained"
    return "solved" if record.score.solved else "unsolved"


def scoring_seconds(record: RolloutRecord) -> float:
    """Return how long a completion's scoring took; infinite if it ran out of time, 0 if it is not known."""
    if is_out_of_time(record.score):
        return math.inf
    return math.fsum((record.score_s or {}).values())


def part_times(run_dir: Path, selection: Selection) -> list[dict[str, Any]]:
    """Return the durations of each part of scoring over the completions of a task and step, all by default.

    Returns:
        Of each task and part (`validate`, or a reward): `n` completions that were measured, and the median `p50`, the
        99th percentile `p99` and the `longest` of their seconds.
    """
    import numpy as np

    times: dict[tuple[str, str], array[float]] = {}
    for record in read_rollouts(run_dir, step=selection.exact_step, task=selection.task):
        for part, seconds in (record.score_s or {}).items():
            times.setdefault((record.task, part), array("d")).append(seconds)
    found = []
    for (task, part), values in times.items():
        p50, p99, longest = np.quantile(values, (0.5, 0.99, 1.0)).tolist()
        found.append({"task": task, "part": part, "n": len(values), "p50": p50, "p99": p99, "longest": longest})
    return found


def select(run_dir: Path, selection: Selection) -> list[RolloutRecord]:
    """Return the selected completions in order; at most one step, or `limit` completions, are in memory at a time.

    Raises:
        UserError: the folder is no run or has no completions, or the run has no such task or step.
        DataError: its log is corrupt.
    """
    chosen = _first(_matching(run_dir, selection), selection)
    if not chosen:
        _check_exists(Survey(run_dir), selection)
    return _with_their_groups(run_dir, chosen, selection) if selection.whole_groups else chosen


def each_selected(run_dir: Path, selection: Selection) -> Iterator[RolloutRecord]:
    """Yield the selected completions step by step; without a bound, in the order of the log and in constant memory.

    Raises:
        UserError: as `select`.
        DataError: the run's log is corrupt.
    """
    if selection.limit < sys.maxsize or selection.whole_groups:
        yield from sorted(select(run_dir, selection), key=lambda record: record.step)
        return
    is_empty = True
    for record in _matching(run_dir, selection):
        is_empty = False
        yield record
    if is_empty:
        _check_exists(Survey(run_dir), selection)


def _matching(run_dir: Path, selection: Selection) -> Iterable[RolloutRecord]:
    records = read_rollouts(run_dir, step=selection.exact_step, task=selection.task)
    matching = (record for record in records if selection.judged in (None, judgement(record)))
    return matching if selection.step is not None else _last_step(matching)


def _first(records: Iterable[RolloutRecord], selection: Selection) -> list[RolloutRecord]:
    if not selection.whole_groups:
        return heapq.nsmallest(selection.limit, records, key=selection.rank)
    best: dict[tuple[int, int], RolloutRecord] = {}
    for record in records:
        key = record.step, record.group
        if key not in best or selection.rank(record) < selection.rank(best[key]):
            best[key] = record
    return heapq.nsmallest(selection.limit, best.values(), key=selection.rank)


def _last_step(records: Iterable[RolloutRecord]) -> Sequence[RolloutRecord]:
    last: list[RolloutRecord] = []
    for _, of_step in groupby(records, key=lambda record: record.step):
        last = list(of_step)
    return last


def _with_their_groups(run_dir: Path, chosen: Sequence[RolloutRecord], selection: Selection) -> list[RolloutRecord]:
    members: dict[tuple[int, int], list[RolloutRecord]] = {(each.step, each.group): [] for each in chosen}
    for record in read_rollouts(run_dir, step=selection.exact_step):
        if (record.step, record.group) in members:
            members[record.step, record.group].append(record)
    return [record for group in members.values() for record in sorted(group, key=selection.rank)]


class Survey:
    """Counts of the completions in a run's log.

    Args:
        run_dir: Folder of the run.

    Attributes:
        steps: First and last step; None where there are no completions.
        counts: Task spec -> number of completions by judgement.
    """

    def __init__(self, run_dir: Path) -> None:
        steps: set[int] = set()
        self.counts: dict[str, Counter[Judgement]] = {}
        for record in read_rollouts(run_dir):
            steps.add(record.step)
            self.counts.setdefault(record.task, Counter())[judgement(record)] += 1
        self.steps = (min(steps), max(steps)) if steps else None

    def __str__(self) -> str:
        if self.steps is None:
            return "no completions yet"
        tasks = "; ".join(
            f"{task}: {counts['solved']} solved, {counts['unsolved']} not solved, {counts['abstained']} not scored"
            for task, counts in self.counts.items()
        )
        return f"steps {self.steps[0]} to {self.steps[1]} of {tasks}"


def _check_exists(survey: Survey, selection: Selection) -> None:
    """Refuse a task or step that does not exist, as opposed to one without a matching completion."""
    names = dict.fromkeys(name for spec in survey.counts for name in names_of(spec))
    if selection.task is not None and names and selection.task not in names:
        raise unknown_name("task in this run", selection.task, names)
    step = selection.exact_step
    if step is not None and survey.steps is not None and not survey.steps[0] <= step <= survey.steps[1]:
        first, last = survey.steps
        raise UserError(f"--step {step}: this run has completions of steps {first} to {last}.")


def each_group(records: Iterable[RolloutRecord]) -> Iterator[list[RolloutRecord]]:
    """Split completions, in order, into groups of one prompt and step."""
    for _, group in groupby(records, key=lambda record: (record.step, record.group)):
        yield list(group)
