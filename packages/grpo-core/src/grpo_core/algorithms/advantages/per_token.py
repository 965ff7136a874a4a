"""Advantages per token: the rewards from a token on in its own sequence, less a value or a mean.

A sequence runs over the tokens of one rollout that count (`mask`), through all of its turns. Holes in the mask are
observations, which the policy did not choose: they are skipped, and what follows a token is the next one that counts.

    mask       1  1  0  1  0
    reward    −p −p  .  r  .      the score r at the last token that counts, less a penalty p per token
    next       →  ────→            value and advantage of the next token that counts

Parameters and returns are those of `baselines`, with [N, T]; the trainer provides `mask`, `token_penalties`, `values`,
`gamma` and `lam`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from grpo_core.algorithms.advantages.groups import deviations, group_counts

VARIANCE_EPSILON = 1e-8
"""Added to a variance before its root is divided by (the value of TRL's and verl's `masked_whiten`)."""


class Episodes:
    """The rows of a batch as one sequence per rollout, over which advantages per token run, and back.

    A rollout of several turns may have several rows. For T tokens a row and at most K rows a rollout:

        rows of rollout 0    a a .     b b b        [B, T]
        joined               a a . b b b            [N, K·T]

    Args:
        owners: [B] index of each row's rollout, never falling.
        count: N, rollouts of the batch.
    """

    def __init__(self, owners: Tensor, count: int) -> None:
        self._owners, self._count = owners, count
        self._places = torch.arange(len(owners)) - torch.searchsorted(owners, owners)
        self._rows = int(self._places.max()) + 1 if len(owners) else 1

    def join(self, rows: Tensor) -> Tensor:
        """[B, T] -> [N, K·T], 0 or false where a rollout has fewer rows."""
        joined = rows.new_zeros(self._count, self._rows, rows.shape[1])
        joined[self._owners, self._places] = rows
        return joined.flatten(1)

    def split(self, joined: Tensor) -> Tensor:
        """[N, K·T] -> [B, T]."""
        rows: Tensor = joined.view(self._count, self._rows, -1)[self._owners, self._places]
        return rows

    def total(self, values: Tensor) -> Tensor:
        """[B] -> [N], the sum over the rows of each rollout."""
        return values.new_zeros(self._count).index_add(0, self._owners, values)


def token_rewards(scores: Tensor, mask: Tensor, penalties: Tensor | None = None) -> Tensor:
    """Reward of each token: minus its penalty, plus the score at the last token that counts.

    Args:
        scores: [N], none NaN.
        mask: [N, T] bool.
        penalties: [N, T], usually β times a KL estimate; none by default.

    Returns:
        [N, T] float64, 0 where masked; a row without a token earns nothing.
    """
    is_last = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
    rewards = scores.double()[:, None].where(is_last, 0.0)
    return rewards if penalties is None else rewards - penalties.double().where(mask, 0.0)


def gae(
    rewards: Tensor, values: Tensor, mask: Tensor, *, gamma: float, lam: float, last_value: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation within each sequence: A_t = δ_t + γλ·A_t+1, δ_t = r_t + γ·V_t+1 − V_t.

    Args:
        rewards: [N, T] of each token.
        values: [N, T] predicted before each token.
        mask: [N, T] bool; what is masked may hold anything.
        gamma: γ, discount per token that counts.
        lam: λ; 1 is the return less the value, 0 the one-step error.
        last_value: [N] predicted after the last token, where a sequence was cut; 0 by default.

    Returns:
        Advantages, not whitened, and returns A + V, both [N, T] float64 and 0 where masked (arXiv 1506.02438).
    """
    rewards, values = rewards.double().where(mask, 0.0), values.double().where(mask, 0.0)
    following = values.new_zeros(len(values)) if last_value is None else last_value.double()
    running = torch.zeros_like(following)
    advantages = torch.zeros_like(values)
    for t in range(values.shape[1] - 1, -1, -1):
        counts = mask[:, t]
        error = rewards[:, t] + gamma * following - values[:, t]
        running = torch.where(counts, error + gamma * lam * running, running)
        following = torch.where(counts, values[:, t], following)
        advantages[:, t] = running.where(counts, 0.0)
    return advantages, advantages + values


