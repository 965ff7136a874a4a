"""Policy losses over tokens, and `policy_loss`, which turns any objective into the number to minimise.

An objective is `f(logp, old_logp, advantages, mask, *, options) -> [B, T]`, to be minimised; its keyword-only
parameters are its configuration. Throughout, ρ = π/π_old per token and A is a constant of the loss: [B], or [B, T].
Objectives whose ratio is one number per completion are in `sequence_losses`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from grpo_core.algorithms.aggregation import weighted_sum
from grpo_sdk.errors import UserError
from grpo_sdk.plugins.variant import checked_by

Objective = Callable[..., Tensor]

MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped here before exp (verl's bound), so that a single extreme ratio cannot make an infinity."""

DPPO_PROBABILITY_EPSILON = 1e-8
"""Added to 1 − π in DPPO's binary KL (verl's value), where a certain token would take the log of 0."""


def policy_loss(
    objective: Objective,
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    weights: Tensor,
    *,
    correction: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """Σ weight · correction · objective: the policy loss of some rows of an optimizer step.

    Padding is replaced before any arithmetic, so whatever it holds (NaN, ±inf), its value and gradient are exactly 0.

    Args:
        objective: A function of this module or of `sequence_losses`, or one that was registered.
        logp: [B, T] log-probabilities under the policy.
        old_logp: [B, T] under the policy that sampled.
        advantages: [B] or [B, T].
        mask: [B, T] bool, true on the tokens that count.
        weights: [B, T] result of `token_weights`.
        correction: [B, T] constant factors of the objective: importance weights, tokens or rows that are left out.
        **options: Options of the objective.

    Returns:
        A scalar.
    """
    if advantages.dim() == 2:
        advantages = advantages.where(mask, 0.0)
    values = objective(logp.where(mask, 0.0), old_logp.where(mask, 0.0), advantages, mask, **options)
    if correction is not None:
        values = values * correction.where(mask, 0.0)
    return weighted_sum(values, mask, weights)


def importance_ratio(logp: Tensor, old_logp: Tensor, *, max_log_ratio: float | None = MAX_LOG_RATIO) -> Tensor:
    """ρ = exp(log π − log π_old), the log-ratio clamped to ±`max_log_ratio` (None: not at all, as TRL)."""
    return bounded_exp(logp - old_logp, max_log_ratio)


def bounded_exp(log_ratio: Tensor, max_log_ratio: float | None) -> Tensor:
    """Exponential of a log-ratio clamped to ±`max_log_ratio`; beyond the bound the gradient is 0."""
    return (log_ratio if max_log_ratio is None else log_ratio.clamp(-max_log_ratio, max_log_ratio)).exp()


def per_token(advantages: Tensor) -> Tensor:
    """Advantages as [B, 1] or [B, T], to be multiplied with tokens."""
    return advantages[:, None] if advantages.dim() == 1 else advantages


def choose(condition: Tensor, yes: float, no: float, like: Tensor) -> Tensor:
    """`yes` where the condition holds, else `no`, at the precision of `like` (two plain floats would give float32)."""
    return torch.where(condition, like.new_full((), yes), like.new_full((), no))


def check_dual_clip(dual_clip: float | None) -> None:
    """Refuse a bound of at most 1, which would also stop the tokens that PPO means to train on."""
    if dual_clip is not None and dual_clip <= 1:
        raise UserError(f"dual_clip={dual_clip:g}: must be above 1 (3 is common), or null for none.")


def clipped_surrogate(
    ratio: Tensor,
    advantages: Tensor,
    *,
    epsilon: float,
    epsilon_high: float | None = None,
    delta: float | None = None,
    dual_clip: float | None = None,
) -> Tensor:
    """−min(min(ρ, δ)·A, clip(ρ, 1 − ε, 1 + ε_high)·A), and at most −c·A where A < 0.

    Args:
        ratio: ρ, [B, T] or [B, 1].
        advantages: [B, T] or [B, 1].
        epsilon: Lower clip range ε.
        epsilon_high: Upper clip range; ε when None.
        delta: Upper bound δ of the unclipped term (INTELLECT-2, arXiv 2505.07291), above 1 + ε_high to have a use.
        dual_clip: Bound c > 1 of a negative advantage's loss (arXiv 1912.09729).
    """
    clipped = ratio.clamp(1 - epsilon, 1 + (epsilon if epsilon_high is None else epsilon_high))
    unclipped = ratio if delta is None else ratio.clamp(max=delta)
    loss = -torch.minimum(unclipped * advantages, clipped * advantages)
    if dual_clip is None:
        return loss
    return torch.where(advantages < 0, torch.minimum(loss, -dual_clip * advantages), loss)


@checked_by(check_dual_clip)
def ppo_clip(
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
    """`clipped_surrogate` of the tokens' ratios, [B, T]: the objective of GRPO, Dr. GRPO, DAPO, bnpo and RLOO.

    They differ in their aggregation and default ranges: rows of `grpo_sdk.plugins.built_in`.
    """
    return clipped_surrogate(
        importance_ratio(logp, old_logp, max_log_ratio=max_log_ratio),
        per_token(advantages),
        epsilon=epsilon,
        epsilon_high=epsilon_high,
        delta=delta,
        dual_clip=dual_clip,
    )


def reinforce(logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """REINFORCE: the policy gradient of samples that are taken to be on-policy, without a ratio."""
    return -per_token(advantages) * logp


def _check_bounds(epsilon_low: float | None, epsilon_high: float) -> None:
    if epsilon_low is not None and not 1 - epsilon_low < epsilon_high:
        raise UserError(
            f"epsilon_low={epsilon_low:g}, epsilon_high={epsilon_high:g}: the ratio's lower bound, 1 − epsilon_low, "
            "must be below its upper one, which is epsilon_high itself."
        )


@checked_by(_check_bounds)
def cispo(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    epsilon_high: float = 5.0,
    epsilon_low: float | None = None,
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Tensor:
    """CISPO: the truncated ratio is a constant weight, so every token keeps a gradient.

    As in TRL, `epsilon_high` is the bound of ρ itself, not what is added to 1. From below ρ is bounded by
    1 − `epsilon_low`, as in the paper's formula and in verl; by default it is not, as in the paper's experiments.
    """
    lowest = None if epsilon_low is None else 1 - epsilon_low
    ratio = importance_ratio(logp, old_logp, max_log_ratio=max_log_ratio).clamp(lowest, epsilon_high)
    return -ratio.detach() * per_token(advantages) * logp


def _check_temperatures(temperature_pos: float, temperature_neg: float) -> None:
    for name, value in (("temperature_pos", temperature_pos), ("temperature_neg", temperature_neg)):
        if value <= 0:
            raise UserError(f"{name}={value:g}: the gate's temperature divides the loss: above 0.")


@checked_by(_check_temperatures)
def sapo(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    temperature_pos: float = 1.0,
    temperature_neg: float = 1.05,
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Tensor:
    """SAPO: a sigmoid gate around ρ = 1 in place of clipping; its slope there is 1."""
    advantages = per_token(advantages)
    ratio = importance_ratio(logp, old_logp, max_log_ratio=max_log_ratio)
    temperature = choose(advantages > 0, temperature_pos, temperature_neg, ratio)
    return -torch.sigmoid(temperature * (ratio - 1)) * 4 / temperature * advantages


def dro(logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor, *, beta: float = 0.05) -> Tensor:
    """DRO: the policy gradient with a quadratic penalty on leaving the policy that sampled; no exp, no clip."""
    return -(per_token(advantages) * logp - beta / 2 * (logp - old_logp) ** 2)


def dppo(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    epsilon: float = 0.15,
    epsilon_high: float | None = None,
    divergence: Literal["tv", "kl"] = "tv",
    max_ratio: float | None = 20.0,
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Tensor:
    """DPPO: a trust region on the sampled token's probability, not on its ratio.

    A token is left out when its advantage pushes it further away than ε (A ≤ 0) or ε_high (A > 0). ε is a difference
    of probabilities for `tv`; for `kl` the authors use 0.05.
    """
    advantages, high = per_token(advantages), epsilon if epsilon_high is None else epsilon_high
    ratio = importance_ratio(logp, old_logp, max_log_ratio=max_log_ratio).detach()
    if max_ratio is not None:
        ratio = ratio.clamp(max=max_ratio)
    with torch.no_grad():
        prob, old_prob = logp.exp(), old_logp.exp()
        moved = prob - old_prob
        if divergence == "tv":
            distance = moved.abs()
        else:
            other = (1 - old_prob + DPPO_PROBABILITY_EPSILON) / (1 - prob + DPPO_PROBABILITY_EPSILON)
            distance = old_prob * (old_logp - logp) + (1 - old_prob) * other.log()
        kept = torch.where(advantages > 0, (moved <= 0) | (distance <= high), (moved >= 0) | (distance <= epsilon))
    return -(ratio * kept) * advantages * logp


def value_loss(values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, *, clip: float | None) -> Tensor:
    """½·max((v − R)², (clip(v, v_old ± c) − R)²) per token (PPO's value clipping, arXiv 2005.12729).

    Args:
        values: [B, T] of the value head.
        old_values: [B, T] before the update.
        returns: [B, T] targets R.
        mask: [B, T] bool; padding may hold anything and has value and gradient 0.
        clip: How far c from the old value a step may take effect; None for ½(v − R)².

    Returns:
        [B, T], to be weighted by `token_weights` like the policy's objective.
    """
    values, returns = values.where(mask, 0.0), returns.where(mask, 0.0)
    loss = (values - returns) ** 2
    if clip is not None:
        old_values = old_values.where(mask, 0.0)
        clipped = torch.maximum(torch.minimum(values, old_values + clip), old_values - clip)
        loss = torch.maximum(loss, (clipped - returns) ** 2)
    return loss.where(mask, 0.0) / 2
