"""Samples a model on tasks exactly as a run would, and measures what an update costs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

import torch

from grpo_core.algorithms.packing import pair_cost
from grpo_core.config import EvalConfig, RunConfig
from grpo_core.evaluation import forecast as forecasts
from grpo_core.evaluation.forecast import Groups, MixtureForecast, TaskForecast, Times
from grpo_core.evaluation.intervals import UNBOUNDED
from grpo_core.evaluation.results import Evaluation
from grpo_core.policy.memory import is_out_of_memory, release
from grpo_core.policy.pass_budget import PassLimits
from grpo_core.policy.ranks import Ranks
from grpo_core.policy.sampler import sampling_of
from grpo_core.rollouts.group_rewards import compared_scores
from grpo_core.rollouts.rollout import Rollout
from grpo_core.rollouts.sample import sample_rollouts
from grpo_core.training.batch import MicroBatch, collate, micro_batches
from grpo_core.training.collect import groups_of, length_penalty, rollout_context
from grpo_core.training.setup import Setup, prepare
from grpo_sdk.callbacks import Callbacks
from grpo_sdk.task.mixture import Draw
from grpo_sdk.task.score import Score
from grpo_sdk.task.spec import parse_task_specs

UPDATED = 64
"""Most rollouts that the time of an update is measured on."""

PASS_TOKENS = 2048
"""Tokens of one of its passes, padding included: few enough for the memory of any model that can be trained here."""

UPDATE_S = 10.0
"""Time after which no further pass is begun."""


def run_forecast(config: RunConfig, *, prompts: int, samples: int, callbacks: Callbacks) -> MixtureForecast:
    """Sample rollouts with the run's model, tasks and settings, and forecast.

    Args:
        config: Resolved configuration of the run.
        prompts: Most prompts of each task.
        samples: Rollouts of each prompt.
        callbacks: Notified of progress, warnings, and of rows that are left out.
    """
    sampled = config.model_copy(update={"eval": EvalConfig(at_start=False, at_end=False)})  # no held-out rows
    with ExitStack() as resources:
        setup = prepare(sampled, resources, Ranks())
        callbacks.on_choices([choice for choice in setup.choices if choice.what == "rows"])
        tasks = {
            label: _forecast_task(label, setup, min(prompts, len(rows)), samples, callbacks)
            for label, rows in setup.data.rows.items()
        }
    weights = [spec.weight for spec in parse_task_specs(config.task)]
    return forecasts.mixture_forecast(tasks, dict(zip(tasks, weights, strict=True)))


def _forecast_task(label: str, setup: Setup, prompts: int, samples: int, callbacks: Callbacks) -> TaskForecast:
    trainer = setup.config.trainer
    groups, seconds = _sample(label, setup, prompts, samples, callbacks)
    rollouts = [replace(rollout, group=number) for number, group in enumerate(groups) for rollout in group]
    started = time.perf_counter()
    compared = _compared(label, setup, groups)
    # Groups of every size are compared here, and of one in a run.
    compared_s = (time.perf_counter() - started) / len(compared) if compared else 0.0
    callbacks.on_progress(f"measuring an update of {label}", 0, 0)
    update, measured = _update_seconds(setup, rollouts, callbacks)
    changed = trainer.soft_overlong_buffer is not None or compared  # the value is not the task's alone
    evaluation = Evaluation(
        rows=[group[0].row for group in groups],
        texts=[rollout.text for rollout in rollouts],
        lengths=[rollout.n_tokens for rollout in rollouts],
        truncated=[rollout.is_truncated for rollout in rollouts],
        scores=[_with_penalty(setup, label, rollout, rollout.score) for rollout in rollouts],
        temperature=trainer.temperature,
        split="train",
        n=samples,
        reward_bounds=UNBOUNDED if changed else setup.scoring.scorers[label].task.reward_bounds,
    )
    times = Times((seconds + compared_s) / len(rollouts), update, measured)
    return forecasts.forecast(evaluation, trainer.num_generations, times, groups=compared)


def _sample(
    label: str, setup: Setup, prompts: int, samples: int, callbacks: Callbacks
) -> tuple[list[list[Rollout]], float]:
    """Sample and score rollouts of a task, as many prompts at a time as in a step of the run.

    Returns:
        Rollouts of each prompt, and the seconds; an episode that the policy plays alone gives a group for each role.
    """
    trainer, policy = setup.config.trainer, setup.policy
    context, sampling = rollout_context(setup), sampling_of(trainer)
    draws = list(_draws(label, setup, prompts))
    rollouts: list[Rollout] = []
    seconds = 0.0
    for step, start in enumerate(range(0, len(draws), trainer.prompts_per_step), 1):
        callbacks.on_progress(f"sampling {label}, prompts", start, len(draws))
        groups = [group for draw in draws[start : start + trainer.prompts_per_step] for group in groups_of(setup, draw)]
        started = time.perf_counter()
        with policy.in_step(), policy.precision():
            rollouts += sample_rollouts(groups, context, sampling, samples, step)
        seconds += time.perf_counter() - started
    callbacks.on_progress(f"sampling {label}, prompts", len(draws), len(draws))
    return [rollouts[start : start + samples] for start in range(0, len(rollouts), samples)], seconds


def _draws(label: str, setup: Setup, prompts: int) -> Iterator[Draw]:
    """The first prompts that the run would draw from a task; none twice."""
    task, order = setup.tasks.trained[label], setup.data.mixture.orders[label]
    taken: set[str] = set()
    for position in range(prompts):
        row = order.next(taken)
        if row.id in taken:  # a ladder's first rung may have fewer rows
            return
        taken.add(row.id)
        yield Draw(task, label, row, position)


def _compared(label: str, setup: Setup, groups: Sequence[Sequence[Rollout]]) -> Groups | None:
    """Rewards within groups of each size, for a task with group rewards: its samples are split into disjoint groups."""
    scorer = setup.scoring.scorers[label]
    if not scorer.task.task.group_specs():
        return None
    rewards: dict[int, list[list[list[float]]]] = {}
    for size in forecasts.group_sizes(len(groups[0]), setup.config.trainer.num_generations):
        splits = [[own[at : at + size] for at in range(0, len(own) - size + 1, size)] for own in groups]
        scores = iter(compared_scores([group for split in splits for group in split], scorer))
        rewards[size] = [
            [
                [
                    scored.value
                    for rollout, score in zip(group, next(scores), strict=True)
                    if (scored := _with_penalty(setup, label, rollout, score)).value is not None
                ]
                for group in split
            ]
            for split in splits
        ]
    return rewards


def _with_penalty(setup: Setup, label: str, rollout: Rollout, score: Score) -> Score:
    """The score with the run's reward as its value."""
    penalty = length_penalty(setup.config.trainer, setup.scoring.scorers[label].task.task, rollout)
    return score if score.value is None else replace(score, value=score.value + penalty)


