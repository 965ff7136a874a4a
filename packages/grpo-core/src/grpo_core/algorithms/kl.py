"""Per-token estimators of KL(π‖π_ref) from tokens sampled by π, with d = log π − log π_ref (Schulman 2020)."""

from __future__ import annotations

import torch
from torch import Tensor

from grpo_core.algorithms.losses import MAX_LOG_RATIO


def k1(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """d: unbiased, may be negative; in the loss its expected on-policy gradient is zero."""
    return logp - ref_logp


def k2(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """d²/2: biased, at least 0; in the loss its on-policy gradient is that of KL(π‖π_ref)."""
    return (logp - ref_logp) ** 2 / 2


def k3(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """exp(−d) − 1 + d: unbiased and at least 0 (the usual GRPO penalty)."""
    d = logp - ref_logp
    return torch.expm1((-d).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)) + d
