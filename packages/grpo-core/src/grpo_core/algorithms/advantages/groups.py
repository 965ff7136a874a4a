"""Statistics of rewards within groups, where a group is the completions of one prompt.

`rewards` [N] are float64 with NaN where a completion abstained; `groups` [N] are int64 indices from 0, in any order.
Statistics are spread back to [N], so that row i holds those of its own group.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor


def group_sums(values: Tensor, groups: Tensor) -> Tensor:
    """Σ of `values` [N] over each one's group, [N]."""
    return values.new_zeros(_slots(groups)).index_add_(0, groups, values)[groups]


def group_counts(rewards: Tensor, groups: Tensor) -> Tensor:
    """Number of scored completions in each completion's group, [N] float64."""
    return group_sums((~rewards.isnan()).double(), groups)


def group_minimum(rewards: Tensor, groups: Tensor) -> Tensor:
    """Lowest scored reward of each one's group, [N]; +inf where the whole group abstained."""
    return _extreme(rewards, groups, "amin")


def group_maximum(rewards: Tensor, groups: Tensor) -> Tensor:
    """Highest scored reward of each one's group, [N]; −inf where the whole group abstained."""
    return _extreme(rewards, groups, "amax")


def deviations(rewards: Tensor, groups: Tensor, *, weights: Tensor | None = None) -> Tensor:
    """Reward less the (weighted) mean of its group: r − Σ w·r / Σ w.

    Args:
        rewards: [N], NaN where abstained.
        groups: [N].
        weights: [N] whole numbers of at least 0; equal by default.

    Returns:
        [N] float64, 0 where abstained; exactly 0 in a group of one reward or of equal ones.
    """
    rewards = rewards.double()
    scored = ~rewards.isnan()
    # Shifted first: rewards near 1e6 would lose the digits in which they differ, equal ones would leave some.
    above = (rewards - group_minimum(rewards, groups)).where(scored, 0.0)
    weights = scored.double() if weights is None else weights.double().where(scored, 0.0)
    mean = group_sums(weights * above, groups) / group_sums(weights, groups).clamp(min=1)
    return (above - mean).where(scored, 0.0)


def group_std(rewards: Tensor, groups: Tensor, *, ddof: int = 1) -> Tensor:
    """Standard deviation √(Σ(r − mean)² / (n − ddof)) of each one's group, [N] float64; 0 where n is 1 or 0."""
    squares = group_sums(deviations(rewards, groups) ** 2, groups)
    return (squares / (group_counts(rewards, groups) - ddof).clamp(min=1)).sqrt()


def kept_indices(rewards: Tensor, groups: Tensor, *, minimum: float = 0.0) -> Tensor:
    """Indices, ascending, of the rows whose group's rewards have a standard deviation (ddof 1) above `minimum`.

    These are the groups that DAPO's dynamic sampling keeps (arXiv 2503.14476); their abstained rows stay with them.
    """
    return (group_std(rewards, groups) > minimum).nonzero().flatten()


def zero_std_fraction(rewards: Tensor, groups: Tensor, *, minimum: float = 0.0) -> float:
    """Share of groups that `kept_indices` drops: their rewards are all equal and teach nothing; 0 without a group."""
    if not groups.numel():
        return 0.0
    kept = groups[kept_indices(rewards, groups, minimum=minimum)]
    return 1.0 - len(kept.unique()) / len(groups.unique())


def _extreme(rewards: Tensor, groups: Tensor, which: Literal["amax", "amin"]) -> Tensor:
    fill = float("-inf") if which == "amax" else float("inf")
    filled = rewards.double().nan_to_num(nan=fill, posinf=float("inf"), neginf=float("-inf"))
    return filled.new_full((_slots(groups),), fill).scatter_reduce_(0, groups, filled, which)[groups]


def _slots(groups: Tensor) -> int:
    return int(groups.max()) + 1 if groups.numel() else 0
