"""The training loop: load task → rows → prompts → G completions → score → advantages → loss → step → log."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from grpo_core.callbacks import Callback, Choice, EvalPhase, RunInfo, Sample, StepRecord
from grpo_core.checkpoints import write_json
from grpo_core.checkpoints.names import checkpoint_name
from grpo_core.config import RunConfig, resolve
from grpo_core.curriculum import LadderCurriculum
from grpo_core.engines.base import StopRequested
from grpo_core.engines.native import NativeEngine
from grpo_core.evaluation.held_out import HeldOutEvaluator
from grpo_core.evaluation.memory import peak_memory_mib
from grpo_core.killable.importing import refuse_in_worker
from grpo_core.policy.policy import REFERENCE_DIR
from grpo_core.rollout import Rollout
from grpo_core.scoring import check_abstentions, reason_head
from grpo_core.task_metrics import step_numbers
from grpo_core.tracking.observe import Observers, observe
from grpo_core.tracking.presence import working_in
from grpo_core.tracking.runs import ENDLESS
from grpo_core.training.advantages import AdvantageEstimator
from grpo_core.training.batch import collate
from grpo_core.training.best import Best
from grpo_core.training.collect import Collector
from grpo_core.training.ending import reason_to_end
from grpo_core.training.interrupt import stop_on_signal
from grpo_core.training.metrics import rollout_metrics
from grpo_core.training.provenance import tasks_of, versions
from grpo_core.training.random_state import gathered_random_state, seed_everything
from grpo_core.training.rollout_log import batch_origin
from grpo_core.training.run_folder import RUN_FORMAT_VERSION, RunFolder, SilentFolder
from grpo_core.training.samples import samples_of
from grpo_core.training.schedules import follows_time
from grpo_core.training.setup import Setup, prepare
from grpo_core.training.state import INFO_FILE, Buffer, load_state, optimizer_tensors, save_state, training_info
from grpo_core.training.update import Updater, mean_metrics
from grpo_core.training.world import World, joined


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run leaves.

    Attributes:
        run_dir: Its folder.
        summary: What summary.json holds.
        interrupted: Whether the user stopped it; everything up to then is saved.
    """

    run_dir: Path
    summary: dict[str, Any]
    interrupted: bool


def train(
    config: RunConfig | None = None, callbacks: Sequence[Callback] = (), choices: Sequence[Choice] = ()
) -> RunResult:
    """Train a model on verifiable tasks.

    Args:
        config: Everything about the run; by default math.arithmetic on the embedded model.
        callbacks: Told of what happens.
        choices: Choices made before, to be shown with the run's own.

    Raises:
        UserError: something in the configuration cannot be done; nothing was loaded or written where that was known.
        AbstentionLimitError: too many of a task's completions could not be scored.
        NonFiniteError: the model broke down.
    """
    refuse_in_worker("train()")
    resolved = resolve(config or RunConfig())
    with ExitStack() as lock, ExitStack() as resources:  # unlocked when everything else is closed
        world = resources.enter_context(joined(resolved.config.device))
        observed = observe(resolved.config, callbacks, resources) if world.is_main else Observers((), ())
        setup = prepare(resolved.config, resources, world)
        folder = resources.enter_context(closing(_folder(Path(resolved.config.output_dir), world)))
        if world.is_main:
            lock.enter_context(working_in(folder.path))
        chosen = [*choices, *resolved.choices, *observed.choices]
        return Trainer(resolved.config, setup, folder, observed.callbacks, chosen, resources, world).run()


def _folder(output_dir: Path, world: World) -> RunFolder:
    """A new folder, which the first rank makes and names to the others."""
    if world.is_main:
        folder = RunFolder(output_dir)
        world.from_main(os.fsencode(folder.path))
        return folder
    return SilentFolder(Path(os.fsdecode(world.from_main(b""))))


AFTER_STEP = ("climb", "evaluate", "save")
"""What follows a step, in order."""


