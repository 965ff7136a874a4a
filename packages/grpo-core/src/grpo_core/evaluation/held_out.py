"""Evaluation inside a training run: the same held-out rows at its start, every few steps and at its end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from grpo_core.checkpoints import evaluation_dir
from grpo_core.config import RunConfig
from grpo_core.evaluation.answers import EvaluatedModel, evaluate_rows, unscored_warnings
from grpo_core.evaluation.entry import Moment, TrainingEntries
from grpo_core.evaluation.evaluate import meta_of
from grpo_core.evaluation.hooks import EvaluationHooks
from grpo_core.evaluation.output import BASE, META, EvaluationFolder, read_meta, write_results
from grpo_core.evaluation.plan import EvaluationPlan, matchups, plan_of
from grpo_core.evaluation.results import Evaluation, RowRates
from grpo_core.evaluation.rows import subset
from grpo_core.rollouts.task_scoring import Scoring
from grpo_core.tracking.evaluations import evaluation_metrics
from grpo_sdk.callbacks import Callbacks, EvalPhase, ResolvedDefault
from grpo_sdk.check.overlap import Overlap, TrainedProblems, held_out, overlap_choices
from grpo_sdk.errors import UserError
from grpo_sdk.plugins.tasks import bind
from grpo_sdk.scoring.metrics import MetricNames
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.row import Row
from grpo_sdk.task.spec import parse_task_specs


@dataclass(frozen=True, slots=True)
class HeldOutTask:
    """A task that a run evaluates.

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


