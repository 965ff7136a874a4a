"""Scores a run's stored completions again, with the task as it is today, and compares."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import count, groupby
from pathlib import Path
from typing import Any

from grpo_core.config import RunConfig
from grpo_core.evaluation.replayed_advantages import Comparison, ReplayedBaseline
from grpo_core.evaluation.rescoring import score_again
from grpo_core.rollouts.task_scoring import scorer_of
from grpo_sdk.errors import DataError, UserError, unknown_name
from grpo_sdk.plugins.tasks import load_task
from grpo_sdk.records.rollouts import RolloutRecord, read_rollouts
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.fingerprint import name_changes
from grpo_sdk.task.score import Score
from grpo_sdk.task.spec import label_of


@dataclass(frozen=True, slots=True)
class Change:
    """A completion whose verdict or value differs.

    Attributes:
        step: Its step.
        task: Spec of its task, as the run has it.
        row: Id of its row.
        group: Its group in the step.
        text: The completion.
        old: Stored score.
        new: Score of today's task.
    """

    step: int
    task: str
    row: str
    group: int
    text: str
    old: Score
    new: Score

    @property
    def size(self) -> float:
        """How much the value differs; infinite where only one of the scores has a value."""
        if self.old.value is None or self.new.value is None:
            return 0.0 if self.old.value == self.new.value else math.inf
        return abs(self.new.value - self.old.value)


def verdict(score: Score) -> str:
    """Return `solved`, `unsolved` or `abstained`."""
    return "abstained" if score.abstained else "solved" if score.solved else "unsolved"


@dataclass(slots=True)
class Means:
    """Mean reward then and now over the completions that were scored both times.

    Attributes:
        n: Number of completions scored both times.
        then: Sum of the stored values.
        now: Sum of today's values.
    """

    n: int = 0
    then: float = 0.0
    now: float = 0.0

    def add(self, old: Score, new: Score) -> None:
        """Count a completion."""
        if old.value is not None and new.value is not None:
            self.n, self.then, self.now = self.n + 1, self.then + old.value, self.now + new.value

    def as_json(self) -> dict[str, Any]:
        """The means; None where nothing was scored both times."""
        means = (self.then / self.n, self.now / self.n) if self.n else (None, None)
        return {"n": self.n, "mean_then": means[0], "mean_now": means[1]}


@dataclass(slots=True)
class TaskReplay:
    """What changed for one task of the run.

    Attributes:
        spec: Spec of the task that scored now.
        identity_now: Identity of that task; None where its data is missing.
        identities_then: Identities that the log holds.
        is_same: Whether every identity of the log is the task's.
        changed_ingredients: The ingredients of the identity that differ, with their hashes; empty where it is the same,
            or where it is not known.
        completions: Completions scored again.
        skipped: Why completions were not scored again -> their number.
        changed: Completions whose value or verdict differs.
        flips: (verdict then, verdict now) -> number of completions.
        means: Mean rewards.
    """

    spec: str
    identity_now: str | None
    identities_then: set[str] = field(default_factory=set)
    is_same: bool = True
    changed_ingredients: str = ""
    completions: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    changed: int = 0
    flips: Counter[tuple[str, str]] = field(default_factory=Counter)
    means: Means = field(default_factory=Means)

    def compare_identity(self, stored: str) -> None:
        """Compare the identity of a stored completion with that of today's task."""
        if stored not in self.identities_then:
            self.identities_then.add(stored)
            self.is_same &= self.identity_now == stored

    def name_ingredients(self, bound: BoundTask, stored: Mapping[str, str] | None) -> None:
        """Name the ingredients that differ, where all completions are of one identity, whose ingredients are stored."""
        now = None if self.is_same or stored is None else _ingredients(bound)
        if now is not None and stored is not None and len(self.identities_then) == 1:
            self.changed_ingredients = name_changes(now, stored)


@dataclass(slots=True)
class Replay:
    """Result of a replay.

    Attributes:
        tasks: Spec of the run -> what changed.
        steps: Step -> mean rewards.
        changes: The largest changes, verdicts that flipped first.
        advantages: How the advantages compare.
        baseline: Baseline of the comparison, and why it is not the run's if it is not.
        abstained: Completions that today's task could not score.
    """

    tasks: dict[str, TaskReplay] = field(default_factory=dict)
    steps: dict[int, Means] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    advantages: Comparison = field(default_factory=Comparison)
    baseline: str = ""
    abstained: int = 0

    @property
    def completions(self) -> int:
        """Completions scored again."""
        return sum(task.completions for task in self.tasks.values())

    def as_json(self) -> dict[str, Any]:
        """The result as plain values."""
        return {
            "completions": self.completions,
            "abstained": self.abstained,
            "tasks": {
                spec: {
                    "task_now": task.spec,
                    "identity_now": task.identity_now,
                    "identities_then": sorted(task.identities_then),
                    "same_identity": task.is_same,
                    "completions": task.completions,
                    "changed_ingredients": task.changed_ingredients,
                    "skipped": task.skipped.total(),
                    "skipped_because": dict(task.skipped),
                    "changed": task.changed,
                    "flips": [
                        {"then": then, "now": now, "n": number} for (then, now), number in task.flips.most_common()
                    ],
                    **task.means.as_json(),
                }
                for spec, task in self.tasks.items()
            },
            "steps": [{"step": step, **means.as_json()} for step, means in self.steps.items()],
            "advantages": {"baseline": self.baseline, **self.advantages.as_json()},
            "changes": [asdict(change) for change in self.changes],
        }


