"""Constant factors of the policy loss: importance weights against the sampler, and rows and tokens left out."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from grpo_core.algorithms.losses import MAX_LOG_RATIO, bounded_exp, per_token
from grpo_core.algorithms.masking import masked_mean, masked_sum, sorted_quantile
from grpo_sdk.errors import UserError

RolloutCorrection = Literal["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]


@torch.no_grad()
def rollout_weights(
    old_logp: Tensor,
    sampler_logp: Tensor,
    mask: Tensor,
    *,
    mode: RolloutCorrection,
    maximum: float | None,
    minimum: float | None,
) -> Tensor:
    """Importance weights w = π_old/π_sampler of the trainer's own numbers against the sampler's (TIS and MIS).

    A `sequence` mode uses the product over the completion's tokens. `truncate` clips w to [minimum, maximum]; `mask`
    gives 0 outside and w inside, bounds included. A token whose log-prob is NaN (the sampler could not say) has
    ratio 1. Log-ratios are clamped as in `importance_ratio`.

    Args:
        old_logp: [B, T] of the trainer's forward, before the update.
        sampler_logp: [B, T] that the sampler reported.
        mask: [B, T] bool.
        mode: Level and what happens at the bounds (TRL's vllm_importance_sampling_mode).
        maximum: Upper bound, or None.
        minimum: Lower bound, or None.

    Returns:
        [B, T], 0 where masked.

    Raises:
        UserError: the minimum is above the maximum.
    """
    if minimum is not None and maximum is not None and minimum > maximum:
        raise UserError(f"rollout correction: minimum {minimum:g} is above maximum {maximum:g}; swap them.")
    difference = old_logp - sampler_logp
    log_weight = difference.where(mask & ~difference.isnan(), 0.0)
    if mode in ("sequence_truncate", "sequence_mask"):
        log_weight = masked_sum(log_weight, mask, 1)[:, None]
    weight = bounded_exp(log_weight, MAX_LOG_RATIO)
    low, high = (0.0 if minimum is None else minimum), (float("inf") if maximum is None else maximum)
    if mode in ("token_truncate", "sequence_truncate"):
        weight = weight.clamp(low, high)
    else:
        weight = weight.where((weight >= low) & (weight <= high), 0.0)
    return weight.expand_as(old_logp).where(mask, 0.0)


@torch.no_grad()
def off_policy_mask(
    advantages: Tensor, logp: Tensor, sampler_logp: Tensor, mask: Tensor, *, threshold: float
) -> Tensor:
    """1 to keep, 0 where A < 0 and mean_t(log π_sampler − log π) > threshold (DeepSeek-V3.2, arXiv 2512.02556, eq. 9).

    A completion that the policy has moved away from is no evidence against what the policy does now. Tokens whose
    difference is NaN count as 0.

    Args:
        advantages: [B] or [B, T].
        logp: [B, T] under the policy.
        sampler_logp: [B, T] under the policy that sampled.
        mask: [B, T] bool.
        threshold: The mean difference per token that is allowed.

    Returns:
        Like `advantages`, in the dtype of `logp`.
    """
    difference = sampler_logp - logp
    mean = masked_mean(difference.where(~difference.isnan(), 0.0), mask, 1)
    near = (mean <= threshold)[:, None]
    return ((per_token(advantages) >= 0) | near).reshape(advantages.shape).to(logp.dtype)


@torch.no_grad()
def high_entropy_mask(entropy: Tensor, mask: Tensor, *, quantile: float) -> Tensor:
    """True on the `quantile` of tokens with the highest entropy (arXiv 2506.01939, which uses 0.2).

    The threshold is the (1 − quantile) quantile over all unmasked tokens, linear between neighbours as in TRL, and
    tokens on it are kept. Denominators still count every token.

    Args:
        entropy: [B, T] of the whole optimizer step.
        mask: [B, T] bool.
        quantile: Share to keep: 1 keeps all, 0 only the highest.

    Returns:
        [B, T] bool.
    """
    if not bool(mask.any()):
        return torch.zeros_like(mask)
    threshold = sorted_quantile(entropy[mask].double().sort().values, 1 - quantile)
    return (entropy.double() >= threshold) & mask
