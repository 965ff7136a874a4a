"""Policy losses: a per-token objective, and the weights that make a batch of tokens one number.

A loss is Σ_{row, token} weight · objective. The weights hold the denominator, counted over the whole optimizer step,
so any split into micro-batches (and ranks, which sum) gives the same loss and gradient:

    aggregation              weight of a token                source
    constant (dr_grpo)       1 / (B · max_completion_length)  arXiv 2503.20783
    token_mean (dapo)        1 / ΣT                           arXiv 2503.14476
    sequence_mean (grpo)     1 / (B · T_i)                    arXiv 2402.03300

B counts every row of the step, also those that abstained, were truncated or have advantage 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

import torch
from torch import Tensor

Aggregation = Literal["constant", "token_mean", "sequence_mean"]
Function = TypeVar("Function", bound=Callable[..., Tensor])

MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped here before exp (verl's bound), so that one mad token cannot make an infinity."""


def aggregated(how: Aggregation) -> Callable[[Function], Function]:
    """Mark a per-token objective with the aggregation that its paper uses."""

    def mark(function: Function) -> Function:
        function.aggregation = how  # type: ignore[attr-defined]
        return function

    return mark


def token_weights(mask: Tensor, how: Aggregation, *, max_completion_length: int) -> Tensor:
    """Weights of the tokens of one optimizer step.

    Args:
        mask: [B, T], true on the completion's tokens that count.
        how: The aggregation.
        max_completion_length: The constant length L of `constant`.

    Returns:
        [B, T] float64, 0 where masked.
    """
    counted = mask.double()
    rows = mask.shape[0]
    match how:
        case "constant":
            return counted / (rows * max_completion_length)
        case "token_mean":
            return counted / counted.sum().clamp(min=1)
        case "sequence_mean":
            return counted / (rows * counted.sum(dim=1, keepdim=True).clamp(min=1))


def importance_ratio(logp: Tensor, old_logp: Tensor) -> Tensor:
    """ρ = exp(log π − log π_old) [B, T], the log-ratio clamped to ±`MAX_LOG_RATIO`."""
    return (logp - old_logp).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def ppo_clip(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, *, epsilon: float = 0.2, epsilon_high: float | None = None
) -> Tensor:
    """Clipped surrogate, to be minimised: −min(ρA, clip(ρ, 1 − ε, 1 + ε_high)·A).

    Args:
        logp: [B, T] log-probabilities under the policy.
        old_logp: [B, T] under the policy that sampled.
        advantages: [B] or [B, T].
        epsilon: Lower clip range ε.
        epsilon_high: Upper clip range; ε when None.

    Returns:
        [B, T].
    """
    if advantages.dim() == 1:
        advantages = advantages[:, None]
    ratio = importance_ratio(logp, old_logp)
    clipped = ratio.clamp(1 - epsilon, 1 + (epsilon if epsilon_high is None else epsilon_high))
    return -torch.minimum(ratio * advantages, clipped * advantages)


@aggregated("constant")
def dr_grpo(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, *, epsilon: float = 0.2, epsilon_high: float | None = None
) -> Tensor:
    """Dr. GRPO: the clipped surrogate over a constant denominator; advantages are not divided by a std."""
    return ppo_clip(logp, old_logp, advantages, epsilon=epsilon, epsilon_high=epsilon_high)


@aggregated("sequence_mean")
def grpo(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, *, epsilon: float = 0.2, epsilon_high: float | None = None
) -> Tensor:
    """GRPO: the clipped surrogate, mean over each completion's tokens, then over completions."""
    return ppo_clip(logp, old_logp, advantages, epsilon=epsilon, epsilon_high=epsilon_high)


@aggregated("token_mean")
def dapo(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, *, epsilon: float = 0.2, epsilon_high: float | None = 0.28
) -> Tensor:
    """DAPO: the clipped surrogate with a higher upper range, mean over all tokens of the step."""
    return ppo_clip(logp, old_logp, advantages, epsilon=epsilon, epsilon_high=epsilon_high)


def clip_fractions(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor, *, epsilon: float, epsilon_high: float | None
) -> tuple[float, float]:
    """Tokens whose gradient is clipped away below (A < 0, ρ < 1 − ε) and above (A > 0, ρ > 1 + ε_high).

    Returns:
        (low, high): counts of tokens.
    """
    ratio = importance_ratio(logp, old_logp)
    high = 1 + (epsilon if epsilon_high is None else epsilon_high)
    sign = advantages[:, None] if advantages.dim() == 1 else advantages
    low_count = ((ratio < 1 - epsilon) & (sign < 0) & mask).sum()
    high_count = ((ratio > high) & (sign > 0) & mask).sum()
    return float(low_count), float(high_count)