def held_out_tasks(
    config: RunConfig,
    trained: Mapping[str, BoundTask],
    needed: Collection[str] | None = (),
    *,
    others: str | None = None,
) -> tuple[dict[str, HeldOutTask], list[ResolvedDefault]]:
    """The tasks that a run evaluates, on their held-out rows: the trained ones and those of `eval.task`.

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
        size = plan.settings.size
        held = held_out(task, size=size, split=plan.settings.split)
        count = len(held.rows())
        if size is not None and count < size:
            choices.append(
                ResolvedDefault("held-out", f"{label}: {count} rows", f"eval.size={size}, and only {count} exist")
            )
        rows = subset(held.rows(), plan.settings.subset_frac)
        overlap = problems.overlap(held, rows)
        tasks[label] = HeldOutTask(held, plan, rows, overlap)
        choices += overlap_choices(label, held, overlap)
    return tasks, choices


def _others(evaluated: str | None, trained: Mapping[str, BoundTask]) -> dict[str, BoundTask]:
    """The tasks of a spec that are not trained, by label."""
    specs = {task.spec for task in trained.values()}
    others: dict[str, BoundTask] = {}
    for spec in parse_task_specs(evaluated) if evaluated else ():
        task = bind(spec)
        if task.spec in specs:
            continue
        others[task.spec if task.label in {**trained, **others} else task.label] = task
    return others


class HeldOutEvaluator:
    """Evaluates a policy while it is trained, always on the same rows, and compares with its start.

    Every rank makes one and calls it at the same moments: each answers its share of the rows, and all get the results.

    Args:
        tasks: The tasks that are evaluated, by label; see `held_out_tasks`.
        model: The policy in training; its engine is synced by the caller.
        scoring: Scorers and opponents of the tasks.
        run: Folder of the run; None writes no files.
        callbacks: Notified of progress, results and warnings.
        names: Owners of the metrics' names.
        should_stop: Whether to stop; called after every completion.
        max_abstain_share: Largest share of unscored completions with which a task judges which checkpoint is best.

    Attributes:
        results: Label -> phase -> entry of `summary.json`; of the interval evaluations the newest.
    """

    def __init__(
        self,
        tasks: Mapping[str, HeldOutTask],
        model: EvaluatedModel,
        scoring: Scoring,
        *,
        run: Path | None = None,
        callbacks: Callbacks | None = None,
        names: MetricNames | None = None,
        should_stop: Callable[[], bool] = lambda: False,
        max_abstain_share: float = 0.5,
    ) -> None:
        self.results: dict[str, dict[str, dict[str, Any]]] = {label: {} for label in tasks}
        self._tasks, self._model, self._scoring, self._run = tasks, model, scoring, run
        self._callbacks, self._should_stop = callbacks or Callbacks(), should_stop
        self._max_abstain_share = max_abstain_share
        self._entries = TrainingEntries(names or MetricNames(), partial(self._callbacks.warn_once, kind="metrics"))
        self._newest: dict[tuple[str, int], Evaluation] = {}  # the end may fall on an interval: no need to do it twice
        self._folders: dict[str, EvaluationFolder] = {}
        if run is not None and model.ranks.is_main:
            output_dir, name = evaluation_dir(run), run.resolve().name
            self._folders = {label: EvaluationFolder(output_dir, name, label) for label in tasks}

    def due(self, phase: EvalPhase, step: int) -> list[str]:
        """Labels of the tasks that are evaluated in a phase after `step` steps."""
        return [label for label, held in self._tasks.items() if held.plan.is_due(phase, step)]

    def judged_rate(self, step: int) -> float | None:
        """Number by which the best checkpoint is chosen; None where a task was not evaluated after `step`.

        The mean solved rate of the tasks that are evaluated most often: the same ones at each of these steps. Where
        too much of a task was not scored it is None, with a warning: the rate of an outage says nothing of the model.
        """
        intervals = {label: held.plan.interval_steps for label, held in self._tasks.items()}
        shortest = min((every for every in intervals.values() if every is not None), default=None)
        judges = [label for label, every in intervals.items() if every == shortest is not None]
        if not judges or not set(judges) <= set(self.due("interval", step)):
            return None
        results = [self.results[label]["interval"] for label in judges]
        for label, result in zip(judges, results, strict=True):
            unscored = result["abstained"]
            total = len(self._tasks[label].rows) * result["completions_per_row"]
            if result["solved_rate"] is None or unscored > self._max_abstain_share * total:
                self._callbacks.on_warning(
                    f"{label}: {unscored} of {total} completions were not scored, so this evaluation is left out of "
                    f"the choice of the best checkpoint and of patience (scoring.max_abstain_share is "
                    f"{self._max_abstain_share:g})"
                )
                return None
        return fmean(result["solved_rate"] for result in results)

    def run(self, phase: EvalPhase, step: int) -> dict[str, float]:
        """Evaluate the tasks that are due and tell the callbacks; later evaluations are compared with phase `initial`.

        Args:
            phase: `initial` before the first step, `interval` or `final`.
            step: Steps done.

        Returns:
            `eval/TASK/solved_rate` and the other metrics.

        Raises:
            StopRequested: `should_stop` is true; tasks done until then are in `results`.
        """
        metrics: dict[str, float] = {}
        for label in self.due(phase, step):
            held = self._tasks[label]
            what = f"{phase} evaluation of {label}" if phase != "interval" else f"evaluation of {label} at step {step}"
            evaluation = self._newest.pop((label, step), None) or self.evaluate_rows(label, held.rows, what)
            self._newest = {key: kept for key, kept in self._newest.items() if key[1] == step}
            self._newest[label, step] = evaluation
            result = self.results[label][phase] = self._entries.make(
                evaluation,
                held.task,
                label,
                Moment(phase, step, self._run),
                seed=held.plan.settings.seed,
                with_report=self._model.ranks.is_main,
            )
            for warning in unscored_warnings(label, evaluation):
                self._callbacks.on_warning(warning)
            self._write(label, held, phase, step, evaluation, result)
            metrics |= evaluation_metrics(label, {**result, "timing": evaluation.timing()})
            self._callbacks.on_evaluation(label, phase, result)
        return metrics

    def evaluate_rows(self, label: str, rows: Sequence[Row], what: str) -> Evaluation:
        """Evaluate some rows of a task, as a ladder's rung; of the callbacks only progress is called.

        Args:
            label: Task label.
            rows: Rows of the task.
            what: Name of the evaluation in progress messages.

        Raises:
            StopRequested: `should_stop` is true.
        """
        held = self._tasks[label]
        hooks = EvaluationHooks(
            progress=partial(self._callbacks.on_progress, what),
            should_stop=self._should_stop,
            warn=self._callbacks.on_warning,
        )
        return evaluate_rows(held.task, rows, held.plan.settings, self._model, self._scoring[label], hooks)

    def state(self) -> dict[str, Any]:
        """State of the evaluations as JSON, for `load_state` of a resumed run."""
        initial = {label: rates.as_json() for label, rates in self._entries.initial.items()}
        return {"initial": initial, "results": self.results}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`; a task that is new has no control."""
        self._entries.initial = {
            label: RowRates.from_json(rates) for label, rates in state["initial"].items() if label in self._tasks
        }
        self.results |= {label: results for label, results in state["results"].items() if label in self.results}

    def _write(
        self, label: str, held: HeldOutTask, phase: EvalPhase, step: int, evaluation: Evaluation, result: dict[str, Any]
    ) -> None:
        if label not in self._folders:
            return
        folder, settings = self._folders[label], held.plan.settings
        name = {"initial": BASE, "interval": f"step_{step}", "final": "step_final"}[phase]
        target, run = folder.results(name, settings), str(self._run.resolve() if self._run else "")
        policy = self._model.policy
        assert policy is not None, "a policy in training runs in this process"
        model = policy.source.name
        meta = meta_of(evaluation, held.task, settings, result, run=run, step=name, model=model, adapter=None)
        meta = replace(meta, precision=policy.precision_name, steps_done=step)
        try:
            if (target / META).is_file() and read_meta(target).run != run:
                raise UserError(f"{target} belongs to another run of this name; it is left as it is.")
            write_results(target, evaluation, meta)
            folder.write_config({"task": held.task.spec, "run": run, **settings.deciding()})
            folder.consolidate(settings, BASE)
        except (UserError, OSError) as error:  # a full disk here must not end the training
            self._callbacks.on_warning(f"the evaluation's files are not written: {error}")