def _update_seconds(setup: Setup, rollouts: Sequence[Rollout], callbacks: Callbacks) -> tuple[float | None, int]:
    """Seconds per rollout of a forward and a backward pass, and how many rollouts were measured.

    The gradient is that of the completions' log-probs, whose cost is that of the policy loss.
    """
    policy, temperature = setup.policy, setup.config.trainer.temperature
    chosen = rollouts[:: max(1, len(rollouts) // UPDATED)][:UPDATED]
    tokens = collate(chosen, pad_id=policy.tokenizer.pad_token_id, mask_truncated=False)
    if not tokens.mask.any() or not policy.parameters():
        return None, 0
    passes = [*micro_batches(tokens, PassLimits(None, PASS_TOKENS, None), pair_cost(policy.model))]
    passes.reverse()  # from the shortest on

    def run(micro: MicroBatch) -> None:
        rows = tokens.rows(micro.rows).to(policy.device)
        with policy.precision():
            logp, _ = policy.states(*rows.inputs, micro.packs).logprobs(temperature=temperature)
        logp.sum().backward()
        if policy.device.type == "cuda":
            torch.cuda.synchronize()

    try:
        run(passes[0])  # the first one also pays for what is made once
        started, seconds, measured = time.perf_counter(), 0.0, 0
        for micro in passes:
            run(micro)
            seconds, measured = time.perf_counter() - started, measured + len(micro.rows)
            if seconds > UPDATE_S:
                break
        return seconds / measured * len(tokens) / len(chosen), len(chosen)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        callbacks.on_warning("the time of an update is not measured: it does not fit the memory.")
        return None, 0
    finally:
        policy.model.zero_grad(set_to_none=True)
        release()
