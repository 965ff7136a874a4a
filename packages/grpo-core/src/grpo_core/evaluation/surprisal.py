"""Per-token surprisal and entropy of a model: as an engine measured them, or teacher-forced over its completions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from grpo_core.algorithms.causal_lm import evaluating
from grpo_core.algorithms.hidden_states import CompletionStates
from grpo_core.evaluation.results import Certainty, TokenStatistics
from grpo_core.policy.pass_budget import InferenceBudget, PassSize
from grpo_core.policy.policy import Policy

TOKENS_AT_ONCE = 16_384
"""Prompt and completion tokens of one forward pass, padding included: 128 sequences of 128 fill the hardware."""

ROWS_AT_ONCE = 32
"""Completions of one forward pass (the reference systems' tf_micro_batch)."""

P95 = 0.95


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


def teacher_forced(
    policy: Policy, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]
) -> CompletionStates:
    """States of one forward pass over prompts and their completions, tokens of each."""
    rows = [torch.tensor([*prompt, *completion]) for prompt, completion in zip(prompts, completions, strict=True)]
    return policy.states(
        pad_sequence(rows, batch_first=True).to(policy.device),  # [B, L]
        torch.tensor([len(prompt) for prompt in prompts], device=policy.device),
        torch.tensor([len(completion) for completion in completions], device=policy.device),
        [(row,) for row in range(len(rows))],
    )


def _measure(
    policy: Policy, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]
) -> Iterator[Certainty]:
    states = teacher_forced(policy, prompts, completions)
    logp, entropy = states.logprobs(temperature=1.0, with_entropy=True)  # [B, T] each
    assert entropy is not None, "it was asked for"
    surprisal = (-logp).to(policy.wide).cpu()
    entropy = entropy.to(policy.wide).cpu()
    return (
        certainty_of(surprisal[row, :length], entropy[row, :length]) for row, length in enumerate(map(len, completions))
    )


def certainty_of(surprisal: Sequence[float] | Tensor, entropy: Sequence[float] | Tensor) -> Certainty:
    """Certainty of a completion of at least one token, from both numbers of each."""
    return Certainty(
        _statistics(torch.as_tensor(surprisal, dtype=torch.float64)),
        _statistics(torch.as_tensor(entropy, dtype=torch.float64)),
    )


def _statistics(values: Tensor) -> TokenStatistics:
    """Statistics of [T] numbers, T at least 1; the standard deviation is the population's."""
    return TokenStatistics(
        float(values.mean()),
        float(values.std(correction=0)),
        float(values.max()),
        float(torch.quantile(values, P95)),
    )
