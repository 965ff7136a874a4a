"""Per-token surprisal and entropy of a model: teacher-forced over its own completions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch.nn.utils.rnn import pad_sequence

from grpo_core.algorithms.causal_lm import evaluating
from grpo_core.evaluation.results import Certainty, TokenStatistics
from grpo_core.policy.pass_budget import InferenceBudget, PassSize
from grpo_core.policy.policy import Policy

TOKENS_AT_ONCE = 16_384
"""Prompt and completion tokens of one forward pass, padding included: 128 sequences of 128 fill the hardware."""

ROWS_AT_ONCE = 32
"""Completions of one forward pass (the reference systems' tf_micro_batch)."""


def certainty(
    policy: Policy,
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    *,
    tokens_at_once: int = TOKENS_AT_ONCE,
    rows_at_once: int = ROWS_AT_ONCE,
    warn: Callable[[str], None] = lambda message: None,
) -> list[Certainty]:
    """Compute surprisal and entropy of every token of the completions, by one more forward pass.

    Args:
        policy: Model that generated the completions.
        prompts: Tokens of each prompt.
        completions: Tokens of each completion, at least one.
        tokens_at_once: Tokens of one forward pass, padding included; halved when memory runs out.
        rows_at_once: Completions of one forward pass.
        warn: Receives one warning when memory ran out.

    Raises:
        OutOfMemoryError: not even one completion fits.
    """
    budget = InferenceBudget(tokens_at_once, "measuring surprisal", warn)
    lengths = [len(prompt) + len(completion) for prompt, completion in zip(prompts, completions, strict=True)]
    waiting = sorted(range(len(lengths)), key=lambda index: lengths[index])
    certainties: dict[int, Certainty] = {}

    def measured() -> list[tuple[int, Certainty]]:
        """The next batch: sorted by length, so that the last one is the longest and decides the padding."""
        size = 1
        while size < min(rows_at_once, len(waiting)) and (size + 1) * lengths[waiting[size]] <= budget.tokens:
            size += 1
        batch = waiting[:size]
        budget.running = PassSize(size, size * lengths[batch[-1]], size)
        found = _measure(policy, [prompts[at] for at in batch], [completions[at] for at in batch])
        return list(zip(batch, found, strict=True))

    with torch.no_grad(), policy.precision(), evaluating(policy.model):
        while waiting:
            found = budget.until_it_fits(measured)
            certainties.update(found)
            waiting = waiting[len(found) :]
    return [certainties[index] for index in range(len(lengths))]


def _measure(
    policy: Policy, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]
) -> Iterator[Certainty]:
    rows = [torch.tensor([*prompt, *completion]) for prompt, completion in zip(prompts, completions, strict=True)]
    states = policy.states(
        pad_sequence(rows, batch_first=True).to(policy.device),  # [B, L]
        torch.tensor([len(prompt) for prompt in prompts], device=policy.device),
        torch.tensor([len(completion) for completion in completions], device=policy.device),
        [(row,) for row in range(len(rows))],
    )
    logp, entropy = states.logprobs(temperature=1.0, with_entropy=True)  # [B, T] each
    assert entropy is not None, "it was asked for"
    surprisal = (-logp).to(policy.wide).cpu()
    entropy = entropy.to(policy.wide).cpu()
    return (
        Certainty(*(TokenStatistics.of(values[row, :length].numpy()) for values in (surprisal, entropy)))
        for row, length in enumerate(map(len, completions))
    )
