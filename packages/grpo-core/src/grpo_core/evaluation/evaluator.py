"""Evaluation inside a training run: the same held-out rows at its start, every few steps and at its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from grpo_core.checkpoints import evaluation_dir
from grpo_core.evaluation.answers import EvaluatedModel, EvaluationHooks, evaluate_rows
from grpo_core.evaluation.entry import Moment, entry_of
from grpo_core.evaluation.held_out import HeldOutTask
from grpo_core.evaluation.output import BASE, META, EvaluationFolder, NamedModel, read_meta
from grpo_core.evaluation.results import Evaluation, RowRates
from grpo_core.rollouts.task_scoring import Scoring
from grpo_core.tracking.evaluations import evaluation_metrics
from grpo_sdk.callbacks import Callbacks, EvalPhase
from grpo_sdk.errors import UserError
from grpo_sdk.scoring.metrics import MetricNames
from grpo_sdk.task.row import Row


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
        self._names, self._max_abstain_share = names, max_abstain_share
        self._initial: dict[str, RowRates] = {}
        self._newest: dict[tuple[str, int], Evaluation] = {}  # the end may fall on an interval: no need to do it twice

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
        is_main = self._model.ranks is None or self._model.ranks.is_main
        for label in self.due(phase, step):
            held = self._tasks[label]
            what = f"{phase} evaluation of {label}" if phase != "interval" else f"evaluation of {label} at step {step}"
            evaluation = self._newest.pop((label, step), None) or self.evaluate_rows(label, held.rows, what)
            self._newest = {key: kept for key, kept in self._newest.items() if key[1] == step}
            self._newest[label, step] = evaluation
            if phase == "initial":
                self._initial[label] = evaluation.rates()
            result = self.results[label][phase] = entry_of(
                evaluation,
                held,
                label,
                Moment(phase, step, self._run) if is_main else None,
                base=None if phase == "initial" else self._initial.get(label),
                names=self._names,
                warn=partial(self._callbacks.warn_once, kind="metrics"),
            )
            for warning in evaluation.unscored(label):
                self._callbacks.on_warning(warning)
            if self._run is not None and is_main:
                self._write(self._run, label, phase, step, evaluation)
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
        return evaluate_rows(held, rows, self._model, self._scoring[label], hooks)

    def state(self) -> dict[str, Any]:
        """State of the evaluations as JSON, for `load_state` of a resumed run."""
        return {"initial": {label: rates.as_json() for label, rates in self._initial.items()}, "results": self.results}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`; a task that is new has no control."""
        initial = state["initial"].items()
        self._initial = {label: RowRates.from_json(rates) for label, rates in initial if label in self._tasks}
        self.results |= {label: results for label, results in state["results"].items() if label in self.results}

    def _write(self, run: Path, label: str, phase: EvalPhase, step: int, evaluation: Evaluation) -> None:
        """Write an evaluation as `grpo eval --run` does, which then keeps it."""
        held, policy, of_run = self._tasks[label], self._model.policy, str(run.resolve())
        assert policy is not None, "a policy in training runs in this process"
        name = {"initial": BASE, "interval": f"step_{step}", "final": "step_final"}[phase]
        folder = EvaluationFolder(evaluation_dir(run), run.resolve().name, label)
        target, model = folder.results(name, held.settings), NamedModel(name, policy.source.name, None, step)
        entry = self.results[label][phase]
        try:
            if (target / META).is_file() and read_meta(target).run != of_run:
                raise UserError(f"{target} belongs to another run of this name; it is left as it is.")
            folder.write(evaluation, held, entry, model, run=of_run, precision=policy.precision_name)
            folder.write_config({"task": held.task.spec, "run": of_run, **held.settings.deciding()})
            folder.consolidate(held.settings, BASE)
        except (UserError, OSError) as error:  # a full disk here must not end the training
            self._callbacks.on_warning(f"the evaluation's files are not written: {error}")
