"""The training loop: prompts → completions → scores → advantages → loss → optimizer step → log.

The same loop in one file, with torch alone, is `examples/minimal_grpo.py`: read that first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from grpo_core.policy.ranks import Ranks
from grpo_core.policy.reference import REFERENCE_DIR
from grpo_core.training.advantages import AdvantageEstimator
from grpo_core.training.batch import Snapshot, TrainBatch, collate
from grpo_core.training.batches import Batches
from grpo_core.training.collect import Collected
from grpo_core.training.evaluations import Evaluations
from grpo_core.training.judging import RunJudges
from grpo_core.training.report import Report
from grpo_core.training.result import RunResult
from grpo_core.training.run_checkpoints import Checkpoints
from grpo_core.training.run_folder import RunFolder
from grpo_core.training.setup import Setup, follows_time
from grpo_core.training.state import RunState, store_reference
from grpo_core.training.stop import RunClock, StopSwitch
from grpo_core.training.trl_backend import TrlBackend, trl_choices
from grpo_core.training.update import Updater
from grpo_sdk.callbacks import Callbacks, ResolvedDefault
from grpo_sdk.endpoints.base import StopRequested, free_memory


class Trainer:
    """One run, from its first evaluation to its summary.

    Args:
        setup: Configuration, tasks, rows, policy, scorers and plan.
        folder: The run's folder.
        callbacks: Notified of progress, results and warnings; none on all ranks but the first.
        choices: Choices made before the setup's.
        resources: Closes what is opened here.
        ranks: The processes of the run; the first one writes and notifies.
    """

    def __init__(
        self,
        setup: Setup,
        folder: RunFolder,
        callbacks: Callbacks,
        choices: Sequence[ResolvedDefault],
        resources: ExitStack,
        ranks: Ranks,
    ) -> None:
        config, plan = setup.config, setup.plan
        self.config, self.setup, self.policy, self.plan = config, setup, setup.policy, plan
        self.ranks, self.folder, self.callbacks = ranks, folder, callbacks
        self.choices = [*choices, *setup.choices, *trl_choices(setup, ranks)]
        self.report = Report(setup, folder, callbacks)
        self.judges = RunJudges(setup.scoring.scorers, ranks)
        is_timed = follows_time(config.trainer, plan.schedule_steps)
        self.clock = RunClock(ranks, config.trainer.max_minutes, follows_time=is_timed)
        self.stop = StopSwitch(config.trainer, ranks, self.clock, callbacks.on_stop, has_limits=not plan.is_extension)
        self.updater = Updater(
            self.policy, plan.algorithm, plan.schedule_steps, folder.path, ranks, max_turns=setup.tasks.max_turns,
            warn=callbacks.on_warning,
        )  # fmt: skip
        self.updater.forward.budget.make_room = partial(free_memory, setup.engine)
        self.estimator = AdvantageEstimator(plan.algorithm, setup.tasks.trained)
        self.batches = Batches(
            setup, ranks, resources, greedy=self.estimator.needs_greedy, should_stop=lambda: self.stop.requested,
            on_wait=partial(callbacks.on_progress, "waiting for scores"),
        )  # fmt: skip
        self.evaluations = Evaluations(
            setup, folder, ranks, resources, callbacks, self.stop, updates=lambda: self.updater.optimizer.updates
        )
        self.state = RunState(
            setup, self.updater, self.estimator, self.batches, self.evaluations, self.report, self.clock, ranks
        )
        self.checkpoints = Checkpoints(folder.checkpoints, self.state, resources, callbacks.on_warning)

    @property
    def step(self) -> int:
        """Steps done."""
        return self.state.step

    def run(self, checkpoint: Path | None = None) -> RunResult:
        """Evaluate, train, evaluate again, save.

        Args:
            checkpoint: Where a run that was stopped goes on; the policy is the one that it holds.
        """
        if checkpoint is not None:
            self.state.load(checkpoint)
        self.stop.count_from(self.step)
        store_reference(self.policy, self.folder.path, self.ranks)
        self.report.start(self.step, self.choices, None if self.plan.is_extension else self.clock.seconds_left)
        self.checkpoints.start(checkpoint)
        self.callbacks.on_choices(self.judges.measure_errors(self.callbacks.on_progress))
        is_done = False
        with self.stop.listen():
            try:
                self.evaluations.start(self.step)
                if checkpoint is not None:
                    self._follow_step()  # what the stop has interrupted
                self._train()
                is_done = self.step >= self.plan.total_steps or self.stop.is_over
            except StopRequested:
                self.state.undo_step()
                self.stop.request()
            except BaseException:
                if self.ranks.size == 1 and self.state.undo_step():  # of several ranks, one can't wait for the rest
                    self.checkpoints.save(self.step)
                raise
            self.checkpoints.end() if is_done else self.checkpoints.save(self.step)
            self.evaluations.end(self.step)
        optimizer = self.updater.optimizer
        facts = {
            "steps": self.step,
            "best": asdict(self.evaluations.best),
            "updates": optimizer.updates,
            "skipped_updates": optimizer.skipped,
            "interrupted": self.stop.requested,
            "seconds": round(self.clock.seconds, 3),
            "tokens": self.state.tokens,
            **self.judges.summary(),
        }
        return RunResult(self.folder.path, self.report.end(self.evaluations.results, facts), self.stop.requested)

    def _train(self) -> None:
        if self.config.trainer.backend == "trl":
            TrlBackend(
                self.setup, self.updater, self.ranks, self.report.memory, lambda: self.collect(self.step + 1),
                self.advantages, self._finish, self._is_over, self.clock.time_share, self.folder.path / REFERENCE_DIR,
            ).train(self.step)  # fmt: skip
            return
        while not self._is_over():
            with self.report.memory.phase("generate"):
                collected = self.collect(self.step + 1)  # prompts, completions, scores
            with self.report.memory.phase("update"):
                batch = self.advantages(collected)  # KL in reward, baseline, scaling
                update = partial(self.updater.update, batch, time_share=self.clock.time_share())  # loss, optimizer
                metrics = self.batches.while_training(self.step + 1, self.updater.optimizer.updates, update)
            self._finish(collected, batch, metrics)

    def _is_over(self) -> bool:
        if self.step >= self.plan.total_steps:
            return True
        return self.stop.due(self.step, self.plan.schedule_steps, self.evaluations.best.waited)

    def collect(self, step: int) -> Collected:
        """Sample and score the completions of a step, and log them."""
        start = self.state.step_start()
        ahead = start.ahead  # a batch that fails before it is trained on is drawn again
        self.state.unfinished = replace(start, ahead=None, mixture=start.mixture if ahead is None else ahead.prompts)
        collected = self.batches.next(step, self.updater.optimizer.updates)
        self.report.rollouts(step, collected)
        self.state.unfinished = start
        return replace(collected, metrics={**collected.metrics, **self.judges.step_metrics()})

    def advantages(self, collected: Collected) -> TrainBatch:
        """Turn completions into a batch with advantages, compared with one another and with the reference."""
        trainer = self.config.trainer
        tokens = collate(
            collected.rollouts,
            pad_id=self.policy.tokenizer.pad_token_id,
            mask_truncated=trainer.mask_truncated_completions,
        )
        # TRL has passes of its own.
        snapshot = self.updater.forward.snapshot(tokens) if trainer.backend == "native" else Snapshot()
        advantages, returns = self.estimator(
            tokens,
            snapshot,
            collected.rollouts,
            collected.rewards,
            collected.labels,
            beta=self.updater.beta.in_effect,
            greedy_rewards=collected.greedy_rewards,
        )
        return self.updater.batch(tokens, snapshot, advantages, returns)

    def _finish(self, collected: Collected, batch: TrainBatch, metrics: Mapping[str, float]) -> None:
        """Report a step, and do what follows it."""
        metrics = {
            **self.report.metrics(collected, batch),
            **self.estimator.metrics,
            **collected.metrics,
            "generate_s": collected.generate_s,
            **metrics,
        }
        self.state.step += 1
        self.state.tokens += batch.n_tokens
        self.state.unfinished = None
        self.updater.move_reference(self.step)
        self.report.step(self.step, collected, metrics, batch.n_tokens)
        self._follow_step()

    def _follow_step(self) -> None:
        """What follows a step, once: a stop may fall in between."""
        self.evaluations.after(self.step)  # ladder, interval, best
        self.checkpoints.after(self.step)
