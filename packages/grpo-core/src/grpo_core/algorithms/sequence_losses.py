"""Policy losses whose importance ratio belongs to a completion, not to a token; see `losses` for the conventions.

Every objective gives [B, T], so that each aggregation and correction applies to all: a completion's value stands at
each of its tokens. With A per completion and `sequence_mean` that is the papers' mean over completions.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from grpo_core.algorithms.losses import (
    MAX_LOG_RATIO,
    bounded_exp,
    check_dual_clip,
    choose,
    clipped_surrogate,
    per_token,
)
from grpo_core.algorithms.masking import masked_mean, masked_sum
from grpo_sdk.plugins.variant import checked_by

VESPO_LOG_RATIO = (math.log(1e-8), 20.0)
"""Bounds of a completion's log-ratio in VESPO: those of the authors' code and of TRL."""


def sequence_log_ratio(logp: Tensor, old_logp: Tensor, mask: Tensor, *, mean: bool) -> Tensor:
    """[B, 1] sum or mean over a completion's tokens of log π − log π_old; 0 where it has none."""
    log_ratio = logp - old_logp
    return (masked_mean(log_ratio, mask, 1) if mean else masked_sum(log_ratio, mask, 1))[:, None]


@checked_by(check_dual_clip)
def gspo(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    epsilon: float = 3e-4,
    epsilon_high: float | None = 4e-4,
    delta: float | None = None,
    dual_clip: float | None = None,
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Tensor:
    """GSPO: one length-normalised ratio per completion, clipped as a whole."""
    ratio = bounded_exp(sequence_log_ratio(logp, old_logp, mask, mean=True), max_log_ratio)
    return clipped_surrogate(
        ratio, per_token(advantages), epsilon=epsilon, epsilon_high=epsilon_high, delta=delta, dual_clip=dual_clip
    ).expand_as(logp)


@checked_by(check_dual_clip)
def gspo_token(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    epsilon: float = 3e-4,
    epsilon_high: float | None = 4e-4,
    delta: float | None = None,
    dual_clip: float | None = None,
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Tensor:
    """GSPO-token: GSPO's value with a gradient per token, so that advantages may differ within a completion."""
    sequence = sequence_log_ratio(logp, old_logp, mask, mean=True).detach()
    ratio = bounded_exp(sequence + logp - logp.detach(), max_log_ratio)
    return clipped_surrogate(
        ratio, per_token(advantages), epsilon=epsilon, epsilon_high=epsilon_high, delta=delta, dual_clip=dual_clip
    )


@checked_by(check_dual_clip)
def seq_ppo(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    epsilon: float = 0.2,
    epsilon_high: float | None = None,
    delta: float | None = None,
    dual_clip: float | None = None,
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Tensor:
    """PPO with a completion as the action: its ratio is the product of its tokens' ratios."""
    ratio = bounded_exp(sequence_log_ratio(logp, old_logp, mask, mean=False), max_log_ratio)
    return clipped_surrogate(
        ratio, per_token(advantages), epsilon=epsilon, epsilon_high=epsilon_high, delta=delta, dual_clip=dual_clip
    ).expand_as(logp)


def gmpo(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    epsilon: float = 0.4,
    epsilon_high: float | None = None,
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Tensor:
    """GMPO: the geometric mean of clipped token ratios; ε bounds log ρ, and a completion's advantage is its mean."""
    high = epsilon if epsilon_high is None else epsilon_high
    advantages, log_ratio = per_token(advantages), logp - old_logp
    clipped = log_ratio.clamp(-epsilon, high)
    pessimistic = torch.where(advantages > 0, torch.minimum(log_ratio, clipped), torch.maximum(log_ratio, clipped))
    ratio = bounded_exp(masked_mean(pessimistic, mask, 1)[:, None], max_log_ratio)
    return (-masked_mean(advantages.expand_as(logp), mask, 1)[:, None] * ratio).expand_as(logp)


def vespo(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    k_pos: float = 2.0,
    lambda_pos: float = 3.0,
    k_neg: float = 3.0,
    lambda_neg: float = 2.0,
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Tensor:
    """VESPO: a smooth weight of the completion's whole ratio in place of clipping; φ(1) = 1.

    A rollout correction multiplies, as for every loss; TRL multiplies w by it instead.
    """
    advantages = per_token(advantages)
    with torch.no_grad():
        log_ratio = logp - old_logp
        if max_log_ratio is not None:
            log_ratio = log_ratio.clamp(-max_log_ratio, max_log_ratio)
        log_w = masked_sum(log_ratio, mask, 1)[:, None].clamp(*VESPO_LOG_RATIO)
        positive = advantages >= 0
        k, decay = choose(positive, k_pos, k_neg, log_w), choose(positive, lambda_pos, lambda_neg, log_w)
        phi = (decay + k * log_w - decay * log_w.exp()).exp()
    return -phi * advantages * logp