def replay(
    run_dir: Path,
    config: RunConfig,
    *,
    task: str | None = None,
    step: int | None = None,
    limit: int = 20,
    ingredients: Mapping[str, Mapping[str, str]] | None = None,
    progress: Callable[[int], None] = lambda step: None,
) -> Replay:
    """Score a run's completions again, one step in memory at a time.

    Args:
        run_dir: Folder of the run.
        config: Configuration of the run: its baseline and its scorers.
        task: Spec of a task that scores in place of the run's one of the same name, or of its only one.
        step: Replay this step alone.
        limit: Largest number of changes kept.
        ingredients: Spec of the run -> ingredients of its identity, as the run stored them.
        progress: Called with each step that is done.

    Raises:
        UserError: the run has no such step or task, a task cannot be loaded, or stored rows do not fit it.
        DataError: the log is corrupt.
    """
    specs = dict.fromkeys(record.task for record in read_rollouts(run_dir, step=step))
    if not specs:
        raise UserError(f"{run_dir} has no completions{'' if step is None else f' of step {step}'}.")
    tasks = _tasks_now(list(specs), task)
    result = Replay()
    chosen = (record for record in read_rollouts(run_dir, step=step) if record.task in tasks)
    with ExitStack() as resources:
        scorers = {spec: resources.enter_context(scorer_of(bound, config.scoring)) for spec, bound in tasks.items()}
        for spec, bound in tasks.items():
            result.tasks[spec] = TaskReplay(bound.spec, _identity(bound))
        baseline = ReplayedBaseline(config.trainer, tasks, is_whole=step is None and task is None)
        result.baseline = baseline.description
        collector = _Collector(result, limit)
        for number, records in groupby(chosen, key=lambda record: record.step):
            step_records = list(records)
            for record in step_records:
                result.tasks[record.task].compare_identity(record.identity)
            rescored = score_again(step_records, scorers)
            for spec, reasons in rescored.skipped.items():
                result.tasks[spec].skipped += reasons
            for record, new in rescored.scores:
                collector.add(record, new)
            result.advantages.add(*baseline.signs(rescored.scores))
            progress(number)
    for spec, changes in result.tasks.items():
        changes.name_ingredients(tasks[spec], (ingredients or {}).get(spec))
    result.changes = collector.largest()
    return result


def _tasks_now(specs: Sequence[str], task: str | None) -> dict[str, BoundTask]:
    """The task that scores the completions of each spec of the run; without the specs that are not replayed."""
    if task is None:
        return {spec: load_task(spec) for spec in specs}
    bound = load_task(task)
    same_name = [spec for spec in specs if label_of(spec) == bound.label or spec == bound.spec]
    if not same_name and len(specs) > 1:
        raise unknown_name("task in this run", task, specs)
    return dict.fromkeys(same_name or specs, bound)


def _identity(bound: BoundTask) -> str | None:
    try:
        return bound.identity
    except DataError:  # the log holds the rows, so that the task's data is not needed to score
        return None


def _ingredients(bound: BoundTask) -> Mapping[str, str] | None:
    try:
        return bound.ingredients
    except DataError:  # as above
        return None


class _Collector:
    """Adds up what changed.

    Args:
        result: Receives the sums.
        limit: Largest number of changes kept.
    """

    def __init__(self, result: Replay, limit: int) -> None:
        self._result, self._limit = result, limit
        self._order = count()
        self._heap: list[tuple[bool, float, int, Change]] = []

    def add(self, record: RolloutRecord, new: Score) -> None:
        """Compare the scores of a completion."""
        old, task = record.score, self._result.tasks[record.task]
        task.completions += 1
        self._result.abstained += new.abstained
        task.means.add(old, new)
        self._result.steps.setdefault(record.step, Means()).add(old, new)
        change = Change(record.step, record.task, record.row_id, record.group, record.text, old, new)
        flips = verdict(old) != verdict(new)
        if flips:
            task.flips[verdict(old), verdict(new)] += 1
        if flips or change.size > 1e-9:
            task.changed += 1
            # The order makes every entry different, and earlier completions win ties.
            entry = (flips, change.size, -next(self._order), change)
            push = heapq.heappush if len(self._heap) < self._limit else heapq.heappushpop
            push(self._heap, entry)

    def largest(self) -> list[Change]:
        """The largest changes, flips first."""
        return [entry[-1] for entry in sorted(self._heap, key=lambda entry: entry[:3], reverse=True)]
