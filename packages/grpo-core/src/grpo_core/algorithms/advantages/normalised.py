"""Advantages that are divided by something, and the division by the rewards' standard deviation.

Parameters and returns are those of `baselines`; the trainer provides `reward_parts` and `part_weights`.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from grpo_core.algorithms.advantages.groups import deviations, group_counts, group_maximum, group_std, group_sums
from grpo_sdk.errors import UserError
from grpo_sdk.plugins.variant import checked_by

Scale = Literal["none", "group", "batch"]

STD_EPSILON = 1e-4
"""Added to a standard deviation before dividing (TRL's value)."""

SMALL_EPSILON = 1e-6
"""Added to a mean or a deviation where the authors' code has a smaller one (verl's value)."""

SAME_MEAN = 1e-12
"""Group means that differ by less differ by rounding."""


def scale_advantages(
    advantages: Tensor,
    rewards: Tensor,
    groups: Tensor,
    scale: Scale,
    *,
    epsilon: float = STD_EPSILON,
    ddof: int = 1,
) -> Tensor:
    """Divide advantages by the rewards' standard deviation plus ε, over the group or the batch.

    Args:
        advantages: [N].
        rewards: [N], NaN where abstained.
        groups: [N].
        scale: `none` (Dr. GRPO), `group` (GRPO, arXiv 2402.03300) or `batch` (Lite PPO, arXiv 2508.08221).
        epsilon: ε.
        ddof: 1 divides the squares by n − 1, 0 by n.

    Returns:
        [N] float64. One scored completion has no deviation: it is divided by 1 + ε, as in verl.
    """
    if scale == "none":
        return advantages
    where = groups if scale == "group" else torch.zeros_like(groups)
    std = group_std(rewards, where, ddof=ddof).where(group_counts(rewards, where) != 1, 1.0)
    # 0 stays 0 where both are 0 and ε is, too.
    return (advantages.double() / (std + epsilon)).where(~rewards.isnan() & (advantages != 0), 0.0)


def maxrl(rewards: Tensor, groups: Tensor, *, epsilon: float = SMALL_EPSILON) -> Tensor:
    """Rewards less the mean of their group, over that mean: rare successes count most.

    Args:
        rewards: [N], with no group's mean below 0.
        groups: [N].
        epsilon: Added to the mean.

    Raises:
        UserError: a group's mean is below 0, so that its advantages would change their sign.
    """
    mean = _group_means(rewards, groups)
    if bool((mean < 0).any()):
        raise UserError(
            f"maxrl divides by the mean reward of a group, and one is {float(mean.min()):g}. Use rewards of at least 0 "
            "(no penalties, no negative reward for invalid answers), or another baseline."
        )
    advantages = deviations(rewards, groups)
    return (advantages / (mean + epsilon)).where(advantages != 0, 0.0)


def _check_k(k: int) -> None:
    if k < 1:
        raise UserError(f"k={k} completions make a set: at least 1.")


@checked_by(_check_k)
def pass_at_k(
    rewards: Tensor, groups: Tensor, *, k: int = 4, solved_at: float = 1.0, epsilon: float = SMALL_EPSILON
) -> Tensor:
    """Standardised pass@k over all sets of k completions of the group, averaged over the sets a completion is in.

    Args:
        rewards: [N].
        groups: [N].
        k: Completions per set; a group with fewer scored ones has advantage 0.
        solved_at: Reward from which a completion counts as solved.
        epsilon: Added to the deviation.
    """
    scored = ~rewards.isnan()
    total = group_counts(rewards, groups)
    solved = scored & (rewards >= solved_at)
    failed = total - group_sums(solved.double(), groups)
    all_fail = _none_of(failed, total, k)  # share of the sets without a solved completion: 1 − p
    others_fail = _none_of(failed - 1, total - 1, k - 1)  # the same among the sets with one given failure
    advantages = all_fail - others_fail.where(~solved, 0.0)
    scaled = advantages / ((all_fail * (1 - all_fail)).sqrt() + epsilon)
    return scaled.where(scored & (advantages != 0), 0.0)


def pass_at_k_best(
    rewards: Tensor, groups: Tensor, *, scale: Literal["none", "group"] = "none", epsilon: float = SMALL_EPSILON
) -> Tensor:
    """By how much the best completion of a group raises the group's maximum; equal best ones raise nothing.

    Args:
        rewards: [N].
        groups: [N].
        scale: `group` divides by the group's standard deviation.
        epsilon: Added to it.
    """
    rewards = rewards.double()
    best = rewards == group_maximum(rewards, groups)
    second = group_maximum(rewards.where(~best, float("nan")), groups)
    alone = group_sums(best.double(), groups) == 1
    advantages = (rewards - second).where(best & alone & second.isfinite(), 0.0)
    return scale_advantages(advantages, rewards, groups, scale, epsilon=epsilon)


def _check_range(minimum: float, maximum: float) -> None:
    if not minimum < maximum:
        raise UserError(f"minimum={minimum:g} must be below maximum={maximum:g}.")


@checked_by(_check_range)
def bnpo(
    rewards: Tensor, groups: Tensor, *, minimum: float = 0.0, maximum: float = 1.0, max_weight: float = 1e6
) -> Tensor:
    """Rewards less the mean of their group, over a Beta density fitted to the groups' means.

    Not TRL's loss type `bnpo`, which is only a token mean. Groups with equal means (or a single group) have no Beta
    distribution: the density is uniform and the weight 1; the authors' code divides by 0 where the means are equal.

    Args:
        rewards: [N], with every group's mean within the bounds.
        groups: [N].
        minimum: Lowest reward, mapped to 0.
        maximum: Highest reward, mapped to 1.
        max_weight: Limit of 1/f.

    Raises:
        UserError: a group's mean is outside the bounds.
    """
    unit = (rewards.double() - minimum) / (maximum - minimum)
    means = _group_means(unit, groups)
    if bool(((means < 0) | (means > 1)).any()):
        raise UserError(
            f"bnpo takes rewards between minimum={minimum:g} and maximum={maximum:g}, and the mean of a group is "
            "outside. Set advantage_args.minimum and advantage_args.maximum to the range of the reward."
        )
    scored = ~rewards.isnan()
    present = groups[scored].unique()
    # One mean per group, so that groups with fewer scored completions count as much.
    of_groups = torch.stack([means[(groups == group) & scored][0] for group in present]) if len(present) else means[:0]
    weight = (1 / _fitted_beta(of_groups, means)).clamp(max=max_weight)
    advantages = deviations(unit, groups)
    return (weight * advantages).where(advantages != 0, 0.0)


def gdpo(
    rewards: Tensor, groups: Tensor, *, reward_parts: Tensor, part_weights: Tensor, epsilon: float = STD_EPSILON
) -> Tensor:
    """Each reward function is standardised within the group by itself, so that none drowns the others.

    Args:
        rewards: [N]; only where they are NaN matters here.
        groups: [N].
        reward_parts: [N, K] of each reward function, NaN where it does not apply.
        part_weights: [N, K] in the task of each completion, or [K] where all are of one.
        epsilon: Added to both deviations.
    """
    scored = ~rewards.isnan() & ~reward_parts.isnan().all(dim=1)
    total = torch.zeros_like(rewards, dtype=torch.float64)
    weights = part_weights.double().expand_as(reward_parts)
    for part, weight in zip(reward_parts.double().unbind(dim=1), weights.unbind(dim=1), strict=True):
        known = part.where(scored, float("nan"))
        total += weight * scale_advantages(deviations(known, groups), known, groups, "group", epsilon=epsilon)
    # Every z_k sums to 0 over its group, so the batch's mean is 0 already.
    return scale_advantages(total, total.where(scored, float("nan")), groups, "batch", epsilon=epsilon)


def _group_means(rewards: Tensor, groups: Tensor) -> Tensor:
    """Mean of each one's group, [N] float64; 0 where the whole group abstained."""
    filled = rewards.double().where(~rewards.isnan(), 0.0)
    return group_sums(filled, groups) / group_counts(rewards, groups).clamp(min=1)


def _none_of(failed: Tensor, total: Tensor, k: int) -> Tensor:
    """C(failed, k) / C(total, k): the share of sets of k that hold failures only."""
    share = torch.ones_like(total)
    for taken in range(k):
        share = share * (failed - taken).clamp(min=0) / (total - taken).clamp(min=1)
    return share


def _fitted_beta(means: Tensor, points: Tensor) -> Tensor:
    """Density at `points` of the Beta distribution that BNPO fits to `means` [groups]; 1 where they are equal."""
    if len(means) < 2 or float(means.max() - means.min()) < SAME_MEAN:
        return torch.ones_like(points)
    centre = means.mean()
    concentration = centre * (1 - centre) / means.var() - 1
    # At least 1: below it the density has no maximum, and infinite values at 0 and 1 (the authors' clamp).
    alpha = (1 + concentration * centre / 3).clamp(min=1)
    beta = (1 + concentration * (1 - centre) / 3).clamp(min=1)
    log_norm = torch.lgamma(alpha) + torch.lgamma(beta) - torch.lgamma(alpha + beta)
    return (torch.xlogy(alpha - 1, points) + torch.xlogy(beta - 1, 1 - points) - log_norm).exp()
