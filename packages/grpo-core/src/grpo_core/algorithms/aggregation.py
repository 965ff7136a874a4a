"""The weights that make a batch of tokens one number: every loss is Σ_{row, token} weight · objective.

The weights hold the denominator, counted over the whole optimizer step, so any split into micro-batches (and ranks,
which sum) gives the same loss and gradient. With B rollouts (one row each, or one per turn), T_i tokens in rollout i
and G_i the rollouts of its prompt:

    aggregation              weight of a token                  source
    constant (dr_grpo)       1 / (B · max_completion_length)    arXiv 2503.20783, section 3.2
    token_mean (dapo)        1 / ΣT                             arXiv 2503.14476, section 3.3
    sequence_mean (grpo)     1 / (B · T_i)                      arXiv 2402.03300, equation 3
    sequence_sum (rloo)      1 / B                              arXiv 2402.14740; TRL's rloo and luspo
    group_max                1 / (B · max_{j in G_i} T_j)       RL_Practice; it weighs prompts differently
    token_sum                1                                  a plain sum, for code that divides by itself

B counts every rollout of the step, also those that abstained, were truncated or have advantage 0. Where rollouts have
several turns, the constant length is that of all of them: max_turns · max_completion_length.
"""

from __future__ import annotations

from torch import Tensor

from grpo_core.algorithms.masking import masked_sum
from grpo_sdk.errors import UserError
from grpo_sdk.plugins.variant import Aggregation


def token_weights(
    mask: Tensor,
    how: Aggregation,
    *,
    max_completion_length: int,
    groups: Tensor | None = None,
    rollouts: Tensor | None = None,
    count_empty: bool = True,
) -> Tensor:
    """Weights of the tokens of one optimizer step.

    Args:
        mask: [B, T], true on the completion's tokens that count.
        how: The aggregation.
        max_completion_length: The constant length of `constant`.
        groups: [B] index of each row's prompt, for `group_max`.
        rollouts: [B] rows with an equal number are turns of one rollout; by default each row is one.
        count_empty: Whether a rollout without a token counts in B (TRL), or not (verl).

    Returns:
        [B, T] float64, 0 where masked.

    Raises:
        UserError: `group_max` without groups.
    """
    counted = mask.double()
    lengths = counted.sum(dim=1)
    count = len(mask)
    if rollouts is not None:  # every turn's row has the length of all its rollout's turns
        _, index = rollouts.unique(return_inverse=True)
        count = int(index.max()) + 1 if index.numel() else 0
        lengths = lengths.new_zeros(count).index_add(0, index, lengths)
        filled, lengths = int((lengths > 0).sum()), lengths[index]
    else:
        filled = int((lengths > 0).sum())
    size = float(count if count_empty else max(1, filled))
    match how:
        case "constant":
            return counted / (size * max_completion_length)
        case "token_mean":
            return counted / counted.sum().clamp(min=1)
        case "sequence_mean":
            return counted / (size * lengths.clamp(min=1)[:, None])
        case "sequence_sum":
            return counted / size
        case "group_max":
            if groups is None:
                raise UserError("aggregation=group_max divides by the longest completion of a prompt; pass `groups`.")
            n_groups = int(groups.max()) + 1 if groups.numel() else 0
            longest = lengths.new_ones(n_groups).scatter_reduce(0, groups, lengths, "amax")[groups]
            return counted / (size * longest[:, None])
        case "token_sum":
            return counted


def weighted_sum(values: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
    """Σ weight · value of per-token [B, T] values, a scalar: the policy loss, a KL, an entropy, a value loss."""
    return masked_sum(values * weights, mask)
