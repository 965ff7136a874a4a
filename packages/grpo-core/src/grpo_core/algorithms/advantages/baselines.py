"""Advantages as rewards less a baseline.

Every function takes `rewards` [N] (NaN where a completion abstained: it is left out of every baseline and gets
advantage 0) and `groups` [N] (index of each completion's prompt), and returns [N] float64. Keyword-only parameters are
the variant's configuration, except those that the trainer provides: `keys`, `roles`, `state`, `lengths`,
`greedy_rewards`. Advantages are constants of the loss.
"""

from __future__ import annotations

import math
from collections.abc import MutableMapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from grpo_core.algorithms.advantages.groups import deviations, group_counts, group_maximum, group_minimum, group_std
from grpo_sdk.errors import UserError
from grpo_sdk.plugins.variant import checked_by

Singleton = Literal["zero", "raw"]
Order = Literal["before", "after"]


def group_mean(rewards: Tensor, groups: Tensor, *, singleton: Singleton = "zero") -> Tensor:
    """Rewards less the mean of their group.

    Args:
        rewards: [N].
        groups: [N].
        singleton: Advantage of the only scored completion of a group: `zero`, or its `raw` reward as in verl.
    """
    advantages = deviations(rewards, groups)
    if singleton == "raw":
        alone = ~rewards.isnan() & (group_counts(rewards, groups) == 1)
        return rewards.double().where(alone, advantages)
    return advantages


def leave_one_out(rewards: Tensor, groups: Tensor, *, singleton: Singleton = "zero") -> Tensor:
    """Rewards less the mean of the others in their group; G counts the scored completions.

    Args:
        rewards: [N].
        groups: [N].
        singleton: As for `group_mean`.
    """
    count = group_counts(rewards, groups)
    return group_mean(rewards, groups, singleton=singleton) * (count / (count - 1).clamp(min=1))


