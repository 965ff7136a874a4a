"""Callbacks, logs, warnings and the summary of a run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from grpo_core.config import flatten, to_yaml
from grpo_core.evaluation.plan import open_settings
from grpo_core.policy.memory_meter import PhaseMemory, memory_meter, peak_memory_mib
from grpo_core.training.batch import TrainBatch
from grpo_core.training.collect import Collected
from grpo_core.training.first_batch import check_first_batch, check_golds
from grpo_core.training.metrics import origin_of, rollout_metrics, samples_of
from grpo_core.training.provenance import versions
from grpo_core.training.run_folder import RunFolder
from grpo_core.training.setup import Setup
from grpo_sdk.callbacks import Callbacks, Finding, ResolvedDefault, RunInfo, StepRecord
from grpo_sdk.plugins import variants as registry
from grpo_sdk.scoring.abstention import check_abstentions, reason_head
from grpo_sdk.scoring.metrics import numbers_of, step_numbers
from grpo_sdk.task.calling import call_by_name

RECORDED = ("preset", "recipe", "platform", "settings", "trainer.micro_batch_size")
"""Choices that set sizes of the run: they are recorded with their reasons, as comments of config.yaml."""


class Report:
    """Reports what a run does to its logs and callbacks, each warning once.

    Args:
        setup: Configuration, tasks and policy of the run.
        folder: Receives the logs.
        callbacks: Notified of progress and warnings.

    Attributes:
        memory: Peak memory of the phases of a step.
    """

    def __init__(self, setup: Setup, folder: RunFolder, callbacks: Callbacks) -> None:
        self._config, self._setup, self._folder, self._callbacks = setup.config, setup, folder, callbacks
        self.memory = PhaseMemory(memory_meter(setup.policy.device))
        self._chosen: Sequence[str] = ()
        self._model_was_chosen = False

    def start(self, step: int, choices: Sequence[ResolvedDefault], seconds_left: float | None) -> None:
        """Write the configuration, and notify callbacks of the start with every choice made for the user.

        Golds that are not solved are reported before the first step.

        Args:
            step: Steps done.
            choices: The choices.
            seconds_left: Time until the run's limit; None without one.
        """
        setup, config = self._setup, self._config
        held_out, trained = setup.tasks.held_out, setup.tasks.trained
        self._model_was_chosen = any(each.what == "model" and each.value == config.model for each in choices)
        texts = [f"{choice.what} {choice.value}: {choice.why}" for choice in choices if choice.what in RECORDED]
        text = to_yaml(config, leave_out=open_settings(config, setup.tasks.every))
        self._chosen = self._folder.write_config(text, texts) or ()
        counts = {
            label: (len(setup.data.rows[label]), len(held_out[label].task.rows()) if label in held_out else 0)
            for label in trained
        }
        also_trained = {
            label: held.overlap.as_json() for label, held in held_out.items() if held.overlap and held.overlap.pairs
        }
        total = setup.plan.total_steps
        self._callbacks.on_run_start(
            RunInfo(self._folder.path, counts, choices, total, seconds_left, flatten(config), also_trained, step)
        )
        if step == 0 and self._config.tracking.monitor:
            check_golds(setup, self._callbacks)

    def rollouts(self, step: int, collected: Collected) -> None:
        """Log a step's completions, and warn of those that could not be scored.

        Raises:
            AbstentionLimitError: too many of a task's completions could not be scored.
            UserError: the user named no model, and there is nothing that the chosen one could learn from.
        """
        setup = self._setup
        self._folder.log_rollouts(step, collected.rollouts, setup.tasks.identities, origin_of(setup, collected))
        for label, task in setup.tasks.trained.items():
            own = zip(collected.rollouts, collected.labels, strict=True)
            scores = [rollout.score for rollout, name in own if name == label]
            check_abstentions(scores, label, self._config.scoring.max_abstain_share, task)
            for score in scores:
                if score.abstained:
                    message = f"{label}: a completion was not scored ({score.fault}): {score.why}"
                    self._callbacks.warn_once(message, kind=label, about=reason_head(score.why))
        if step == 1:
            check_first_batch(collected, self._config, self._callbacks, was_chosen=self._model_was_chosen)

    def metrics(self, collected: Collected, batch: TrainBatch) -> dict[str, float]:
        """Metrics of a step's completions: ours, and those of tasks and plugins, whose failures are only warned of."""
        values = rollout_metrics(collected.rollouts, collected.labels, collected.rewards, batch)
        scores = [rollout.score for rollout in collected.rollouts]
        names = self._setup.tasks.metric_names
        measured = [*step_numbers(self._setup.tasks.trained, collected.labels, scores, names).values()]
        arguments = {
            "rollouts": collected.rollouts, "labels": collected.labels, "rewards": collected.rewards, "batch": batch,
        }  # fmt: skip
        for name in self._config.tracking.metrics:
            metric = registry.resolve("metric", name)
            who = f"metric {name!r}"
            measured.append(names.claimed(numbers_of(who, partial(call_by_name, metric, arguments)), who))
        for numbers in measured:
            values |= numbers.values
            for problem in numbers.problems:
                self._callbacks.warn_once(problem, kind="metrics")
        return values

    def step(self, step: int, collected: Collected, metrics: Mapping[str, float], n_tokens: int) -> None:
        """Log a step's metrics, and show some of its completions."""
        trainer, seconds = self._config.trainer, time.perf_counter() - collected.started
        self._callbacks.on_step_end(step)
        if step % trainer.logging_steps and step != self._setup.plan.total_steps:
            return
        metrics = {
            **metrics,
            "tokens_per_s": n_tokens / seconds,
            **{f"{phase}_tokens_per_s": n_tokens / metrics[f"{phase}_s"] for phase in ("generate", "update")},
            "step_s": seconds,
            **self.memory.latest,
            "peak_memory_mib": peak_memory_mib(self._setup.policy.device),
        }
        self._folder.log_step(step, metrics)
        samples = samples_of(collected.groups, collected.rollouts, trainer.log_completions)
        self._callbacks.on_step(StepRecord(step, metrics, samples))

    def end(self, results: Mapping[str, Mapping[str, Any]], facts: Mapping[str, Any]) -> dict[str, Any]:
        """Write the summary and notify the callbacks.

        Args:
            results: Task label -> phase -> result of its evaluation.
            facts: What the trainer says of the run.

        Returns:
            What `summary.json` holds.
        """
        config, setup = self._config, self._setup
        tasks: dict[str, dict[str, Any]] = {
            label: {"identity": task.identity, "conditions": dict(task.conditions)}
            for label, task in setup.tasks.trained.items()
        }
        for label, phases in results.items():
            held = setup.tasks.held_out[label]
            own = {"identity": held.task.identity, "conditions": dict(held.task.conditions)}
            entry = tasks.setdefault(label, own)
            if held.overlap is not None:
                entry["also_trained"] = held.overlap.as_json()
            entry |= {phase: result for phase, result in phases.items() if phase != "interval"}
        summary = {
            "tasks": tasks,
            "task": config.task,
            "model": config.model,
            "planned_steps": setup.plan.total_steps,
            **facts,
            "peak_memory_mib": peak_memory_mib(setup.policy.device),
            **self.memory.highest,
            "seed": config.seed,
            "chosen": self._chosen,
            "warnings": [finding.as_json() for finding in self._callbacks.findings],
            "versions": versions(setup.tasks.every.values()),
            "run_dir": str(self._folder.path),
        }
        self._folder.write_summary(summary)
        self._callbacks.on_run_end(summary, self._folder.path)
        return summary

    def state(self) -> dict[str, Any]:
        """The warnings given so far, as JSON."""
        findings = [asdict(finding) for finding in self._callbacks.findings]
        return {"once": sorted(self._callbacks.warned), "findings": findings}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        self._callbacks.warned = {(kind, about) for kind, about in state["once"]}
        self._callbacks.findings = [Finding(**finding) for finding in state["findings"]]
