"""Advantages from rewards: a baseline is subtracted, then the spread may be divided out.

Rewards are float64 `[N]` with NaN where a completion abstained: it is left out of every baseline and gets advantage 0.
`groups` `[N]` holds the index of each completion's prompt. Advantages are constants of the loss.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from typing import Literal, TypeVar

import torch
from torch import Tensor

Scale = Literal["none", "group", "batch"]
Function = TypeVar("Function", bound=Callable[..., Tensor])

STD_EPSILON = 1e-4
"""Added to a standard deviation before dividing (TRL's value)."""


def baseline(*, needs_group: bool) -> Callable[[Function], Function]:
    """Mark a function as a baseline and say whether a group of one leaves it nothing to compare with."""

    def mark(function: Function) -> Function:
        function.needs_group = needs_group  # type: ignore[attr-defined]
        return function

    return mark


def group_sums(values: Tensor, groups: Tensor) -> Tensor:
    """Sum of `values` [N] over each one's group, spread back to [N]."""
    n_groups = int(groups.max()) + 1 if groups.numel() else 0
    return values.new_zeros(n_groups).index_add_(0, groups, values)[groups]


@baseline(needs_group=True)
def group_mean(rewards: Tensor, groups: Tensor) -> Tensor:
    """Rewards less the mean of their group: A = r − mean(r) (Dr. GRPO, arXiv 2503.20783).

    Args:
        rewards: [N] float64, NaN where abstained.
        groups: [N] group indices.

    Returns:
        [N] advantages, 0 where abstained and for a lone survivor.
    """
    scored = ~rewards.isnan()
    filled = rewards.where(scored, 0.0)
    count = group_sums(scored.to(filled.dtype), groups)
    centred = filled - group_sums(filled, groups) / count.clamp(min=1)
    # A group of equal rewards must give exactly 0, or rounding would train on nothing.
    spread = _group_extreme(rewards, groups, "amax") - _group_extreme(rewards, groups, "amin")
    return centred.where(scored & (spread > 0), 0.0)


@baseline(needs_group=True)
def leave_one_out(rewards: Tensor, groups: Tensor) -> Tensor:
    """Rewards less the mean of the others in the group: A = G/(G−1)·(r − mean(r)) (RLOO, arXiv 2402.14740).

    Args and returns are those of `group_mean`; G counts the scored completions.
    """
    count = group_sums((~rewards.isnan()).to(rewards.dtype), groups)
    return group_mean(rewards, groups) * (count / (count - 1).clamp(min=1))


@baseline(needs_group=False)
def ema(
    rewards: Tensor, groups: Tensor, *, keys: Sequence[str], state: MutableMapping[str, float], alpha: float = 0.1
) -> Tensor:
    """Rewards less a running mean per key, read before its update: b ← (1 − α)·b + α·mean(r).

    The first batch of a key is its own baseline (the value initialises b).

    Args:
        rewards: [N] float64, NaN where abstained.
        groups: [N] group indices.
        keys: Per completion, the name whose running mean applies (its task).
        state: Running means; updated in place after they are read.
        alpha: Weight of the newest batch mean, in (0, 1].

    Returns:
        [N] advantages, 0 where abstained.
    """
    scored = ~rewards.isnan()
    advantages = torch.zeros_like(rewards)
    for key in dict.fromkeys(keys):
        chosen = scored & torch.tensor([other == key for other in keys], device=rewards.device)
        if not bool(chosen.any()):
            continue
        mean = float(rewards[chosen].mean())
        before = state.get(key, mean)
        advantages = torch.where(chosen, rewards - before, advantages)
        state[key] = (1 - alpha) * before + alpha * mean if key in state else mean
    return advantages


def scale_advantages(advantages: Tensor, rewards: Tensor, groups: Tensor, scale: Scale) -> Tensor:
    """Divide advantages by the rewards' standard deviation (ddof 1) plus ε, over the group or the batch.

    Args:
        advantages: [N].
        rewards: [N] float64, NaN where abstained.
        groups: [N] group indices.
        scale: `none` (Dr. GRPO), `group` (GRPO, arXiv 2402.03300) or `batch` (Lite PPO, arXiv 2508.08221).

    Returns:
        [N] advantages; a group or batch of one scored completion keeps advantage 0.
    """
    if scale == "none":
        return advantages
    where = groups if scale == "group" else torch.zeros_like(groups)
    scored = ~rewards.isnan()
    filled = rewards.where(scored, 0.0)
    count = group_sums(scored.to(filled.dtype), where)
    mean = group_sums(filled, where) / count.clamp(min=1)
    squares = group_sums(((filled - mean) ** 2).where(scored, 0.0), where)
    std = (squares / (count - 1).clamp(min=1)).sqrt()
    return (advantages / (std + STD_EPSILON)).where(scored & (advantages != 0), 0.0)


def zero_std_fraction(rewards: Tensor, groups: Tensor) -> float:
    """Share of groups whose scored rewards are all equal, so that they teach nothing."""
    if not groups.numel():
        return 0.0
    equal = ~(_group_extreme(rewards, groups, "amax") - _group_extreme(rewards, groups, "amin") > 0)
    first = torch.ones_like(groups, dtype=torch.bool)
    first[1:] = groups[1:] != groups[:-1]
    return float(equal[first].double().mean())


def _group_extreme(rewards: Tensor, groups: Tensor, which: Literal["amax", "amin"]) -> Tensor:
    fill = float("-inf") if which == "amax" else float("inf")
    filled = rewards.where(~rewards.isnan(), fill)
    n_groups = int(groups.max()) + 1 if groups.numel() else 0
    return filled.new_full((n_groups,), fill).scatter_reduce_(0, groups, filled, which)[groups]
