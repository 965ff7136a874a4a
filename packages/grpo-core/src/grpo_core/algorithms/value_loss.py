"""The value head's loss."""

from __future__ import annotations

import torch
from torch import Tensor


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
