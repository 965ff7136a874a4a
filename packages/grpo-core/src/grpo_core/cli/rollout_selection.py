"""Which of a run's completions are wanted, and finding them in a log of any size."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Literal

from grpo_core.errors import UserError, unknown_name
from grpo_core.tracking.rollouts import RolloutRecord, read_rollouts

Judgement = Literal["solved", "unsolved", "abstained"]
Order = Literal["worst", "best"]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which completions are wanted; None excludes nothing.

    Attributes:
        task: A task's spec, or its name without options.
        step: A step, `all`, or None for the last step that has any.
        judged: `solved`; `unsolved`: scored, and not solved; or `abstained`: not scored.
        order: Which come first; those that were not scored come last in either.
        limit: Completions, or groups with `whole_groups`.
        whole_groups: Take every completion of a prompt of which one is wanted.
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
        """Sorts into the wanted order; of equal scores the earlier comes first, as every sort here is stable."""
        value = record.score.value
        if value is None:
            return True, 0.0
        return False, value if self.order == "worst" else -value


def judgement(record: RolloutRecord) -> Judgement:
    """What became of a completion."""
    if record.score.value is None:
        return "abstained"
    return "solved" if record.score.solved else "unsolved"


def select(run_dir: Path, wanted: Selection) -> list[RolloutRecord]:
    """The wanted completions in order; one step's, or `limit` of them, are in memory at a time.

    Raises:
        UserError: the folder is no run or has no completions, or the run has no such task or step.
        DataError: its log is corrupt.
    """
    found = read_rollouts(run_dir, step=wanted.exact_step, task=wanted.task)
    matching = (record for record in found if wanted.judged in (None, judgement(record)))
    chosen = _first(matching if wanted.step is not None else _last_step(matching), wanted)
    if not chosen:
        _check_exists(survey(run_dir), wanted)
    return _with_their_groups(run_dir, chosen, wanted) if wanted.whole_groups else chosen


def _first(records: Iterable[RolloutRecord], wanted: Selection) -> list[RolloutRecord]:
    if not wanted.whole_groups:
        return heapq.nsmallest(wanted.limit, records, key=wanted.rank)
    best: dict[tuple[int, int], RolloutRecord] = {}
    for record in records:
        key = record.step, record.group
        if key not in best or wanted.rank(record) < wanted.rank(best[key]):
            best[key] = record
    return heapq.nsmallest(wanted.limit, best.values(), key=wanted.rank)


def _last_step(records: Iterable[RolloutRecord]) -> Sequence[RolloutRecord]:
    last: list[RolloutRecord] = []
    for _, of_step in groupby(records, key=lambda record: record.step):
        last = list(of_step)
    return last


def _with_their_groups(run_dir: Path, chosen: Sequence[RolloutRecord], wanted: Selection) -> list[RolloutRecord]:
    members: dict[tuple[int, int], list[RolloutRecord]] = {(each.step, each.group): [] for each in chosen}
    for record in read_rollouts(run_dir, step=wanted.exact_step):
        if (record.step, record.group) in members:
            members[record.step, record.group].append(record)
    return [record for group in members.values() for record in sorted(group, key=wanted.rank)]


@dataclass(slots=True)
class Survey:
    """What a run's log holds.

    Attributes:
        steps: The first and the last; None where there are no completions.
        counts: Of each task, by its spec.
    """

    steps: tuple[int, int] | None = None
    counts: dict[str, dict[Judgement, int]] = field(default_factory=dict)

    def add(self, record: RolloutRecord) -> None:
        """Count a completion."""
        first, last = self.steps or (record.step, record.step)
        self.steps = min(first, record.step), max(last, record.step)
        counts = self.counts.setdefault(record.task, {"solved": 0, "unsolved": 0, "abstained": 0})
        counts[judgement(record)] += 1

    def __str__(self) -> str:
        if self.steps is None:
            return "no completions yet"
        tasks = "; ".join(
            f"{task}: {counts['solved']} solved, {counts['unsolved']} not solved, {counts['abstained']} not scored"
            for task, counts in self.counts.items()
        )
        return f"steps {self.steps[0]} to {self.steps[1]} of {tasks}"


def survey(run_dir: Path) -> Survey:
    """Count a run's completions."""
    found = Survey()
    for record in read_rollouts(run_dir):
        found.add(record)
    return found


def _check_exists(there: Survey, wanted: Selection) -> None:
    """Tell a name or a step that does not exist from one that merely has nothing of the kind."""
    names = dict.fromkeys(name for spec in there.counts for name in (spec, spec.partition("?")[0]))
    if wanted.task is not None and names and wanted.task not in names:
        raise unknown_name("task in this run", wanted.task, names)
    step = wanted.exact_step
    if step is not None and there.steps is not None and not there.steps[0] <= step <= there.steps[1]:
        first, last = there.steps
        raise UserError(f"--step {step}: this run has completions of steps {first} to {last}.")


def each_group(records: Iterable[RolloutRecord]) -> Iterator[list[RolloutRecord]]:
    """Split completions in order into those of one prompt and step."""
    for _, group in groupby(records, key=lambda record: (record.step, record.group)):
        yield list(group)
