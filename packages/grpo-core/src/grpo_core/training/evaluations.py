"""Evaluations of a run on held-out rows, the best step, and the rungs of a ladder that they unlock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from typing import Any

from grpo_core.evaluation.candidate import in_process
from grpo_core.evaluation.evaluator import HeldOutEvaluator
from grpo_core.policy.ranks import Ranks
from grpo_core.prompts.curriculum import LadderCurriculum
from grpo_core.rollouts.task_scoring import Scoring
from grpo_core.training.run_folder import RunFolder
from grpo_core.training.setup import Setup
from grpo_core.training.stop import StopSwitch
from grpo_sdk.callbacks import Callbacks, EvalPhase
from grpo_sdk.endpoints.base import StopRequested, rest


@dataclass(slots=True)
class Best:
    """The best step so far, by its held-out solved rate.

    Attributes:
        step: Step of the best evaluation; None before the first.
        solved_rate: Its mean over the evaluated tasks.
        waited: Evaluations since then.
    """

    step: int | None = None
    solved_rate: float | None = None
    waited: int = 0

    def report(self, step: int, solved_rate: float) -> None:
        """Take an evaluation; an equal one is no better."""
        if self.solved_rate is not None and solved_rate <= self.solved_rate:
            self.waited += 1
        else:
            self.step, self.solved_rate, self.waited = step, solved_rate, 0


class Evaluations:
    """Evaluates before the first step, after those that are due, and at the end, with the policy that is trained.

    Args:
        setup: Tasks, policy and engine of the run.
        folder: Receives the results.
        ranks: The processes of the run.
        resources: Closes the scorers.
        callbacks: Notified of progress, results and warnings.
        stop: Ends an evaluation early.
        updates: Optimizer steps taken so far: the version of the weights.

    Attributes:
        best: The best step so far.
    """

    def __init__(
        self,
        setup: Setup,
        folder: RunFolder,
        ranks: Ranks,
        resources: ExitStack,
        callbacks: Callbacks,
        stop: StopSwitch,
        updates: Callable[[], int],
    ) -> None:
        config, held_out = setup.config, setup.tasks.held_out
        self._setup, self._folder, self._stop = setup, folder, stop
        self._warn, self._updates = callbacks.on_warning, updates
        model = in_process(
            setup.policy,
            setup.engine,
            tokens_at_once=config.engine.max_batch_tokens,
            prompts_at_once=config.eval.batch_size,
            warn=callbacks.on_warning,
            ranks=ranks,
        )
        tasks = {label: held.task for label, held in held_out.items()}
        self._evaluator = HeldOutEvaluator(
            held_out,
            model,
            resources.enter_context(Scoring(tasks, config.scoring, setup.policy, shared=setup.scoring)),
            run=folder.path,
            callbacks=callbacks,
            names=setup.tasks.metric_names,
            should_stop=lambda: stop.requested,
            max_abstain_share=config.scoring.max_abstain_share,
        )
        self.best = Best()
        # What follows a step is done once, also where a stop falls in between.
        self._ladder_step = self._interval_step = 0

    @property
    def results(self) -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
        """Task label -> phase -> entry of `summary.json`."""
        return self._evaluator.results

    def start(self, step: int) -> None:
        """Evaluate the starting model, once in a run's life.

        Raises:
            StopRequested: a rank was asked to stop.
        """
        due = self._evaluator.due("initial", step)
        if step == 0 and not all("initial" in self.results[label] for label in due):
            self._evaluate("initial", step)
        self._check_stop()  # the ranks meet here

    def after(self, step: int) -> None:
        """Evaluate what is due after a step, unless that was done before a stop.

        Raises:
            StopRequested: a rank was asked to stop; the rest is done when the run is resumed.
        """
        if self._ladder_step < step:
            self._unlock_rungs(step)
            self._ladder_step = step
        if self._interval_step < step and self._evaluator.due("interval", step):
            self._evaluate("interval", step)
            self._check_stop()
            rate = self._evaluator.judged_rate(step)
            if rate is not None:
                self.best.report(step, rate)
        self._interval_step = step

    def end(self, step: int) -> None:
        """Evaluate the trained model, unless a rank was asked to stop."""
        if self._evaluator.due("final", step) and not self._stop.agreed():
            self._evaluate("final", step)

    def _evaluate(self, phase: EvalPhase, step: int) -> None:
        """Evaluate the tasks that are due, each rank a share of their rows, and log the results."""
        self._sync()
        with suppress(StopRequested):
            self._folder.log_evaluation(step, phase, self._evaluator.run(phase, step))
        rest(self._setup.engine)

    def _unlock_rungs(self, step: int) -> None:
        """Evaluate the current rung of each ladder task on held-out rows, which may unlock the next."""
        curriculum = self._setup.config.curriculum
        if step % curriculum.ladder_eval_steps:
            return
        for label, order in self._setup.data.mixture.orders.items():
            if not isinstance(order, LadderCurriculum) or order.mastered:
                continue
            rung = order.rung
            rows = [row for row in self._setup.tasks.held_out[label].task.rows() if row.difficulty == rung]
            self._sync()
            rows = rows[: curriculum.ladder_eval_size]
            solved = self._evaluator.evaluate_rows(label, rows, f"evaluation of rung {rung:g}").summary()
            rate, n = solved["solved_rate"] or 0.0, solved["n"]
            if order.report_held_out(rung, rate, n):
                reached = f"{label}: rung {rung:g} solved {rate:.2f} of {n} held-out rows"
                self._warn(f"{reached}; rung {order.rung:g} unlocked")

    def _sync(self) -> None:
        self._setup.policy.model.eval()
        self._setup.engine.sync(self._updates())

    def _check_stop(self) -> None:
        if self._stop.agreed():
            raise StopRequested

    def state(self) -> dict[str, Any]:
        """Everything that a resumed run needs, as JSON."""
        return {
            "evaluator": self._evaluator.state(),
            "best": asdict(self.best),
            "ladder_step": self._ladder_step,
            "interval_step": self._interval_step,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        self._evaluator.load_state(state["evaluator"])
        self.best = Best(**state["best"])
        self._ladder_step, self._interval_step = int(state["ladder_step"]), int(state["interval_step"])
