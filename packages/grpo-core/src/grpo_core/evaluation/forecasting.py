"""Samples a model on a task as a run would, and measures what an update costs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from grpo_core.callbacks import Callbacks
from grpo_core.config import RunConfig
from grpo_core.engines.encode import encode_prompt
from grpo_core.evaluation.forecast import Forecast, Times, forecast
from grpo_core.evaluation.results import Evaluation
from grpo_core.evaluation.setup import EvaluationTask, ModelOptions, evaluate_tasks, load_evaluated
from grpo_core.policy.memory import is_out_of_memory, release
from grpo_core.policy.policy import Policy
from grpo_core.task.bound import BoundTask

UPDATED = 64
"""Most completions that the time of an update is measured on."""

PASS_TOKENS = 2048
"""Tokens of one of its passes, padding included: few enough for the memory of any model that can be trained here."""

UPDATE_S = 10.0
"""Time after which no further pass is begun."""


def run_forecast(task: EvaluationTask, label: str, config: RunConfig, callbacks: Callbacks) -> Forecast:
    """Sample completions with the run's model and settings, and forecast.

    Args:
        task: The task with the prompts and the number of completions.
        label: Its name in messages.
        config: Resolved configuration of the run.
        callbacks: Notified of progress and warnings.
    """
    assert config.model is not None, "the configuration is resolved"
    options = ModelOptions(
        device=config.device,
        precision=config.precision,
        engine=config.engine.name,
        max_batch_tokens=config.engine.max_batch_tokens,
        scoring=config.scoring,
        lora=config.lora,
    )
    tasks = {label: task}
    model = load_evaluated(config.model, config.adapter, tasks, options, callbacks)
    assert model.policy is not None, "the model runs in this process"
    evaluation = evaluate_tasks(tasks, model, config.scoring, callbacks)[label]
    callbacks.on_progress("measuring an update", 0, 0)
    seconds, measured = _update_seconds(model.policy, task.task, evaluation, config, callbacks)
    sampling = evaluation.seconds / len(evaluation.texts)
    return forecast(evaluation, config.trainer.num_generations, Times(sampling, seconds, measured), seed=config.seed)


def _update_seconds(
    policy: Policy, task: BoundTask, evaluation: Evaluation, config: RunConfig, callbacks: Callbacks
) -> tuple[float | None, int]:
    """Seconds per completion of a forward and a backward pass, and how many completions were measured.

    The gradient is that of the completions' log-probs, whose cost is that of the policy loss.
    """
    batches = _batches(_tokens(policy, task, evaluation))
    if not batches or not policy.parameters():
        return None, 0
    try:
        _pass(policy, batches[0], config.trainer.temperature)  # the first one also pays for what is made once
        started, seconds, measured = time.perf_counter(), 0.0, 0
        for batch in batches:
            _pass(policy, batch, config.trainer.temperature)
            seconds, measured = time.perf_counter() - started, measured + len(batch)
            if seconds > UPDATE_S:
                break
        return seconds / measured, measured
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        callbacks.on_warning("the time of an update is not measured: it does not fit the memory.")
        return None, 0
    finally:
        policy.model.zero_grad(set_to_none=True)
        release()


Sample = tuple[Sequence[int], Sequence[int]]
"""Tokens of a prompt and of its completion."""


def _batches(samples: Sequence[Sample]) -> list[list[Sample]]:
    """Split samples, which are sorted by length, into passes."""
    batches: list[list[Sample]] = []
    for prompt, completion in samples:
        width = len(prompt) + len(completion)
        if not batches or (len(batches[-1]) + 1) * width > PASS_TOKENS:
            batches.append([])
        batches[-1].append((prompt, completion))
    return batches


def _tokens(policy: Policy, task: BoundTask, evaluation: Evaluation) -> list[Sample]:
    """Tokens of prompts and completions, evenly from the evaluation; texts are encoded again."""
    tokenizer: Any = policy.tokenizer
    stride = max(1, len(evaluation.texts) // UPDATED)
    pairs = []
    for index in range(0, len(evaluation.texts), stride)[:UPDATED]:
        prompt = encode_prompt(tokenizer, task.prompt(evaluation.rows[index // evaluation.n]))
        completion = tokenizer(evaluation.texts[index], add_special_tokens=False)["input_ids"]
        if completion:
            pairs.append((prompt, completion))
    return sorted(pairs, key=lambda pair: len(pair[0]) + len(pair[1]))  # of like length together: little padding


def _pass(policy: Policy, batch: Sequence[Sample], temperature: float) -> None:
    rows = [torch.tensor([*prompt, *completion]) for prompt, completion in batch]
    with policy.precision():
        states = policy.states(
            pad_sequence(rows, batch_first=True).to(policy.device),  # [B, L]
            torch.tensor([len(prompt) for prompt, _ in batch], device=policy.device),
            torch.tensor([len(completion) for _, completion in batch], device=policy.device),
            [(row,) for row in range(len(batch))],
        )
        logp, _ = states.logprobs(temperature=temperature)
    logp.sum().backward()
    if policy.device.type == "cuda":
        torch.cuda.synchronize()
