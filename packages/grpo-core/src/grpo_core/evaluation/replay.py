"""Scores a run's stored completions again, with the task as it is today, and compares."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import count, groupby
from pathlib import Path
from typing import Any

import orjson

from grpo_core.config import RunConfig, ScoringConfig
from grpo_core.errors import DataError, UserError, unknown_name
from grpo_core.evaluation.replayed_advantages import Comparison, ReplayedBaseline
from grpo_core.plugins.tasks import load_task
from grpo_core.scoring import Scorer, group_scores
from grpo_core.task.bound import BoundTask
from grpo_core.task.row import Row
from grpo_core.task.score import Score
from grpo_core.tracking.rollouts import RolloutRecord, read_rollouts


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
        completions: Completions scored again.
        skipped: Completions of several turns, which the log holds as one text.
        changed: Completions whose value or verdict differs.
        flips: (verdict then, verdict now) -> number of completions.
        means: Mean rewards.
    """

    spec: str
    identity_now: str | None
    identities_then: set[str] = field(default_factory=set)
    is_same: bool = True
    completions: int = 0
    skipped: int = 0
    changed: int = 0
    flips: Counter[tuple[str, str]] = field(default_factory=Counter)
    means: Means = field(default_factory=Means)


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
                    "skipped": task.skipped,
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
    progress: Callable[[int], None] = lambda step: None,
) -> Replay:
    """Score a run's completions again, one step in memory at a time.

    Args:
        run_dir: Folder of the run.
        config: Configuration of the run: its baseline and its scorers.
        task: Spec of a task that scores in place of the run's one of the same name, or of its only one.
        step: Replay this step alone.
        limit: Largest number of changes kept.
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
        scorers = {spec: resources.enter_context(_scorer(bound, config.scoring)) for spec, bound in tasks.items()}
        for spec, bound in tasks.items():
            result.tasks[spec] = TaskReplay(bound.spec, _identity(bound))
        baseline = ReplayedBaseline(config.trainer, tasks, is_whole=step is None and task is None)
        result.baseline = baseline.description
        collector = _Collector(result, limit)
        for number, records in groupby(chosen, key=lambda record: record.step):
            scored = _scored(records, scorers, result)
            for record, new in scored:
                collector.add(record, new)
            result.advantages.add(*baseline.signs(scored))
            progress(number)
    result.changes = collector.largest()
    return result


def _tasks_now(specs: Sequence[str], task: str | None) -> dict[str, BoundTask]:
    """The task that scores the completions of each spec of the run; without the specs that are not replayed."""
    if task is None:
        return {spec: _replayable(load_task(spec)) for spec in specs}
    bound = _replayable(load_task(task))
    same_name = [spec for spec in specs if spec.partition("?")[0] == bound.name or spec == bound.spec]
    if not same_name and len(specs) > 1:
        raise unknown_name("task in this run", task, specs)
    return dict.fromkeys(same_name or specs, bound)


def _replayable(bound: BoundTask) -> BoundTask:
    if bound.task.game is not None:
        raise UserError(f"task {bound.name!r} is a game, of which the log holds a story and no moves to score again.")
    if bound.opponent is not None:
        raise UserError(f"task {bound.name!r} has an opponent, whose answers the log does not hold.")
    return bound


def _scorer(bound: BoundTask, config: ScoringConfig) -> Scorer:
    return Scorer(bound, workers=config.workers, timeout_s=config.timeout_s, memory_mib=config.memory_mib)


def _scored(
    records: Iterable[RolloutRecord], scorers: Mapping[str, Scorer], result: Replay
) -> list[tuple[RolloutRecord, Score]]:
    """Score the completions of one step; the members of a group share their row."""
    waiting = []
    rows: dict[tuple[str, int], Row] = {}
    for record in records:
        changes = result.tasks[record.task]
        scorer = scorers[record.task]
        if record.identity not in changes.identities_then:
            changes.identities_then.add(record.identity)
            is_same = changes.identity_now is not None and scorer.task.is_identified_by(record.identity)
            changes.is_same = changes.is_same and is_same
        if record.turns > 1:
            changes.skipped += 1
            continue
        key = (record.task, record.group)
        if key not in rows or rows[key].id != record.row_id:
            rows[key] = _row(scorer.task, record)
        waiting.append((record, scorer.submit(record.text, rows[key])))
    scored = [(record, future.result()) for record, future in waiting]
    return _with_group_rewards(scored, rows, scorers)


def _with_group_rewards(
    scored: Sequence[tuple[RolloutRecord, Score]], rows: Mapping[tuple[str, int], Row], scorers: Mapping[str, Scorer]
) -> list[tuple[RolloutRecord, Score]]:
    """Add the group rewards of the tasks that have any; the completions of a group are those of its prompt."""
    completed = list(scored)
    for spec, scorer in scorers.items():
        if not scorer.task.task.group_specs():
            continue
        members: dict[int, list[int]] = {}
        for index, (record, _) in enumerate(scored):
            if record.task == spec:
                members.setdefault(record.group, []).append(index)
        groups = [
            ([scored[index][0].text for index in own], rows[spec, group], [scored[index][1] for index in own])
            for group, own in members.items()
        ]
        for own, scores in zip(members.values(), group_scores(scorer, groups), strict=True):
            for index, score in zip(own, scores, strict=True):
                completed[index] = (scored[index][0], score)
    return completed


def _identity(bound: BoundTask) -> str | None:
    try:
        return bound.identity
    except DataError:  # the log holds the rows, so that the task's data is not needed to score
        return None


def _row(task: BoundTask, record: RolloutRecord) -> Row:
    try:
        return task.row_from_json(orjson.dumps(record.row))
    except DataError as error:
        raise DataError(f"step {record.step}: a row that the run stored is none of this task: {error}") from None


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
