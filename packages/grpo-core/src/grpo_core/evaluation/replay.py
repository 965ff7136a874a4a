"""Scores a run's stored completions again, with the task as it is today, and compares."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from grpo_core.config import RunConfig
from grpo_core.evaluation.replayed_advantages import Comparison, ReplayedBaseline
from grpo_core.evaluation.rescoring import Scored, score_again
from grpo_core.rollouts.task_scoring import scorer_of
from grpo_sdk.errors import DataError, UserError, unknown_name
from grpo_sdk.plugins.tasks import load_task
from grpo_sdk.records.rollouts import read_rollouts
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
    def flips(self) -> bool:
        """Whether the verdict differs."""
        return verdict(self.old) != verdict(self.new)

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
    changed_ingredients: str = ""
    completions: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    changed: int = 0
    flips: Counter[tuple[str, str]] = field(default_factory=Counter)
    means: Means = field(default_factory=Means)

    @property
    def is_same(self) -> bool:
        """Whether every identity of the log is the task's."""
        return all(identity == self.identity_now for identity in self.identities_then)

    def add(self, change: Change) -> bool:
        """Count a completion; returns whether its score differs."""
        self.completions += 1
        self.means.add(change.old, change.new)
        if change.flips:
            self.flips[verdict(change.old), verdict(change.new)] += 1
        differs = change.flips or change.size > 1e-9
        self.changed += differs
        return differs

    def as_json(self) -> dict[str, Any]:
        """The result as plain values."""
        return {
            "task_now": self.spec,
            "identity_now": self.identity_now,
            "identities_then": sorted(self.identities_then),
            "same_identity": self.is_same,
            "completions": self.completions,
            "changed_ingredients": self.changed_ingredients,
            "skipped": self.skipped.total(),
            "skipped_because": dict(self.skipped),
            "changed": self.changed,
            "flips": [{"then": then, "now": now, "n": number} for (then, now), number in self.flips.most_common()],
            **self.means.as_json(),
        }


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

    def add(self, scored: Iterable[Scored], limit: int) -> None:
        """Compare the scores of some completions.

        Args:
            scored: Stored completions with their new scores.
            limit: Largest number of changes kept: verdicts that flipped first, then the largest, then the earliest.
        """
        changes = self.changes
        for record, new in scored:
            self.abstained += new.abstained
            self.steps.setdefault(record.step, Means()).add(record.score, new)
            change = Change(record.step, record.task, record.row_id, record.group, record.text, record.score, new)
            if self.tasks[record.task].add(change):
                changes.append(change)
        self.changes = heapq.nlargest(limit, changes, key=lambda change: (change.flips, change.size))

    def as_json(self) -> dict[str, Any]:
        """The result as plain values."""
        return {
            "completions": self.completions,
            "abstained": self.abstained,
            "tasks": {spec: task.as_json() for spec, task in self.tasks.items()},
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
            result.tasks[spec] = TaskReplay(bound.spec, _of_today(bound, "identity"))
        baseline = ReplayedBaseline(config.trainer, tasks, is_whole=step is None and task is None)
        result.baseline = baseline.description
        for number, records in groupby(chosen, key=lambda record: record.step):
            step_records = list(records)
            for record in step_records:
                result.tasks[record.task].identities_then.add(record.identity)
            scored, skipped = score_again(step_records, scorers)
            for record, why in skipped:
                result.tasks[record.task].skipped[why] += 1
            result.add(scored, limit)
            result.advantages.add(*baseline.signs(scored))
            progress(number)
    for spec, replayed in result.tasks.items():
        stored = (ingredients or {}).get(spec)
        # They are stored for one identity.
        if stored is not None and not replayed.is_same and len(replayed.identities_then) == 1:
            now = _of_today(tasks[spec], "ingredients")
            replayed.changed_ingredients = "" if now is None else name_changes(now, stored)
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


def _of_today(bound: BoundTask, name: Literal["identity", "ingredients"]) -> Any:
    """What today's task is made of; None without its data, which scoring does not need: the log holds the rows."""
    try:
        return getattr(bound, name)
    except DataError:
        return None
