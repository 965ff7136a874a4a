"""The training loop: load task → rows → prompts → G completions → score → advantages → loss → step → log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from grpo_core.callbacks import Callback, Choice, EvalPhase, RunInfo, Sample, StepRecord
from grpo_core.config import RunConfig, resolve
from grpo_core.curriculum import LadderCurriculum
from grpo_core.engines.base import Sampling, StopRequested
from grpo_core.engines.native import NativeEngine
from grpo_core.evaluation.evaluate import Evaluation, evaluate_task
from grpo_core.rollout import Rollout
from grpo_core.scoring import check_abstentions, reason_head
from grpo_core.task import Row
from grpo_core.training.advantages import AdvantageEstimator
from grpo_core.training.batch import collate
from grpo_core.training.collect import Collector
from grpo_core.training.interrupt import stop_on_signal
from grpo_core.training.metrics import peak_memory_mib, rollout_metrics, versions
from grpo_core.training.rollouts import Prompted
from grpo_core.training.run_folder import RunFolder
from grpo_core.training.setup import Setup, prepare
from grpo_core.training.update import Updater


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
    resolved = resolve(config or RunConfig())
    with ExitStack() as resources:
        setup = prepare(resolved.config, resources)
        return Trainer(resolved.config, setup, callbacks, [*choices, *resolved.choices], resources).run()


class Trainer:
    """One run, from its first evaluation to its summary.

    Args:
        config: Everything about the run.
        setup: Tasks, rows, scorers, policy and prompts.
        callbacks: Told of what happens.
        choices: Choices made before the setup's.
        resources: Closed when the run ends.
    """

    def __init__(
        self,
        config: RunConfig,
        setup: Setup,
        callbacks: Sequence[Callback],
        choices: Sequence[Choice],
        resources: ExitStack,
    ) -> None:
        self.config, self.setup, self.callbacks = config, setup, callbacks
        self.policy, self.mixture = setup.policy, setup.mixture
        torch.manual_seed(config.seed)
        self.engine = NativeEngine(
            self.policy.model, self.policy.tokenizer, max_batch_tokens=config.engine.max_batch_tokens
        )
        self.folder = RunFolder(Path(config.output_dir))
        resources.callback(self.folder.close)
        self.updater = Updater(self.policy, config.trainer, setup.total_steps, self.folder.path)
        self.estimator = AdvantageEstimator(config.trainer, self.mixture.tasks)
        self.choices = [*choices, *setup.choices]
        self.step = self.tokens = 0
        self._stop = threading.Event()
        self.collector = Collector(
            config, setup, self.engine, greedy=self.estimator.needs_greedy, should_stop=self._stop.is_set
        )
        self._started = time.monotonic()
        self._warned: set[tuple[str, str]] = set()

    def run(self) -> RunResult:
        """Evaluate, train, evaluate again, save."""
        config = self.config
        self.folder.write_config(self.setup.config_yaml)
        if self.policy.has_reference:
            self.policy.save_reference(self.folder.path / "reference")
        counts = {
            label: (len(self.setup.rows[label]), len(self.setup.held_out[label].rows()) if self.setup.held_out else 0)
            for label in self.mixture.tasks
        }
        for callback in self.callbacks:
            callback.on_run_start(RunInfo(self.folder.path, counts, self.choices, self.setup.total_steps))
        base: dict[str, Evaluation] = {}
        final: dict[str, Evaluation] = {}
        with stop_on_signal(self._stop, self._warn):
            if config.eval.at_start:
                base = self._evaluate("base", {})
            try:
                while self.step < self.setup.total_steps and not self._out_of_time():
                    if self._stop.is_set():
                        raise StopRequested
                    self.train_step()
                    self._climb()
            except StopRequested:
                self._stop.set()
            finally:
                # Also when the run fails: what was learned until then is not lost.
                self.folder.save_final(self.policy, self.state())
            if config.eval.at_end and not self._stop.is_set():
                final = self._evaluate("final", base)
        summary = self._summary(base, final)
        self.folder.write_summary(summary)
        for callback in self.callbacks:
            callback.on_run_end(summary, self.folder.path)
        return RunResult(self.folder.path, summary, self._stop.is_set())

    def train_step(self) -> None:
        """One batch of prompts: sample, score, compare within groups, update, log."""
        config, started = self.config.trainer, time.perf_counter()
        step = self.step + 1
        before = self.mixture.state()
        try:
            self.policy.model.eval()
            self.engine.sync(self.updater.updates)
            collected = self.collector.collect(step)
        except StopRequested:
            self.mixture.load_state(before)  # these prompts were not trained on: they are still to come
            raise
        sampled = time.perf_counter()
        prompted, rollouts, labels = collected.prompted, collected.rollouts, collected.labels
        self.folder.log_rollouts(step, rollouts, self.setup.identities)
        self._check_abstentions(rollouts, labels)

        rewards = self.collector.rewards(rollouts)
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
        updated = self.updater.update(batch)

        self.step = step
        now, tokens = time.perf_counter(), int(batch.completion_lens.sum())
        self.tokens += tokens
        timing = {
            "tokens_per_s": tokens / (now - started),
            "generate_s": sampled - started,
            "update_s": now - sampled,
            "step_s": now - started,
            "peak_memory_mib": peak_memory_mib(self.policy.device),
            "skipped_updates": float(self.updater.skipped),
        }
        metrics = {**rollout_metrics(rollouts, labels, rewards, batch), **collected.metrics, **updated, **timing}
        if step % config.logging_steps == 0 or step == self.setup.total_steps:
            self.folder.log_step(step, metrics)
            record = StepRecord(step, metrics, self._samples(prompted, rollouts))
            for callback in self.callbacks:
                callback.on_step(record)

    def state(self) -> dict[str, Any]:
        """What the run has become beside its weights, as JSON."""
        return {
            "step": self.step,
            "tokens": self.tokens,
            "mixture": self.mixture.state(),
            "baseline": dict(self.estimator.state),
            "updater": self.updater.state(),
        }

    def _evaluate(self, phase: EvalPhase, base: Mapping[str, Evaluation]) -> dict[str, Evaluation]:
        done: dict[str, Evaluation] = {}
        for label, task in self.setup.held_out.items():
            try:
                done[label] = self._evaluate_task(label, phase, task.rows())
            except StopRequested:
                break
            result = self._result(done[label], base.get(label))
            for callback in self.callbacks:
                callback.on_evaluation(label, phase, result)
        return done

    def _evaluate_task(self, label: str, phase: str, rows: Sequence[Row]) -> Evaluation:
        sampling = Sampling(
            temperature=self.config.eval.temperature,
            max_completion_length=self.config.eval.max_completion_length or self.config.trainer.max_completion_length,
        )
        self.policy.model.eval()
        self.engine.sync(self.updater.updates)
        with self.policy.precision():
            return evaluate_task(
                self.setup.held_out[label],
                rows,
                engine=self.engine,
                tokenizer=self.policy.tokenizer,
                scorer=self.setup.scorers[label],
                sampling=sampling,
                seed=self.config.seed,
                opponent=self.setup.opponents.get(label),
                progress=self._progress(f"{phase} evaluation of {label}"),
                should_stop=self._stop.is_set,
            )

    def _result(self, evaluation: Evaluation, base: Evaluation | None) -> dict[str, Any]:
        result = evaluation.summary(seed=self.config.seed)
        return result if base is None else {**result, **evaluation.paired_delta(base, seed=self.config.seed)}

    def _summary(self, base: Mapping[str, Evaluation], final: Mapping[str, Evaluation]) -> dict[str, Any]:
        tasks: dict[str, dict[str, Any]] = {}
        for label in self.mixture.tasks:
            entry: dict[str, Any] = {"identity": self.setup.identities[self.mixture.tasks[label].spec]}
            if label in base:
                entry["base"] = self._result(base[label], None)
            if label in final:
                entry["final"] = self._result(final[label], base.get(label))
            tasks[label] = entry
        return {
            "tasks": tasks,
            "task": self.config.task,
            "model": self.policy.source.name,
            "steps": self.step,
            "planned_steps": self.setup.total_steps,
            "updates": self.updater.updates,
            "skipped_updates": self.updater.skipped,
            "interrupted": self._stop.is_set(),
            "seconds": round(time.monotonic() - self._started, 3),
            "tokens": self.tokens,
            "peak_memory_mib": peak_memory_mib(self.policy.device),
            "seed": self.config.seed,
            "versions": versions(),
            "run_dir": str(self.folder.path),
        }

    def _check_abstentions(self, rollouts: Sequence[Rollout], labels: Sequence[str]) -> None:
        for label in self.mixture.tasks:
            scores = [
                r.score for r, name in zip(rollouts, labels, strict=True) if name == label and r.score is not None
            ]
            check_abstentions(scores, label, self.config.scoring.max_abstain_share)
            for score in scores:
                if score.abstained and (label, reason_head(score.why)) not in self._warned:
                    self._warned.add((label, reason_head(score.why)))
                    self._warn(f"{label}: a completion was not scored ({score.fault}): {score.why}")

    def _samples(self, prompted: Sequence[Prompted], rollouts: Sequence[Rollout]) -> list[Sample]:
        # A group with different rewards shows most; else the first.
        generations, groups = self.config.trainer.num_generations, range(len(prompted))

        def members(group: int) -> Sequence[Rollout]:
            return rollouts[group * generations : (group + 1) * generations]

        def spread(group: int) -> int:
            return len({rollout.score.value for rollout in members(group) if rollout.score is not None})

        group = max(groups, key=lambda index: min(2, spread(index)))
        draw = prompted[group].draw
        prompt = draw.task.prompt(draw.row)
        text = prompt if isinstance(prompt, str) else prompt[-1]["content"]
        distinct = {rollout.turns[-1].completion.text: rollout for rollout in members(group)}
        chosen = list(distinct.items())[: self.config.trainer.log_completions]
        return [Sample(draw.label, text, shown, r.score) for shown, r in chosen if r.score is not None]

    def _climb(self) -> None:
        """Evaluate the current rung of each ladder task on held-out rows, which may unlock the next."""
        curriculum = self.config.curriculum
        if self.step % curriculum.ladder_eval_steps:
            return
        for label, order in self.mixture.orders.items():
            if not isinstance(order, LadderCurriculum) or order.mastered:
                continue
            rung = order.rung
            rows = [row for row in self.setup.held_out[label].rows() if row.difficulty == rung]
            evaluation = self._evaluate_task(label, "rung", rows[: curriculum.ladder_eval_size])
            solved = evaluation.summary()
            if order.report_held_out(rung, solved["solved_rate"] or 0.0, solved["n"]):
                reached = f"{label}: rung {rung:g} solved {solved['solved_rate']:.2f} of {solved['n']} held-out rows"
                self._warn(f"{reached}; rung {order.rung:g} unlocked")

    def _out_of_time(self) -> bool:
        limit = self.config.trainer.max_minutes
        return limit is not None and time.monotonic() - self._started >= 60 * limit

    def _progress(self, what: str) -> Callable[[int, int], None]:
        def tell(done: int, total: int) -> None:
            for callback in self.callbacks:
                callback.on_progress(what, done, total)

        return tell

    def _warn(self, message: str) -> None:
        for callback in self.callbacks:
            callback.on_warning(message)
