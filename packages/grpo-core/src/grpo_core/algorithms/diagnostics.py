"""Numbers that tell how a step went, from what the step computed anyway; nothing here has a gradient."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor

from grpo_core.algorithms.losses import MAX_LOG_RATIO
from grpo_core.algorithms.masking import sorted_quantile

OUTLIER = 2.0
"""A ratio above this or below its inverse is an outlier (RookWorld's bound)."""


class ClipCounts(NamedTuple):
    """Tokens whose gradient is clipped away.

    Attributes:
        low: A < 0 and ρ < 1 − ε.
        high: A > 0 and ρ > 1 + ε_high.
        region: Either.
    """

    low: float
    high: float
    region: float


def effective_sample_size(log_weights: Tensor) -> tuple[float, float]:
    """Number of equal weights that would be as good: (Σw)² / Σw², from logs, so that no weight overflows.

    Args:
        log_weights: Any shape; −inf is a weight of 0.

    Returns:
        (ess, share): share is ess over the number of weights. (0, 0) where no weight is above 0.
    """
    flat = log_weights.detach().double().flatten()
    if not bool((flat > -math.inf).any()):
        return 0.0, 0.0
    ess = float((2 * flat.logsumexp(0) - (2 * flat).logsumexp(0)).exp())
    return ess, ess / flat.numel()


def clip_fractions(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor, *, epsilon: float, epsilon_high: float | None
) -> ClipCounts:
    """Count the tokens that the clip of the surrogate leaves without a gradient; divide by the step's tokens.

    Args:
        logp: [B, T].
        old_logp: [B, T].
        advantages: [B] or [B, T].
        mask: [B, T] bool.
        epsilon: Lower clip range ε.
        epsilon_high: Upper clip range; ε when None.
    """
    ratio = (logp - old_logp).detach().exp()
    advantages = advantages[:, None] if advantages.dim() == 1 else advantages
    low = float(((ratio < 1 - epsilon) & (advantages < 0) & mask).sum())
    high = float(((ratio > 1 + (epsilon if epsilon_high is None else epsilon_high)) & (advantages > 0) & mask).sum())
    return ClipCounts(low, high, low + high)


def ratio_statistics(
    log_ratio: Tensor, mask: Tensor, *, max_log_ratio: float | None = MAX_LOG_RATIO
) -> dict[str, float]:
    """Statistics of the probability ratios of a step.

    Args:
        log_ratio: [B, T] log π − log π_old.
        mask: [B, T] bool.
        max_log_ratio: Clamp of the loss; None has none.

    Returns:
        `mean`, `std` (of the population), `median`, `p90`, `p99` and `max` of ρ, and the shares `outliers` (ρ < 0.5 or
        ρ > 2) and `clamped` (|log ρ| above max_log_ratio). Empty where no token counts.
    """
    logs = log_ratio.detach()[mask].double().sort().values
    if logs.numel() == 0:
        return {}
    limit = math.inf if max_log_ratio is None else max_log_ratio
    ratio = logs.clamp(-limit, limit).exp()
    return {
        "mean": float(ratio.mean()),
        "std": float(ratio.std(correction=0)),
        "median": sorted_quantile(ratio, 0.5),
        "p90": sorted_quantile(ratio, 0.9),
        "p99": sorted_quantile(ratio, 0.99),
        "max": float(ratio[-1]),
        "outliers": float((logs.abs() > math.log(OUTLIER)).double().mean()),
        "clamped": float((logs.abs() > limit).double().mean()),
    }
