"""Callbacks, logs, warnings and the summary of a run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from grpo_core.config import RunConfig, flatten
from grpo_core.policy.memory import peak_memory_mib
from grpo_core.policy.memory_meter import PhaseMemory, memory_meter
from grpo_core.prompts.curriculum import PassRateCurriculum
from grpo_core.rollouts.rollout import PromptGroup, Rollout
from grpo_core.rollouts.thinking import think_tokens
from grpo_core.tracking.rollout_lines import BatchOrigin, GroupOrigin
from grpo_core.training.batch import TrainBatch
from grpo_core.training.clock import RunClock
from grpo_core.training.collect import Collected
from grpo_core.training.evaluations import Evaluations
from grpo_core.training.first_batch import check_first_batch, check_golds
from grpo_core.training.optimizer import PolicyOptimizer
from grpo_core.training.provenance import tasks_of, versions
from grpo_core.training.run_folder import RunFolder
from grpo_core.training.setup import Setup
from grpo_sdk.callbacks import Callbacks, Finding, ResolvedDefault, RunInfo, Sample, StepRecord
from grpo_sdk.scoring.abstention import check_abstentions, reason_head
from grpo_sdk.scoring.metrics import numbers_of, step_numbers
from grpo_sdk.task.calling import call_by_name
from grpo_sdk.task.mixture import Draw, Mixture

RECORDED = ("preset", "recipe", "platform", "settings", "trainer.micro_batch_size")
"""Choices that set sizes of the run: they are recorded with their reasons, as comments of config.yaml."""


class Report:
    """Reports what a run does to its logs and callbacks, each warning once.

    Args:
        config: The run.
        setup: Its tasks and policy.
        folder: Receives the logs.
        callbacks: Notified of progress and warnings.

    Attributes:
        memory: Peak memory of the phases of a step.
    """

    def __init__(self, config: RunConfig, setup: Setup, folder: RunFolder, callbacks: Callbacks) -> None:
        self._config, self._setup, self._folder, self._callbacks = config, setup, folder, callbacks
        self.memory = PhaseMemory(memory_meter(setup.policy.device))
        self._chosen: Sequence[str] = ()
        self._model_was_chosen = False

    def start(self, step: int, choices: Sequence[ResolvedDefault], clock: RunClock) -> None:
        """Write the configuration, and notify callbacks of the start with every choice made for the user.

        Golds that are not solved are reported before the first step.
        """
        setup, model = self._setup, self._config.model
        self._model_was_chosen = any(choice.what == "model" and choice.value == model for choice in choices)
        texts = [f"{choice.what} {choice.value}: {choice.why}" for choice in choices if choice.what in RECORDED]
        self._chosen = self._folder.write_config(setup.config_yaml, texts) or ()
        held = setup.held_out
        counts = {
            label: (len(setup.rows[label]), len(held[label].task.rows()) if label in held else 0)
            for label in setup.mixture.tasks
        }
        left = None if setup.is_extension else clock.seconds_left
        also_trained = {
            label: each.overlap.as_json() for label, each in held.items() if each.overlap and each.overlap.pairs
        }
        settings = flatten(self._config)
        self._callbacks.on_run_start(
            RunInfo(self._folder.path, counts, choices, setup.total_steps, left, settings, also_trained, step)
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
        self._folder.log_rollouts(step, collected.rollouts, setup.identities, self._origin(collected))
        for label, task in setup.mixture.tasks.items():
            scores = [
                rollout.score
                for rollout, name in zip(collected.rollouts, collected.labels, strict=True)
                if name == label and rollout.score is not None
            ]
            check_abstentions(scores, label, self._config.scoring.max_abstain_share, task)
            for score in scores:
                if score.abstained:
                    message = f"{label}: a completion was not scored ({score.fault}): {score.why}"
                    self._callbacks.warn_once(message, kind=label, about=reason_head(score.why))
        if step == 1:
            check_first_batch(collected, self._config, self._callbacks, was_chosen=self._model_was_chosen)

    def _origin(self, collected: Collected) -> BatchOrigin:
        """Facts for the log of completions: prompts, rewards, pass rates, thinking."""
        config, mixture, tokenizer = self._config, self._setup.mixture, self._setup.policy.tokenizer
        return BatchOrigin(
            groups=[_group_origin(mixture, group.draw) for group in collected.groups],
            rewards=collected.rewards.tolist(),
            think_tokens=[
                sum(think_tokens(tokenizer, turn.completion.text, turn.completion.token_ids) for turn in rollout.turns)
                for rollout in collected.rollouts
            ],
            generate_s=collected.generate_s,
            boundaries=config.curriculum.boundaries,
            masks_truncated=config.trainer.mask_truncated_completions,
            logs_tokens=config.tracking.token_logprobs,
            conditions={task.spec: task.conditions for task in mixture.tasks.values()},
            decode=lambda ids: tokenizer.batch_decode([[token] for token in ids]),
        )

    def own_metrics(self, collected: Collected, batch: TrainBatch) -> dict[str, float]:
        """Metrics of tasks and plugins for a step; one that fails gives a warning and ends nothing."""
        scores = [rollout.score for rollout in collected.rollouts if rollout.score is not None]
        names = self._setup.metric_names
        measured = [*step_numbers(self._setup.mixture.tasks, collected.labels, scores, names).values()]
        arguments = {
            "rollouts": collected.rollouts, "labels": collected.labels, "rewards": collected.rewards, "batch": batch,
        }  # fmt: skip
        for name, metric in self._setup.metrics.items():
            who = f"metric {name!r}"
            measured.append(names.claimed(numbers_of(who, partial(call_by_name, metric, arguments)), who))
        values: dict[str, float] = {}
        for numbers in measured:
            values |= numbers.values
            for problem in numbers.problems:
                self._callbacks.warn_once(problem, kind="metrics")
        return values

    def step(self, step: int, collected: Collected, metrics: Mapping[str, float], n_tokens: int) -> None:
        """Log a step's metrics, and show some of its completions."""
        trainer, seconds = self._config.trainer, time.perf_counter() - collected.started
        self._callbacks.on_step_end(step)
        if step % trainer.logging_steps and step != self._setup.total_steps:
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

    def end(
        self,
        step: int,
        tokens: int,
        optimizer: PolicyOptimizer,
        evaluations: Evaluations,
        clock: RunClock,
        *,
        judges: Mapping[str, Any],
        interrupted: bool,
    ) -> dict[str, Any]:
        """Write the summary and notify the callbacks.

        Returns:
            What `summary.json` holds.
        """
        config, setup = self._config, self._setup
        tasks: dict[str, dict[str, Any]] = {
            label: {"identity": setup.identities[task.spec], "conditions": dict(task.conditions)}
            for label, task in setup.mixture.tasks.items()
        }
        for label, results in evaluations.results.items():
            held = setup.held_out[label].task
            entry = tasks.setdefault(label, {"identity": held.identity, "conditions": dict(held.conditions)})
            if (overlap := setup.held_out[label].overlap) is not None:
                entry["also_trained"] = overlap.as_json()
            entry |= {phase: result for phase, result in results.items() if phase != "interval"}
        summary = {
            "tasks": tasks,
            "task": config.task,
            "model": config.model,
            "steps": step,
            "planned_steps": setup.total_steps,
            "best": asdict(evaluations.best),
            "updates": optimizer.updates,
            "skipped_updates": optimizer.skipped,
            "interrupted": interrupted,
            "seconds": round(clock.seconds, 3),
            "tokens": tokens,
            "peak_memory_mib": peak_memory_mib(setup.policy.device),
            **self.memory.highest,
            **judges,
            "seed": config.seed,
            "chosen": self._chosen,
            "warnings": [finding.as_json() for finding in self._callbacks.findings],
            "versions": versions(tasks_of(setup).values()),
            "run_dir": str(self._folder.path),
        }
        self._folder.write_summary(summary)
        self._callbacks.on_run_end(summary, self._folder.path)
        return summary

    def state(self) -> dict[str, Any]:
        """The warnings given so far, as JSON."""
        findings = [asdict(finding) for finding in self._callbacks.findings]
        return {"once": sorted(self._callbacks.warned), "findings": findings}

    def load_state(self, state: Mapping[str, Any] | Sequence[Sequence[str]]) -> None:
        """Go on from `state`; a list, in older checkpoints, is what `warn_once` has warned of."""
        once, findings = (state["once"], state["findings"]) if isinstance(state, Mapping) else (state, ())
        self._callbacks.warned = {(kind, about) for kind, about in once}
        self._callbacks.findings = [Finding(**finding) for finding in findings]