def returns_to_go(rewards: Tensor, mask: Tensor, *, gamma: float) -> Tensor:
    """Σ γ^k·r over a token and those after it in its sequence, [N, T] float64, 0 where masked."""
    return gae(rewards, torch.zeros_like(rewards), mask, gamma=gamma, lam=1.0)[0]


def whitened(values: Tensor, mask: Tensor, *, epsilon: float = VARIANCE_EPSILON) -> Tensor:
    """(x − mean) / √(variance + ε) over all unmasked entries (ddof 1), 0 where masked; equal entries give exactly 0."""
    result = torch.zeros_like(values, dtype=torch.float64)
    chosen = values.double()[mask]
    if chosen.numel():
        above = chosen - chosen.min()  # shifted first, for the digits in which they differ
        centred = above - above.mean()
        variance = (centred**2).sum() / max(1, len(centred) - 1)
        result[mask] = centred / (variance + epsilon).sqrt() if bool(above.any()) else 0.0
    return result


def reinforce_pp(
    rewards: Tensor,
    groups: Tensor,
    *,
    mask: Tensor,
    token_penalties: Tensor,
    gamma: float = 1.0,
    epsilon: float = VARIANCE_EPSILON,
) -> Tensor:
    """Return from each token on, less its penalties, whitened over all tokens of the batch.

    Args:
        rewards: [N].
        groups: [N].
        mask: [N, T] bool.
        token_penalties: [N, T] taken off each token's reward.
        gamma: Discount per token.
        epsilon: Added to the variance.
    """
    scored = ~rewards.isnan()
    counts = mask & scored[:, None]
    earned = token_rewards(rewards.where(scored, 0.0), counts, token_penalties)
    return whitened(returns_to_go(earned, counts, gamma=gamma), counts, epsilon=epsilon)


def reinforce_pp_baseline(
    rewards: Tensor,
    groups: Tensor,
    *,
    mask: Tensor,
    token_penalties: Tensor,
    gamma: float = 1.0,
    epsilon: float = VARIANCE_EPSILON,
) -> Tensor:
    """As `reinforce_pp`, of rewards less the mean of their group; without penalties a row's tokens are all equal.

    Args:
        rewards: [N].
        groups: [N].
        mask: [N, T] bool.
        token_penalties: [N, T] taken off each token's reward.
        gamma: Discount per token.
        epsilon: Added to the variance.
    """
    # A lone survivor has nothing to be compared with: whitening must not give it an advantage either.
    compared = ~rewards.isnan() & (group_counts(rewards, groups) > 1)
    counts = mask & compared[:, None]
    earned = token_rewards(deviations(rewards, groups), counts, token_penalties)
    return whitened(returns_to_go(earned, counts, gamma=gamma), counts, epsilon=epsilon)


def value(
    rewards: Tensor,
    groups: Tensor,
    *,
    values: Tensor,
    mask: Tensor,
    token_penalties: Tensor,
    gamma: float = 1.0,
    lam: float = 0.95,
    whiten: bool = True,
) -> Tensor:
    """What a token earns, more than a value head expected, over its own sequence.

    Args:
        rewards: [N].
        groups: [N].
        values: [N, T] predicted before each token, by the value head before the update.
        mask: [N, T] bool.
        token_penalties: [N, T] taken off each token's reward.
        gamma: Discount per token.
        lam: λ; 1 without `trainer.use_gae`: the advantage is then the return less the value.
        whiten: Standardise over all tokens of the batch (TRL's PPO).
    """
    scored = ~rewards.isnan()
    counts = mask & scored[:, None]
    earned = token_rewards(rewards.where(scored, 0.0), counts, token_penalties)
    advantages, _ = gae(earned, values.detach(), counts, gamma=gamma, lam=lam)
    return whitened(advantages, counts) if whiten else advantages