class Trainer:
    """One run, from its first evaluation to its summary.

    Args:
        config: Everything about the run.
        setup: Tasks, rows, scorers, policy and prompts.
        folder: Of the run.
        callbacks: Told of what happens.
        choices: Choices made before the setup's.
        resources: Closes what is opened here.
        world: The processes of the run; the first one evaluates, writes and speaks.

    Attributes:
        step: Steps done.
        tokens: Completion tokens trained on.
        buffer: The batch that a stop fell into.
        stop_at: Step at which this call ends, as `trainer.stop_after` asks.
    """

    def __init__(
        self,
        config: RunConfig,
        setup: Setup,
        folder: RunFolder,
        callbacks: Sequence[Callback],
        choices: Sequence[Choice],
        resources: ExitStack,
        world: World,
    ) -> None:
        self.config, self.setup, self.world = config, setup, world
        self.callbacks = callbacks if world.is_main else ()
        self.policy, self.mixture = setup.policy, setup.mixture
        seed_everything(config.seed + world.rank)  # ranks drop out other units
        self.engine = NativeEngine(
            self.policy.model, self.policy.tokenizer, max_batch_tokens=config.engine.max_batch_tokens
        )
        self.folder = folder
        self.updater = Updater(
            self.policy, config.trainer, setup.schedule_steps, self.folder.path, world, max_turns=setup.max_turns
        )
        self.estimator = AdvantageEstimator(config.trainer, self.mixture.tasks)
        self.choices = [*choices, *setup.choices]
        self.step = self.tokens = 0
        self.buffer: Buffer | None = None
        self._pending: list[str] = []
        self._is_final = False
        self._set_stop()
        self._stop = threading.Event()
        self.collector = Collector(
            config,
            setup,
            self.engine,
            greedy=self.estimator.needs_greedy,
            should_stop=self._stop.is_set,
            world=world,
        )
        self.best = Best()
        self.evaluator = HeldOutEvaluator(
            config,
            self.policy,
            self.engine,
            setup.held_out,
            resources,
            scorers=setup.scorers,
            opponents=setup.opponents,
            run=folder.path,
            ranks=world,
            callbacks=self.callbacks,
            names=setup.metric_names,
            warn_once=lambda problem: self._warn_once("metrics", problem, problem),
            should_stop=self._stop.is_set,
        )
        self._started = time.monotonic()
        self._warned: set[tuple[str, str]] = set()

    def run(self) -> RunResult:
        """Evaluate, train, evaluate again, save."""
        self._announce()
        is_done = False
        with stop_on_signal(self._stop, self._warn, may_insist=self.world.size == 1):
            try:
                self._evaluate_start()
                self._finish_step()
                while not self._is_over():
                    self._check_stop()
                    self.train_step()
                    self._finish_step()
                is_done = True
            except StopRequested:
                self._stop.set()
            finally:
                # Also when the run fails: what was learned until then is not lost. A rank that fails can't wait for
                # the others, who are ended; their last checkpoint stands.
                if (is_done or self._stop.is_set() or self.world.size == 1) and not (is_done and self._is_final):
                    self.save("final" if is_done else self.step)
            if self.evaluator.due("final", self.step) and not self._is_to_stop():
                with suppress(StopRequested):
                    self._evaluate("final")
        summary = self._summary()
        self.folder.write_summary(summary)
        for callback in self.callbacks:
            callback.on_run_end(summary, self.folder.path)
        return RunResult(self.folder.path, summary, self._stop.is_set())

    def train_step(self) -> None:
        """One batch of prompts: sample, score, compare within groups, update, log."""
        started = time.perf_counter()
        if self.buffer is None:
            self.buffer, samples = self._next_batch()
        else:  # the run was stopped inside this batch
            samples = []
        sampled, batch = time.perf_counter(), self.buffer.batch
        self.updater.time_share = self._time_share()
        if not self.updater.update(batch, self.buffer.taken, self._is_to_stop):
            raise StopRequested
        metrics = {**self.buffer.metrics, **mean_metrics(self.buffer.taken)}
        self.step, self.buffer, self._pending = self.buffer.step, None, [*AFTER_STEP]
        self._is_final = False
        now, tokens = time.perf_counter(), batch.n_tokens
        self.tokens += tokens
        metrics |= {
            "tokens_per_s": tokens / (now - started),
            "update_s": now - sampled,
            "step_s": now - started,
            "peak_memory_mib": peak_memory_mib(self.policy.device),
            "skipped_updates": float(self.updater.skipped),
        }
        if self.step % self.config.trainer.logging_steps == 0 or self.step == self.setup.total_steps:
            self.folder.log_step(self.step, metrics)
            for callback in self.callbacks:
                callback.on_step(StepRecord(self.step, metrics, samples))

    def _next_batch(self) -> tuple[Buffer, list[Sample]]:
        """Sample, score and compare the next step's completions, and log them."""
        config, step, started = self.config.trainer, self.step + 1, time.perf_counter()
        before = self.mixture.state()
        try:
            self.policy.model.eval()
            self.engine.sync(self.updater.updates)
            collected = self.collector.collect(step)
            rollouts, labels = collected.rollouts, collected.labels
            rewards = self.collector.rewards(rollouts)
            generate_s = time.perf_counter() - started
            origin = batch_origin(
                self.config, self.mixture, self.policy.tokenizer, collected, rewards.tolist(), generate_s
            )
            self.folder.log_rollouts(step, rollouts, self.setup.identities, origin)
            self._check_abstentions(rollouts, labels)
        except BaseException:
            self.mixture.load_state(before)  # these prompts were not trained on: they are still to come
            raise
        batch = collate(
            rollouts, pad_id=self.policy.tokenizer.pad_token_id, mask_truncated=config.mask_truncated_completions
        )
        batch = self.updater.passes.freeze(batch)
        batch = self.estimator(
            batch,
            rollouts,
            rewards,
            labels,
            beta=self.updater.beta.in_effect if self.updater.passes.kl_in_reward else 0.0,
            greedy_rewards=collected.greedy_rewards,
        )
        metrics = {
            **rollout_metrics(rollouts, labels, rewards, batch),
            **self._task_metrics(rollouts, labels),
            **self.estimator.metrics,
            **collected.metrics,
            "generate_s": generate_s,
        }
        shown = samples_of(collected.prompted, rollouts, self.config.trainer.log_completions)
        return Buffer(step, batch, metrics), shown

    def _finish_step(self) -> None:
        """What follows a step, each once also where a stop falls in between; then the stop that was asked for."""
        while self._pending:
            match self._pending[0]:
                case "climb":
                    self._climb()
                case "evaluate":
                    self._evaluate_interval()
            if self._pending.pop(0) == "save":
                self._save_if_due()
        if self.stop_at is not None and self.step >= self.stop_at and self.step < self.setup.total_steps:
            self._warn(f"stopping after step {self.step}: trainer.stop_after")
            raise StopRequested

    def _evaluate_interval(self) -> None:
        """Evaluate where a step is due for it, and note whether it is the best so far."""
        if not self.evaluator.due("interval", self.step):
            return
        with suppress(StopRequested):
            self._evaluate("interval")
        self._check_stop()
        rate = self.evaluator.judged_rate(self.step)
        if rate is not None:
            self.best.report(self.step, rate)

    def _save_if_due(self) -> None:
        config = self.config.trainer
        is_best = config.keep_best and self.best.step == self.step
        if is_best or (config.save_every is not None and self.step % config.save_every == 0):
            self.save(self.step)

    def save(self, which: int | Literal["final"]) -> None:
        """Write a checkpoint: everything that `grpo resume` needs, whole or not at all."""
        store = self.folder.checkpoints
        randomness, weights = gathered_random_state(self.world), self.policy.weights()
        moments = optimizer_tensors(self.updater.optimizer)
        if self.world.is_main:
            with store.writing(which) as folder:
                self.policy.save(folder / "model", weights)
                save_state(folder, self.updater, self.state(), self.buffer, moments, randomness)
                write_json(folder / INFO_FILE, training_info(self))
            if self.config.trainer.keep_last is not None:
                kept = [] if self.best.step is None else [self.best.step]
                store.prune(keep_last=self.config.trainer.keep_last, keep=kept)

    def state(self) -> dict[str, Any]:
        """What the run has become beside weights and optimizer, as JSON."""
        return {
            "version": RUN_FORMAT_VERSION,
            "step": self.step,
            "planned_steps": ENDLESS if self.setup.schedule_steps is None else self.setup.schedule_steps,
            "end_step": self.setup.total_steps,
            "is_extension": self.setup.is_extension,
            "pending": list(self._pending),
            "tokens": self.tokens,
            "seconds": time.monotonic() - self._started,
            "mixture": self.mixture.state(),
            "baseline": dict(self.estimator.state),
            "warned": sorted(self._warned),
            "evaluator": self.evaluator.state(),
            "best": self.best.as_json(),
        }

    def load_state(self, folder: Path, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint whose model the policy already is.

        Args:
            folder: The checkpoint.
            state: Of `read_state`.
        """
        self.step, self.tokens = int(state["step"]), int(state["tokens"])
        self._pending, self._is_final = list(state["pending"]), folder.name == checkpoint_name("final")
        self._started = time.monotonic() - float(state["seconds"])
        self.mixture.load_state(state["mixture"])
        self.estimator.state = dict(state["baseline"])
        self._warned = {(label, reason) for label, reason in state["warned"]}
        self.evaluator.load_state(state["evaluator"])
        self.best = Best(**state["best"])
        self.buffer = load_state(folder, self.updater, state, rank=self.world.rank, seed=self.config.seed)
        self._set_stop()

    def _announce(self) -> None:
        self.folder.write_config(self.setup.config_yaml)
        reference = self.folder.path / REFERENCE_DIR
        is_stored = bool(self.world.from_main(b"stored" if reference.exists() else b""))
        if self.policy.has_reference and not is_stored:
            weights = self.policy.reference_weights()
            if self.world.is_main:
                self.policy.save_reference(reference, weights)
        held = self.setup.held_out
        counts = {
            label: (len(self.setup.rows[label]), len(held[label].task.rows()) if label in held else 0)
            for label in self.mixture.tasks
        }
        for callback in self.callbacks:
            callback.on_run_start(
                RunInfo(self.folder.path, counts, self.choices, self.setup.total_steps, self._seconds_left())
            )

    def _seconds_left(self) -> float | None:
        limit = self.config.trainer.max_minutes
        if limit is None or self.setup.is_extension:
            return None
        return max(0.0, 60 * limit - (time.monotonic() - self._started))

    def _set_stop(self) -> None:
        stop_after = self.config.trainer.stop_after
        self.stop_at = None if stop_after is None else self.step + stop_after

    def _is_to_stop(self) -> bool:
        """Whether any rank was asked to stop: all stop together."""
        if self.world.any(self._stop.is_set()):
            self._stop.set()
        return self._stop.is_set()

    def _check_stop(self) -> None:
        if self._is_to_stop():
            raise StopRequested

    def _evaluate_start(self) -> None:
        """The starting model's evaluation: done once in a run's life."""
        due = self.evaluator.due("base", self.step)
        if self.step == 0 and not all("base" in self.evaluator.results[label] for label in due):
            with suppress(StopRequested):
                self._evaluate("base")
        self._check_stop()  # the ranks meet here

    def _evaluate(self, phase: EvalPhase) -> None:
        """Evaluate the tasks that are due, each rank a share of their rows, and log it."""
        self.policy.model.eval()
        self.engine.sync(self.updater.updates)
        metrics = self.evaluator.run(phase, self.step)
        self.folder.log_evaluation(self.step, phase, metrics)

    def _summary(self) -> dict[str, Any]:
        tasks: dict[str, dict[str, Any]] = {
            label: {"identity": self.setup.identities[task.spec], "conditions": dict(task.conditions)}
            for label, task in self.mixture.tasks.items()
        }
        for label, results in self.evaluator.results.items():
            held = self.setup.held_out[label].task
            entry = tasks.setdefault(label, {"identity": held.identity, "conditions": dict(held.conditions)})
            if (overlap := self.setup.held_out[label].overlap) is not None:
                entry["also_trained"] = overlap.as_json()
            entry |= {phase: result for phase, result in results.items() if phase != "interval"}
        return {
            "tasks": tasks,
            "task": self.config.task,
            "model": self.config.model,
            "steps": self.step,
            "planned_steps": self.setup.total_steps,
            "best": self.best.as_json(),
            "updates": self.updater.updates,
            "skipped_updates": self.updater.skipped,
            "interrupted": self._stop.is_set(),
            "seconds": round(time.monotonic() - self._started, 3),
            "tokens": self.tokens,
            "peak_memory_mib": peak_memory_mib(self.policy.device),
            "seed": self.config.seed,
            "versions": versions(tasks_of(self.setup).values()),
            "run_dir": str(self.folder.path),
        }

    def _check_abstentions(self, rollouts: Sequence[Rollout], labels: Sequence[str]) -> None:
        for label in self.mixture.tasks:
            scores = [
                r.score for r, name in zip(rollouts, labels, strict=True) if name == label and r.score is not None
            ]
            check_abstentions(scores, label, self.config.scoring.max_abstain_share)
            for score in scores:
                if score.abstained:
                    said = f"{label}: a completion was not scored ({score.fault}): {score.why}"
                    self._warn_once(label, reason_head(score.why), said)

    def _task_metrics(self, rollouts: Sequence[Rollout], labels: Sequence[str]) -> dict[str, float]:
        """What the tasks say of the step themselves; what is wrong with it is told, and ends nothing."""
        scores = [rollout.score for rollout in rollouts if rollout.score is not None]
        values: dict[str, float] = {}
        for numbers in step_numbers(self.mixture.tasks, labels, scores, self.setup.metric_names).values():
            values |= numbers.values
            for problem in numbers.problems:
                self._warn_once("metrics", problem, problem)
        return values

    def _climb(self) -> None:
        """Evaluate the current rung of each ladder task on held-out rows, which may unlock the next."""
        curriculum = self.config.curriculum
        if self.step % curriculum.ladder_eval_steps:
            return
        for label, order in self.mixture.orders.items():
            if not isinstance(order, LadderCurriculum) or order.mastered:
                continue
            rung = order.rung
            rows = [row for row in self.setup.held_out[label].task.rows() if row.difficulty == rung]
            self.policy.model.eval()
            self.engine.sync(self.updater.updates)
            some = rows[: curriculum.ladder_eval_size]
            solved = self.evaluator.evaluate_rows(label, some, f"evaluation of rung {rung:g}").summary()
            rate, n = solved["solved_rate"] or 0.0, solved["n"]
            if order.report_held_out(rung, rate, n):
                reached = f"{label}: rung {rung:g} solved {rate:.2f} of {n} held-out rows"
                self._warn(f"{reached}; rung {order.rung:g} unlocked")

    def _is_over(self) -> bool:
        """Whether the run has come to its end: its last step, its time limit, or no better rate for too long."""
        if self.step >= self.setup.total_steps:
            return True
        if self.setup.is_extension:
            return False
        seconds = self._seconds() if self.config.trainer.max_minutes is not None else 0.0
        why = reason_to_end(self.config.trainer, seconds=seconds, waited=self.best.waited)
        if why and self.setup.schedule_steps is not None:
            self._warn(f"ended after step {self.step} of {self.setup.total_steps}: {why}")
        return bool(why)

    def _seconds(self) -> float:
        """Time that the run has taken, by the first rank's clock: every rank ends and learns by the same one."""
        return float(self.world.from_main(repr(time.monotonic() - self._started).encode()))

    def _time_share(self) -> float:
        """Share of the time limit that has passed, where the learning rate follows it."""
        if not follows_time(self.config.trainer, self.setup.schedule_steps):
            return 0.0
        assert self.config.trainer.max_minutes is not None, "a run without planned steps has a time limit"
        return self._seconds() / (60 * self.config.trainer.max_minutes)

    def _warn_once(self, about: str, what: str, message: str) -> None:
        if (about, what) not in self._warned:
            self._warned.add((about, what))
            self._warn(message)

    def _warn(self, message: str) -> None:
        for callback in self.callbacks:
            callback.on_warning(message)
