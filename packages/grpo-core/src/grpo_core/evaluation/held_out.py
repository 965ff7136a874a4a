"""The tasks that are evaluated, each on held-out rows that are the same for every seed, model and phase. No torch."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from grpo_core.config import RunConfig
from grpo_core.evaluation.plan import EvaluationPlan, matchups, plan_of, settings_of
from grpo_core.evaluation.settings import EvaluationSettings
from grpo_sdk.callbacks import ResolvedDefault
from grpo_sdk.check.overlap import Overlap, TrainedProblems, of_size, overlap_choices
from grpo_sdk.episodes.opponents import check_opponent
from grpo_sdk.errors import UserError
from grpo_sdk.paths import file_digest
from grpo_sdk.plugins.tasks import bind
from grpo_sdk.scoring.conditions import condition_choices
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.mixture import shuffled, task_labels
from grpo_sdk.task.row import Row
from grpo_sdk.task.rows import data_files
from grpo_sdk.task.spec import parse_task_specs

SUBSET_KEY = "evaluation subset"
"""Seeds the choice of a subset. It is not the run's seed: results of different seeds are compared on the same rows."""


@dataclass(frozen=True, slots=True)
class HeldOutTask:
    """A task that is evaluated.

    Attributes:
        task: Task on its held-out rows.
        plan: How it is evaluated, and when.
        rows: Rows that are evaluated.
        overlap: Rows that are also trained on; None where that is not known.
    """

    task: BoundTask
    plan: EvaluationPlan
    rows: Sequence[Row]
    overlap: Overlap | None = None

    @classmethod
    def of(cls, task: BoundTask, plan: EvaluationPlan, trained: TrainedProblems | None = None) -> Self:
        """A task on the held-out rows that its settings choose, compared with those that are trained on.

        Raises:
            UserError: the settings' share of the rows is out of range.
        """
        held = of_size(task, plan.settings.size, split=plan.settings.split)
        rows = subset(held.rows(), plan.settings.subset_frac)
        return cls(held, plan, rows, None if trained is None else trained.overlap(held, rows))

    @property
    def settings(self) -> EvaluationSettings:
        """Settings of every evaluation of the task."""
        return self.plan.settings


def labelled(tasks: Iterable[BoundTask]) -> dict[str, BoundTask]:
    """Tasks by their names in logs and summaries."""
    tasks = list(tasks)
    return dict(zip(task_labels(tasks), tasks, strict=True))


def trained_tasks(config: RunConfig) -> dict[str, BoundTask]:
    """The tasks that a configuration trains, by label, on their first rows where `trainer.train_size` says how many.

    That number becomes the task's option `size`, so that a file is read no further than these rows.
    """
    size = config.trainer.train_size
    return labelled(
        task if size is None or size >= (task.config.size or math.inf) else task.with_options(size=size)
        for task in map(bind, parse_task_specs(config.task))
    )


def evaluated_specs(config: RunConfig) -> str:
    """Spec of the tasks that a run evaluates: those it trains and those of `eval.task`, each once."""
    specs = (*parse_task_specs(config.task), *(parse_task_specs(config.eval.task) if config.eval.task else ()))
    return ",".join(dict.fromkeys(str(spec) for spec in specs))


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


