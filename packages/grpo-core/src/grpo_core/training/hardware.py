"""A run's share of the machine: threads, memory, and completions in a forward pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import torch

from grpo_core.config import RunConfig
from grpo_core.config.hardware import memory_plan, needs
from grpo_core.policy.memory import keep_freed_memory, release
from grpo_core.policy.micro_batch import choose_micro_batch
from grpo_core.policy.policy import Policy
from grpo_core.policy.ranks import Ranks
from grpo_core.policy.threads import share_threads, update_threads
from grpo_core.profiles import accelerator as accelerators
from grpo_core.profiles.estimate import estimate, gib
from grpo_core.profiles.model_shape import model_shape
from grpo_core.training.rank_shares import accumulation
from grpo_sdk.callbacks import ResolvedDefault

MEMORY_SHOWN = 2**30
"""Bytes from which on the estimated memory of a run is worth a line in its header."""


def share_machine(config: RunConfig, policy: Policy, resources: ExitStack) -> list[ResolvedDefault]:
    """Keep freed memory and choose the threads of sampling and updates, until the resources are closed."""
    keep_freed_memory(policy.device)
    resources.callback(release)
    trainer = config.trainer
    if not trainer.off_policy_steps:
        tokens = trainer.prompts_per_step * trainer.num_generations * trainer.max_completion_length
        policy.update_threads = update_threads(policy.model.num_parameters(), tokens, policy.device)
        if policy.update_threads is None:
            return []
        why = f"the up to {tokens:,} tokens of a step are enough to share"
        return [
            ResolvedDefault("threads", f"1 for sampling, {policy.update_threads} for updates", why, is_ordinary=True)
        ]
    resources.callback(torch.set_num_threads, torch.get_num_threads())
    shared = share_threads(policy.device)
    return [ResolvedDefault("threads", shared, "trainer.off_policy_steps=1")] if shared else []


def with_micro_batch(config: RunConfig, policy: Policy, ranks: Ranks) -> tuple[RunConfig, list[ResolvedDefault]]:
    """The configuration with the number of completions in a pass that was found where it is `auto`."""
    if config.trainer.micro_batch_size != "auto":
        return config, []
    rows, choice = choose_micro_batch(policy, config.trainer, ranks)
    trainer = config.trainer.model_copy(update={"micro_batch_size": rows})
    return config.model_copy(update={"trainer": trainer}), [choice, *accumulation(trainer, ranks)]


def memory_choices(config: RunConfig, prompt_ids: Sequence[Mapping[str, tuple[int, ...]]]) -> list[ResolvedDefault]:
    """The memory that the run is estimated to need, where it is worth a line."""
    shape, accelerator = model_shape(config.model or ""), accelerators.detect(config.device)
    if shape is None:
        return []
    lengths = [len(ids) for label in prompt_ids for ids in label.values()]
    need = estimate(memory_plan(config, shape, accelerator, round(sum(lengths) / max(1, len(lengths)))))
    if need.total < MEMORY_SHOWN:
        return []
    return [ResolvedDefault("memory", f"{gib(need.total)} GiB", needs(need, accelerator))]
