"""Masks over completions, sums that a NaN in the padding cannot reach, and quantiles of what is left.

Masked positions may hold NaN or −inf: they are selected away with `where`, never multiplied by 0, so neither the value
nor the gradient sees them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def completion_mask(completion_lens: Tensor, length: int | None = None) -> Tensor:
    """Return [B, T] bool, true at real tokens; T is `length`, or the longest completion.

    Example: lengths [3, 1] give [[1, 1, 1], [1, 0, 0]].
    """
    if length is None:
        length = int(completion_lens.max()) if completion_lens.numel() else 0
    return torch.arange(length, device=completion_lens.device) < completion_lens[:, None]


def masked_sum(values: Tensor, mask: Tensor, dim: int | tuple[int, ...] | None = None) -> Tensor:
    """Return Σ values where mask, over `dim` or everything."""
    return values.where(mask, 0.0).sum(dim)


def masked_mean(values: Tensor, mask: Tensor, dim: int | tuple[int, ...] | None = None) -> Tensor:
    """Return Σ values / Σ mask over `dim` or everything; 0 where the mask is empty, with gradient 0."""
    count = mask.expand_as(values).sum(dim).clamp(min=1)
    return masked_sum(values, mask, dim) / count


def sorted_quantile(ordered: Tensor, q: float) -> float:
    """Linear interpolation between sorted values; torch.quantile refuses more than 2^24 of them."""
    position = q * (ordered.numel() - 1)
    below = math.floor(position)
    above = min(below + 1, ordered.numel() - 1)
    return float(torch.lerp(ordered[below], ordered[above], position - below))