def held_out_tasks(
    config: RunConfig,
    trained: Mapping[str, BoundTask],
    needed: Collection[str] | None = (),
    *,
    others: str | None = None,
) -> tuple[dict[str, HeldOutTask], list[ResolvedDefault]]:
    """The tasks that a run evaluates: the trained ones and those of `eval.task`.

    Rows that are also trained on are counted and named.

    Args:
        config: Configuration of the run.
        trained: The trained tasks, by label.
        needed: Labels of tasks that are included even if they are never evaluated: a ladder's rungs. None is all.
        others: Spec of tasks to evaluate in place of these.

    Returns:
        (label -> task, choices to be shown to the user).

    Raises:
        UserError: a task of `eval.task` does not exist, or all of its held-out rows are trained on.
    """
    tasks, choices = {}, []
    problems = TrainedProblems([*trained.values()])
    candidates = {**trained, **_others(config.eval.task, trained)} if others is None else _others(others, {})
    for label, task in matchups(candidates).items():
        plan, wishes = plan_of(config, task)
        choices += wishes
        if not plan.has_any and needed is not None and label not in needed:
            continue
        held = tasks[label] = HeldOutTask.of(task, plan, problems)
        size, count = plan.settings.size, len(held.task.rows())
        if size is not None and count < size:
            why = f"eval.size={size}, and only {count} exist"
            choices.append(ResolvedDefault("held-out", f"{label}: {count} rows", why))
        choices += overlap_choices(label, held.task, held.overlap)
    return tasks, choices


def _others(evaluated: str | None, trained: Mapping[str, BoundTask]) -> dict[str, BoundTask]:
    """The tasks of a spec that are not trained, by label."""
    specs = {task.spec for task in trained.values()}
    others: dict[str, BoundTask] = {}
    for spec in parse_task_specs(evaluated) if evaluated else ():
        task = bind(spec)
        if task.spec not in specs:
            others[task.spec if task.label in {**trained, **others} else task.label] = task
    return others


def prepare_tasks(
    task: str, given: Mapping[str, Any], defaults: EvaluationSettings, *, rows_of_spec: bool = False
) -> tuple[dict[str, HeldOutTask], list[ResolvedDefault]]:
    """The tasks of a spec that are evaluated outside a run, by label.

    Args:
        task: Spec of the tasks.
        given: Settings of the user, by the names of `EvaluationSettings`.
        defaults: Settings where neither the user nor the task gives one.
        rows_of_spec: Whether the split that a spec names is evaluated, and no more rows than the size that it names;
            those of a training's spec are its training's.

    Returns:
        (tasks, choices to be shown: what the scores depend on, and settings of the tasks).

    Raises:
        UserError: a task that does not exist, or cannot say what it depends on; a spec that names another split than
            the user does.
    """
    tasks, choices = {}, []
    for label, bound in matchups(labelled(map(bind, parse_task_specs(task)))).items():
        settings, wishes = settings_of(bound, {**_split_of(bound, given), **given} if rows_of_spec else given, defaults)
        if rows_of_spec and "size" not in given:
            settings = replace(settings, size=_size_of(bound, settings.size))
        tasks[label] = HeldOutTask.of(bound, EvaluationPlan(settings=settings))
        choices += wishes
    return tasks, [*condition_choices({label: held.task for label, held in tasks.items()}), *choices]


def check_evaluation(task: str, given: Mapping[str, Any], defaults: EvaluationSettings) -> None:
    """Check that tasks exist, that their held-out rows can be read, and that the settings fit them.

    Args:
        task: Spec of the tasks.
        given: Settings of the user, by the names of `EvaluationSettings`.
        defaults: Settings where neither the user nor the task gives one.

    Raises:
        UserError: the first thing that is wrong.
    """
    for bound in map(bind, parse_task_specs(task)):
        check_opponent(bound)
        HeldOutTask.of(bound, EvaluationPlan(settings=settings_of(bound, given, defaults)[0]))


def _size_of(task: BoundTask, size: int | None) -> int | None:
    """`size` rows, but no more than the task's spec names."""
    if "size" not in parse_task_specs(task.spec)[0].options or task.config.size is None:
        return size
    return task.config.size if size is None else min(size, task.config.size)


def _split_of(task: BoundTask, given: Mapping[str, Any]) -> dict[str, str]:
    """The split that the task's spec names, as a setting.

    Raises:
        UserError: the user names another one.
    """
    named = parse_task_specs(task.spec)[0].options.get("split")
    if named is None:
        return {}
    if given.get("split", named) != named:
        raise UserError(f"{task.spec} names the split {named}, and split={given['split']} is asked for: give one.")
    return {"split": named}


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
