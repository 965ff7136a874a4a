"""The training loop: prompts → completions → scores → advantages → loss → optimizer step → log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from grpo_core.config import ResolvedConfig, RunConfig, resolve
from grpo_core.policy.ranks import Ranks, in_contact, joined
from grpo_core.policy.reference import REFERENCE_DIR
from grpo_core.tracking.observe import Observers, observe
from grpo_core.tracking.presence import working_in
from grpo_core.training.advantages import AdvantageEstimator
from grpo_core.training.batch import TrainBatch, collate
from grpo_core.training.batches import Batches
from grpo_core.training.clock import RunClock
from grpo_core.training.collect import Collected
from grpo_core.training.evaluations import Evaluations, held_out_evaluator
from grpo_core.training.judging import RunJudges
from grpo_core.training.learning_rate import follows_time
from grpo_core.training.metrics import rollout_metrics
from grpo_core.training.random_state import seed_everything
from grpo_core.training.rank_config import agreed
from grpo_core.training.report import Report
from grpo_core.training.result import RunResult
from grpo_core.training.run_checkpoints import Checkpoints
from grpo_core.training.run_folder import RunFolder, shared_folder
from grpo_core.training.setup import Setup, prepare
from grpo_core.training.state import RunState, store_reference
from grpo_core.training.stop import StopSwitch
from grpo_core.training.stored_run import read_state
from grpo_core.training.trl_backend import TrlBackend, trl_choices
from grpo_core.training.update import Updater
from grpo_sdk.callbacks import Callback, Callbacks, ResolvedDefault
from grpo_sdk.endpoints.base import StopRequested, free_memory
from grpo_sdk.killable.importing import refuse_in_worker
from grpo_sdk.paths import check_makeable


def train(config: RunConfig | ResolvedConfig | None = None, callbacks: Sequence[Callback] = ()) -> RunResult:
    """Train a model on verifiable tasks; see `grpo_core.train`, which takes tasks and settings by themselves.

    Args:
        config: The run's configuration, which is resolved unless it is already; by default math.arithmetic on the
            embedded model.
        callbacks: Notified of progress, results and warnings.

    Raises:
        UserError: something in the configuration cannot be done; nothing was loaded or written where that was known.
        AbstentionLimitError: too many of a task's completions could not be scored.
        NonFiniteError: the model broke down.
    """
    refuse_in_worker("train()")
    resolved = config if isinstance(config, ResolvedConfig) else resolve(config or RunConfig())
    with ExitStack() as lock, ExitStack() as resources:  # unlocked when everything else is closed
        ranks = resources.enter_context(joined(resolved.config.device, resolved.config.trainer.ddp_timeout))
        resolved = agreed(resolved, ranks)
        if ranks.is_main:
            output_dir = resolved.config.output_dir
            check_makeable(Path(output_dir), f"output_dir={output_dir} ({resolved.sources['output_dir']})")
        observed = (
            observe(resolved.config, callbacks, resources, resolved.sources)
            if ranks.is_main
            else Observers(Callbacks(), ())
        )
        setup = prepare(resolved.config, resources, ranks)
        folder = resources.enter_context(closing(shared_folder(Path(resolved.config.output_dir), ranks)))
        if ranks.is_main:
            lock.enter_context(working_in(folder.path))
        choices = [*resolved.choices, *observed.choices]
        resources.enter_context(in_contact(folder.path))
        return Trainer(setup, folder, observed.callbacks, choices, resources, ranks).run()


class Trainer:
    """One run, from its first evaluation to its summary.

    Args:
        setup: Configuration, tasks, rows, scorers, policy and prompts.
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
        config = setup.config
        seed_everything(config.seed + ranks.rank)  # ranks drop out other units
        self.config, self.setup, self.policy = config, setup, setup.policy
        self.ranks, self.folder, self.callbacks = ranks, folder, callbacks
        self.choices = [*choices, *setup.choices, *trl_choices(setup, ranks)]
        trainer = config.trainer
        self.report = Report(config, setup, folder, callbacks)
        self.judges = RunJudges(setup.scoring.scorers, ranks)
        self.clock = RunClock(ranks, trainer.max_minutes, follows_time=follows_time(trainer, setup.schedule_steps))
        self.stop = StopSwitch(trainer, ranks, self.clock, callbacks.on_stop, has_limits=not setup.is_extension)
        self.updater = Updater(
            self.policy, setup.algorithm, setup.schedule_steps, folder.path, ranks, max_turns=setup.max_turns,
            warn=callbacks.on_warning,
        )  # fmt: skip
        self.updater.forward.budget.make_room = partial(free_memory, setup.engine)
        self.estimator = AdvantageEstimator(setup.algorithm, setup.mixture.tasks)
        self.batches = Batches(
            setup, ranks, resources, greedy=self.estimator.needs_greedy, should_stop=lambda: self.stop.requested,
            on_wait=partial(callbacks.on_progress, "waiting for scores"),
        )  # fmt: skip
        held = held_out_evaluator(setup, folder, ranks, resources, callbacks, should_stop=lambda: self.stop.requested)
        self.evaluations = Evaluations(
            config.curriculum, setup, held, folder, self.stop, callbacks.on_warning,
            updates=lambda: self.updater.optimizer.updates,
        )  # fmt: skip
        self.state = RunState(
            config, setup, self.updater, self.estimator, self.batches, self.evaluations, self.report, self.clock, ranks
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
            self.state.load(checkpoint, read_state(checkpoint))
        self.stop.count_from(self.step)
        store_reference(self.policy, self.folder.path, self.ranks)
        self.report.start(self.step, self.choices, self.clock)
        self.checkpoints.start(checkpoint)
        self.callbacks.on_choices(self.judges.measure_errors(self.callbacks.on_progress))
        is_done = False
        with self.stop.listen():
            try:
                self.evaluations.start(self.step)
                self._finish_interrupted(checkpoint)
                self._train()
                is_done = self.step >= self.setup.total_steps or self.stop.is_over
            except StopRequested:
                self.stop.request()
            except BaseException:
                if self.ranks.size == 1 and self.state.undo_step():  # of several ranks, one can't wait for the rest
                    self.checkpoints.save(self.step)
                raise
            self.checkpoints.end() if is_done else self.checkpoints.save(self.step)
            self.evaluations.end(self.step)
        summary = self.report.end(
            self.step,
            self.state.tokens,
            self.updater.optimizer,
            self.evaluations,
            self.clock,
            judges=self.judges.summary(),
            interrupted=self.stop.requested,
        )
        return RunResult(self.folder.path, summary, self.stop.requested)

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
        if self.step >= self.setup.total_steps:
            return True
        return self.stop.due(self.step, self.setup.schedule_steps, self.evaluations.best.waited)

    def _finish(self, collected: Collected, batch: TrainBatch, metrics: Mapping[str, float]) -> None:
        """Report a step, and do what follows it."""
        metrics = {**self._metrics(collected, batch), **metrics}
        self.state.finish_step(batch.n_tokens)
        self.updater.move_reference(self.step)
        self.report.step(self.step, collected, metrics, batch.n_tokens)
        self.evaluations.after(self.step)  # ladder, interval, best
        self.checkpoints.after(self.step)

    def collect(self, step: int) -> Collected:
        """Sample and score the completions of a step, and log them."""
        start = self.state.step_start()
        with self.batches.drawn_again_after_failure(start.mixture):
            collected = self.batches.next(step, self.updater.optimizer.updates)
            self.report.rollouts(step, collected)
        self.state.unfinished = start
        return replace(collected, metrics={**collected.metrics, **self.judges.step_metrics()})

    def advantages(self, collected: Collected) -> TrainBatch:
        """Turn completions into a batch with advantages, compared with one another and with the reference."""
        trainer, forward = self.config.trainer, self.updater.forward
        batch = collate(
            collected.rollouts,
            pad_id=self.policy.tokenizer.pad_token_id,
            mask_truncated=trainer.mask_truncated_completions,
        )
        return self.estimator(
            forward.freeze(batch) if trainer.backend == "native" else batch,  # TRL has passes of its own
            collected.rollouts,
            collected.rewards,
            collected.labels,
            beta=self.updater.beta.in_effect if forward.kl_in_reward else 0.0,
            greedy_rewards=collected.greedy_rewards,
        )

    def _metrics(self, collected: Collected, batch: TrainBatch) -> dict[str, float]:
        return {
            **rollout_metrics(collected.rollouts, collected.labels, collected.rewards, batch),
            **self.report.own_metrics(collected, batch),
            **self.estimator.metrics,
            **collected.metrics,
            "generate_s": collected.generate_s,
        }

    def _finish_interrupted(self, checkpoint: Path | None) -> None:
        """Finish what a stop has interrupted: what follows a step."""
        if checkpoint is not None:
            self.evaluations.after(self.step)
            self.checkpoints.after(self.step)
