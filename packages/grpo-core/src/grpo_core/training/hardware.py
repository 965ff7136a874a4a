"""A run's share of the machine: threads, memory, and completions in a forward pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any

import torch

from grpo_core.config import RunConfig
from grpo_core.config.hardware import memory_plan, needs
from grpo_core.policy.memory import keep_freed_memory, release
from grpo_core.policy.policy import Policy
from grpo_core.policy.ranks import Ranks
from grpo_core.policy.threads import share_threads, update_threads
from grpo_core.profiles import accelerator as accelerators
from grpo_core.profiles.estimate import estimate, gib
from grpo_core.profiles.model_shape import model_shape
from grpo_core.training.micro_batch import choose_micro_batch
from grpo_sdk.callbacks import ResolvedDefault

MEMORY_SHOWN = 2**30
"""Bytes from which on the estimated memory of a run is worth a line in its header."""


def fit_to_machine(
    config: RunConfig,
    policy: Policy,
    ranks: Ranks,
    resources: ExitStack,
    began_with: Mapping[str, Any] | None = None,
) -> tuple[RunConfig, list[ResolvedDefault]]:
    """Find the completions of a forward pass where they are `auto`, keep freed memory, and choose the threads.

    Args:
        config: The run.
        policy: Its model.
        ranks: The processes of the run.
        resources: Gives memory and threads back.
        began_with: Facts of the machine on which a resumed run began, which decide its threads.

    Returns:
        (the run with the number of completions that was found, choices to be shown).
    """
    trainer, choices = config.trainer, []
    if trainer.micro_batch_size == "auto":
        rows, choice = choose_micro_batch(policy, trainer, ranks)
        choices.append(choice)
        trainer = trainer.model_copy(update={"micro_batch_size": rows})
        config = config.model_copy(update={"trainer": trainer})
    keep_freed_memory(policy.device)
    resources.callback(release)
    if trainer.off_policy_steps:
        resources.callback(torch.set_num_threads, torch.get_num_threads())
        if shared := share_threads(policy.device):
            choices.insert(0, ResolvedDefault("threads", shared, "trainer.off_policy_steps=1"))
        return config, choices
    if began_with is not None:
        threads, why = began_with.get("update_threads"), "as the run began"
    else:
        tokens = trainer.prompts_per_step * trainer.num_generations * trainer.max_completion_length
        threads = update_threads(policy.model.num_parameters(), tokens, policy.device)
        why = f"the up to {tokens:,} tokens of a step are enough to share"
    policy.update_threads = threads
    if threads is not None:
        value, is_ordinary = f"1 for sampling, {threads} for updates", began_with is None
        choices.insert(0, ResolvedDefault("threads", value, why, is_ordinary=is_ordinary))
    return config, choices


def memory_choices(config: RunConfig, prompt_ids: Iterable[Mapping[str, tuple[int, ...]]]) -> list[ResolvedDefault]:
    """The memory that the run is estimated to need, where it is worth a line."""
    shape, accelerator = model_shape(config.model or ""), accelerators.detect(config.device)
    if shape is None:
        return []
    lengths = [len(ids) for label in prompt_ids for ids in label.values()]
    need = estimate(memory_plan(config, shape, accelerator, round(sum(lengths) / max(1, len(lengths)))))
    if need.total < MEMORY_SHOWN:
        return []
    return [ResolvedDefault("memory", f"{gib(need.total)} GiB", needs(need, accelerator))]