def group_median(rewards: Tensor, groups: Tensor) -> Tensor:
    """Rewards less the median of their group; of an even number, the mean of the middle two."""
    advantages = torch.zeros_like(rewards, dtype=torch.float64)
    scored = ~rewards.isnan()
    for group in groups[scored].unique():
        members = (groups == group) & scored
        values = rewards[members].double()
        ordered, half = values.sort().values, len(values) // 2
        # Of equal numbers the mean may be another number, and then equal rewards would have an advantage.
        low, high = ordered[(len(values) - 1) // 2], ordered[half]
        advantages[members] = values - (low if low == high else (low + high) / 2)
    return advantages


def none(rewards: Tensor, groups: Tensor) -> Tensor:
    """Rewards as they are."""
    return rewards.double().where(~rewards.isnan(), 0.0)


def batch_mean(rewards: Tensor, groups: Tensor) -> Tensor:
    """Rewards less the mean over all prompts of the batch."""
    return deviations(rewards, torch.zeros_like(groups))


def adaptive(rewards: Tensor, groups: Tensor, *, threshold: float = 0.1) -> Tensor:
    """Rewards less their group's median where it is spread out (ddof 1), else less its mean.

    Args:
        rewards: [N].
        groups: [N].
        threshold: Standard deviation above which outliers are taken to distort the mean.
    """
    rewards = rewards.double()
    scored = ~rewards.isnan()
    spread = group_std(rewards, groups) > threshold
    advantages = deviations(rewards, groups)
    for group in groups[spread & scored].unique():
        members = (groups == group) & scored
        advantages[members] = rewards[members] - rewards[members].median()  # torch's median is the lower one
    return advantages


def _check_alpha(alpha: float) -> None:
    if not 0 < alpha <= 1:
        raise UserError(f"alpha={alpha:g} is the weight of the newest batch mean: above 0, at most 1 (default 0.1).")


@checked_by(_check_alpha)
def ema(
    rewards: Tensor,
    groups: Tensor,
    *,
    keys: Sequence[str],
    state: MutableMapping[str, float],
    alpha: float = 0.1,
    init: float | None = None,
    order: Order = "before",
    debias: bool = False,
) -> Tensor:
    """Rewards less a running mean per task.

    Args:
        rewards: [N].
        groups: [N].
        keys: Per completion, the name whose running mean applies.
        state: Running means by key; updated in place.
        alpha: Weight of the newest batch mean, in (0, 1].
        init: Where a running mean starts; null starts it at its first batch mean.
        order: Read the baseline `before` its update, so that no reward lowers its own advantage, or `after` it.
        debias: Divide the weight of the start out of the running mean, as Adam does: b/(1 − (1 − alpha)^t).
    """
    rewards = rewards.double()
    scored = ~rewards.isnan()
    advantages = torch.zeros_like(rewards)
    for key in dict.fromkeys(keys):
        chosen = scored & torch.tensor([other == key for other in keys], device=rewards.device)
        if not bool(chosen.any()):
            continue
        mean = float(rewards[chosen].mean())
        before, after = _advanced(state, key, mean, alpha=alpha, init=init, debias=debias)
        advantages[chosen] = rewards[chosen] - (before if order == "before" else after)
    return advantages


def _check_shrinkage(kappa: float, alpha: float) -> None:
    if kappa < 0:
        raise UserError(f"kappa={kappa:g} counts completions: at least 0 (default 4).")
    _check_alpha(alpha)


@checked_by(_check_shrinkage)
def adaptive_shrink(
    rewards: Tensor,
    groups: Tensor,
    *,
    keys: Sequence[str],
    state: MutableMapping[str, float],
    kappa: float = 4.0,
    alpha: float = 0.1,
) -> Tensor:
    """Rewards less a mixture of their group's mean and their task's running mean, read before its update.

    Args:
        rewards: [N].
        groups: [N].
        keys: Per completion, the name whose running mean applies.
        state: Running means by key; updated in place.
        kappa: Scored completions n that make both count equally; 0 leaves the group's mean alone.
        alpha: Weight of the newest batch mean in the running mean, in (0, 1].
    """
    count = group_counts(rewards, groups)
    weight = count / (count + kappa).clamp(min=torch.finfo(count.dtype).tiny)
    running = ema(rewards, groups, keys=keys, state=state, alpha=alpha)
    return weight * deviations(rewards, groups) + (1 - weight) * running


def _check_kept_share(alpha: float) -> None:
    if not 0 <= alpha < 1:
        raise UserError(f"alpha={alpha:g} is the share that stays: at least 0, below 1 (default 0.95).")


@checked_by(_check_kept_share)
def role(
    rewards: Tensor,
    groups: Tensor,
    *,
    roles: Sequence[str],
    state: MutableMapping[str, float],
    alpha: float = 0.95,
    order: Order = "before",
) -> Tensor:
    """Rewards less a running mean per game and role, so that a seat's own advantage is no merit of the player.

    Args:
        rewards: [N].
        groups: [N].
        roles: Per completion, the game and role it played.
        state: Running means by role; updated in place, in the order of the completions.
        alpha: Share of the running mean that stays, in [0, 1).
        order: Read the baseline `before` its update, or `after` it.
    """
    advantages = torch.zeros_like(rewards, dtype=torch.float64)
    for index, (name, reward) in enumerate(zip(roles, rewards.tolist(), strict=True)):
        if math.isnan(reward):
            continue
        before = state.get(name, 0.0)
        state[name] = alpha * before + (1 - alpha) * reward
        advantages[index] = reward - (before if order == "before" else state[name])
    return advantages


def remax(rewards: Tensor, groups: Tensor, *, greedy_rewards: Tensor) -> Tensor:
    """Rewards less the reward of the prompt's greedy completion.

    Args:
        rewards: [N].
        groups: [N].
        greedy_rewards: [N]; advantage 0 where it abstained (NaN).
    """
    difference = rewards.double() - greedy_rewards.double()
    return difference.where(~difference.isnan(), 0.0)


def opo(rewards: Tensor, groups: Tensor, *, lengths: Tensor) -> Tensor:
    """Rewards less their group's mean weighted by length, which minimises the gradient's variance.

    Args:
        rewards: [N].
        groups: [N].
        lengths: [N] tokens of each completion.
    """
    return deviations(rewards, groups, weights=lengths)


def _check_divisor(f_norm: float) -> None:
    if f_norm <= 0:
        raise UserError(f"f_norm={f_norm:g} divides the advantages: above 0 (default 1).")


@checked_by(_check_divisor)
def gpg(
    rewards: Tensor, groups: Tensor, *, alpha: Literal["mixed", "nonzero"] = "mixed", f_norm: float = 1.0
) -> Tensor:
    """Rewards less the mean of their group, scaled up for the groups of equal rewards that have no gradient.

    Args:
        rewards: [N].
        groups: [N].
        alpha: Which completions are taken to have a gradient: those in groups with different rewards (`mixed`, the
            paper), or those whose reward is not 0 (`nonzero`, verl).
        f_norm: Constant divisor F_norm.
    """
    scored = ~rewards.isnan()
    if alpha == "mixed":
        useful = scored & (group_maximum(rewards, groups) > group_minimum(rewards, groups))
    else:
        useful = scored & (rewards != 0)
    scale = scored.double().sum() / useful.double().sum().clamp(min=1)
    return scale * deviations(rewards, groups) / f_norm


def _advanced(
    state: MutableMapping[str, float], key: str, mean: float, *, alpha: float, init: float | None, debias: bool
) -> tuple[float, float]:
    """Move a running mean towards `mean`; return what it was and what it is."""
    first = mean if init is None else init
    if not debias:
        before = state.get(key, first)
        state[key] = before + alpha * (mean - before)  # in this form, a first value stays what it was to the bit
        return before, state[key]
    start = 0.0 if init is None else init
    counter = f"updates of {key}"  # no task is called that
    stored, updates = state.get(key, start), int(state.get(counter, 0))
    moved = stored + alpha * (mean - stored)

    def corrected(average: float, count: int) -> float:
        share = (1 - alpha) ** count  # weight that the start still has
        return (average - share * start) / (1 - share)

    state[key], state[counter] = moved, updates + 1
    return corrected(stored, updates) if updates else first, corrected(moved, updates + 1)