def _group_origin(mixture: Mixture, draw: Draw) -> GroupOrigin:
    order = mixture.orders[draw.label]
    rate = order.pass_rate(draw.row.id) if isinstance(order, PassRateCurriculum) else None
    return GroupOrigin(draw.prompt_id, draw.task.prompt(draw.row), rate)


def samples_of(groups: Sequence[PromptGroup], rollouts: Sequence[Rollout], limit: int) -> list[Sample]:
    """Different completions of one group: where possible of one whose rewards differ, since it shows most.

    Args:
        groups: Groups of the step.
        rollouts: Their rollouts, group by group, equally many of each.
        limit: Completions at most.
    """
    generations = len(rollouts) // len(groups)
    by_group = [rollouts[start : start + generations] for start in range(0, len(rollouts), generations)]

    def has_spread(index: int) -> bool:
        values = {rollout.score.value for rollout in by_group[index] if rollout.score is not None}
        return len(values - {None}) > 1

    index = max(range(len(by_group)), key=has_spread)
    draw = groups[index].draw
    prompt = draw.task.prompt(draw.row)
    question = prompt if isinstance(prompt, str) else prompt[-1]["content"]
    distinct = {
        "  ".join(f"{each['role']}: {each['content'].strip()}" for each in rollout.messages if each["role"])
        or rollout.text: rollout
        for rollout in by_group[index]
    }
    chosen = list(distinct.items())[:limit]
    return [Sample(draw.label, question, text, rollout.score) for text, rollout in chosen if rollout.score is not None]
