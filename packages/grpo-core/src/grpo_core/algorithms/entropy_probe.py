"""Entropy probe: how a step will change the policy's entropy, to first order, before it is taken.

With S_i the log-prob of a completion, w_i its weight in the loss and S̄ the weighted mean of S, the sequence entropy is
H = −E[S], and as E[∇S] = 0

    ∇H = −E[(S − S̄)·∇S] ≈ −g_H / Σw        g_H = Σ w·(S − S̄)·∇S
    ∇J =  E[A·∇S]        ≈  g_A / Σw        g_A = Σ w·A·∇S

A step of Adam moves the weights by lr·P·∇J with P = 1/(√v̂ + ε), so ΔH = ⟨∇H, lr·P·∇J⟩ = −lr·⟨g_H, P·g_A⟩ / (Σw)².
Where completions of high log-prob have high advantage the entropy falls.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


@torch.no_grad()
def probe_coefficients(sequence_logp: Tensor, advantages: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Factors of each completion's ∇S in g_H and in g_A: w·(S − S̄) and w·A, each [B].

    g is then the gradient of Σ coefficient·S, and may be summed over parts of the step; S̄ is over all of it.

    Args:
        sequence_logp: [B] S, of every completion of the step.
        advantages: [B] A.
        weights: [B] w, at least 0.
    """
    mean = (weights * sequence_logp).sum() / weights.sum()
    return weights * (sequence_logp - mean), weights * advantages


def predicted_entropy_change(
    entropy_gradient: Sequence[Tensor | None],
    advantage_gradient: Sequence[Tensor | None],
    second_moments: Sequence[Tensor],
    *,
    learning_rate: float,
    epsilon: float,
    total_weight: float,
) -> float:
    """ΔH ≈ −lr·⟨g_H, P·g_A⟩ / (Σw)² in nats per completion, P = 1/(√v̂ + ε).

    Momentum, weight decay and the clip of the gradient are left out: the prediction is of this step's gradient alone.

    Args:
        entropy_gradient: g_H by parameter; None is 0.
        advantage_gradient: g_A by parameter; None is 0.
        second_moments: Adam's v̂ by parameter: `exp_avg_sq` over 1 − β₂ᵗ.
        learning_rate: Learning rate of the step.
        epsilon: Adam's ε.
        total_weight: Σw.
    """
    total = 0.0
    for of_entropy, of_advantage, v in zip(entropy_gradient, advantage_gradient, second_moments, strict=True):
        if of_entropy is None or of_advantage is None:
            continue
        # In float64: products of small gradients underflow, and the inner product has both signs.
        denominator = v.double().sqrt() + epsilon
        total += float((of_entropy.double() * of_advantage.double() / denominator).sum())
    return -learning_rate * total / total_weight**2
