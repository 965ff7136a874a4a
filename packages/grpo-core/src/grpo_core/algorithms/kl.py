"""Divergence from the reference policy: estimators per token, and the exact one over the vocabulary.

With d = log π − log π_ref and r = π_ref/π = exp(−d), of a token that π sampled:

    name       per token            estimates               at least   expected gradient in the loss, on-policy
    k1         d                    KL(π‖π_ref)             −∞         0: there it is only noise
    k2         d²/2                 KL(π‖π_ref), biased     0          ∇KL(π‖π_ref)
    k3         r − 1 − log r        KL(π‖π_ref)             0          ∇KL(π_ref‖π)
    abs        |d|                  a distance, no KL       0          of no KL
    fkl        r·log r              KL(π_ref‖π)             −1/e       of no KL
    fkl_k3     r·log r − r + 1      KL(π_ref‖π)             0          of no KL
    jeffreys   (r − 1)·log r / 2    half of both            0          of no KL
    full       Σ over vocabulary    KL of `direction`       0          its own, also off-policy

Times ρ = π/π_old, every unbiased estimator has the gradient of the KL that it estimates, also off-policy. In the
reward, k1 has that of KL(π‖π_ref). `straight_through` gives an estimator the gradient of k2 in the loss, ∇KL(π‖π_ref),
also times ρ, which is a constant then.

Directions have their textbook names: reverse is KL(π‖π_ref), forward KL(π_ref‖π), symmetric half their sum. RookWorld's
`forward` means KL(π‖π_ref), so it is `reverse` here, and the other way round.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from grpo_core.algorithms.logprobs import HeadGradients, autocast_inputs, chunk_rows, scaled_logits, wide
from grpo_core.algorithms.losses import MAX_LOG_RATIO, importance_ratio

Direction = Literal["reverse", "forward", "symmetric"]


def k1(logp: Tensor, ref_logp: Tensor, *, straight_through: bool = False) -> Tensor:
    """KL(π‖π_ref), unbiased, and of either sign.

    Args:
        logp: [B, T] under the policy.
        ref_logp: [B, T] under the reference.
        straight_through: Keep the value, take the gradient of k2 (verl's `k1+`).
    """
    d = logp - ref_logp
    return _with_k2_gradient(d, d) if straight_through else d


def k2(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """KL(π‖π_ref), biased, at least 0; the one whose gradient in the loss is that of KL(π‖π_ref)."""
    return (logp - ref_logp).square() / 2


def k3(
    logp: Tensor, ref_logp: Tensor, *, straight_through: bool = False, max_log_ratio: float | None = MAX_LOG_RATIO
) -> Tensor:
    """KL(π‖π_ref), unbiased, at least 0: the usual penalty of GRPO.

    Args:
        logp: [B, T] under the policy.
        ref_logp: [B, T] under the reference.
        straight_through: Keep the value, take the gradient of k2 (verl's `k3+`).
        max_log_ratio: log r is cut above this before exp; null cuts nothing, as TRL.
    """
    log_r = _log_r(logp, ref_logp, max_log_ratio)
    value = _at_least_0(torch.expm1(log_r) - log_r)
    return _with_k2_gradient(value, logp - ref_logp) if straight_through else value


def abs(logp: Tensor, ref_logp: Tensor, *, straight_through: bool = False) -> Tensor:
    """Distance of log-probs: not a KL, but at least 0 and of bounded gradient, which is 1 at d = 0, as just above it.

    Args:
        logp: [B, T] under the policy.
        ref_logp: [B, T] under the reference.
        straight_through: Keep the value, take the gradient of k2.
    """
    d = logp - ref_logp
    # Not d.abs(), whose slope of 0 would hang on whether a tiny d > 0 survives the rounding of the log-probs.
    distance = torch.where(d >= 0, d, -d)
    return _with_k2_gradient(distance, d) if straight_through else distance


def fkl(
    logp: Tensor, ref_logp: Tensor, *, straight_through: bool = False, max_log_ratio: float | None = MAX_LOG_RATIO
) -> Tensor:
    """KL(π_ref‖π), unbiased, at least −1/e per token.

    Args:
        logp: [B, T] under the policy.
        ref_logp: [B, T] under the reference.
        straight_through: Keep the value, take the gradient of k2.
        max_log_ratio: log r is cut above this before exp; null cuts nothing.
    """
    log_r = _log_r(logp, ref_logp, max_log_ratio)
    value = log_r * log_r.exp()
    return _with_k2_gradient(value, logp - ref_logp) if straight_through else value


def fkl_k3(
    logp: Tensor, ref_logp: Tensor, *, straight_through: bool = False, max_log_ratio: float | None = MAX_LOG_RATIO
) -> Tensor:
    """KL(π_ref‖π), unbiased, at least 0.

    Args:
        logp: [B, T] under the policy.
        ref_logp: [B, T] under the reference.
        straight_through: Keep the value, take the gradient of k2.
        max_log_ratio: log r is cut above this before exp; null cuts nothing.
    """
    log_r = _log_r(logp, ref_logp, max_log_ratio)
    value = _at_least_0(log_r * log_r.exp() - torch.expm1(log_r))
    return _with_k2_gradient(value, logp - ref_logp) if straight_through else value


def jeffreys(
    logp: Tensor, ref_logp: Tensor, *, straight_through: bool = False, max_log_ratio: float | None = MAX_LOG_RATIO
) -> Tensor:
    """Half of KL(π‖π_ref) + KL(π_ref‖π), unbiased, at least 0.

    Args:
        logp: [B, T] under the policy.
        ref_logp: [B, T] under the reference.
        straight_through: Keep the value, take the gradient of k2.
        max_log_ratio: log r is cut above this before exp; null cuts nothing.
    """
    log_r = _log_r(logp, ref_logp, max_log_ratio)
    value = torch.expm1(log_r) * log_r / 2
    return _with_k2_gradient(value, logp - ref_logp) if straight_through else value


def kl_penalty(
    estimator: Callable[..., Tensor], logp: Tensor, ref_logp: Tensor, mask: Tensor, **options: Any
) -> Tensor:
    """An estimator per token, exactly 0 with gradient 0 where masked, whatever the padding holds.

    Args:
        estimator: One of those above, or a plugin's.
        logp: [B, T] under the policy.
        ref_logp: [B, T] under the reference.
        mask: [B, T] bool.
        options: The estimator's own.

    Returns:
        [B, T], to be weighted like the policy loss, or detached and taken off the rewards.
    """
    return estimator(logp.where(mask, 0.0), ref_logp.where(mask, 0.0), **options).where(mask, 0.0)


def ratio_factor(logp: Tensor, old_logp: Tensor, *, is_constant: bool) -> Tensor:
    """ρ = π/π_old as the factor of an estimator.

    Args:
        logp: [B, T] under the policy.
        old_logp: [B, T] under the policy that sampled.
        is_constant: Whether ρ has no gradient, for a straight-through estimator: its own is that of the KL already, and
            the gradient of ρ would count it twice.
    """
    ratio = importance_ratio(logp, old_logp)
    return ratio.detach() if is_constant else ratio


def full_kl(logits: Tensor, ref_logits: Tensor, *, direction: Direction = "reverse") -> Tensor:
    """KL over the whole vocabulary, at least 0: [..., V], [..., V] -> [...], in float32 at least.

    A logit of −inf is a token that cannot be: its gradient is 0, and the other side sees it at the least probability
    that the dtype has, so that a KL which is infinite in theory stays a finite number.

    Args:
        logits: Logits of the policy.
        ref_logits: Logits of the reference; a constant.
        direction: reverse is KL(π‖π_ref), forward KL(π_ref‖π), symmetric half the sum.
    """
    dtype = wide(logits)
    logp = logits.to(dtype).log_softmax(-1)
    ref_logp = ref_logits.detach().to(dtype).log_softmax(-1)
    return _divergence(logp, ref_logp, direction)


def linear_full_kl(
    hidden: Tensor,
    weight: Tensor,
    ref_hidden: Tensor,
    ref_weight: Tensor,
    *,
    bias: Tensor | None = None,
    ref_bias: Tensor | None = None,
    temperature: float = 1.0,
    softcap: float | None = None,
    direction: Direction = "reverse",
    chunk: int | None = None,
) -> Tensor:
    """`full_kl` of two heads' logits, a chunk of positions at a time; see `linear_logprob`.

    Differentiable once, in hidden, weight and bias; the reference is a constant. Logits are computed again in the
    backward pass, so that no [N, V] is ever held.

    Args:
        hidden: [N, D].
        weight: [V, D].
        ref_hidden: [N, D'].
        ref_weight: [V, D'].
        bias: [V].
        ref_bias: [V].
        temperature: Divides both logits.
        softcap: Gemma's cap of both logits.
        direction: reverse is KL(π‖π_ref), forward KL(π_ref‖π), symmetric half the sum.
        chunk: Positions at a time; None fits the device.

    Returns:
        [N] in nats, in float32 at least.
    """
    hidden, weight, bias = autocast_inputs(hidden, weight, bias)
    ref_hidden, ref_weight, ref_bias = autocast_inputs(ref_hidden, ref_weight, ref_bias)
    if chunk is None:
        chunk = chunk_rows(hidden.device, weight.shape[0], tensors=2)
    kl: Tensor = _LinearFullKL.apply(  # type: ignore[no-untyped-call]  # torch does not annotate it
        hidden, weight, bias, ref_hidden, ref_weight, ref_bias, temperature, softcap, direction, chunk
    )
    return kl


def _log_r(logp: Tensor, ref_logp: Tensor, maximum: float | None) -> Tensor:
    """log(π_ref/π), cut before its exp can overflow; −inf, a token the reference never gives, becomes finite."""
    log_r = ref_logp - logp
    return log_r.clamp(min=torch.finfo(log_r.dtype).min, max=maximum)


def _with_k2_gradient(value: Tensor, d: Tensor) -> Tensor:
    k2 = d.square() / 2
    return value.detach() + (k2 - k2.detach())


def _at_least_0(value: Tensor) -> Tensor:
    """Undo a rounding below 0; unlike clamp, the gradient stays."""
    return value + (-value.detach()).clamp(min=0)


def _finite(logp: Tensor) -> Tensor:
    """Log-probs with −inf at the log of the least normal number."""
    return logp.masked_fill(logp == -math.inf, math.log(torch.finfo(logp.dtype).tiny))


def _divergence(logp: Tensor, ref_logp: Tensor, direction: Direction) -> Tensor:
    """KL [...] of normalised log-probs [..., V]."""
    gap = _finite(logp) - _finite(ref_logp)
    match direction:
        case "reverse":
            return _at_least_0(torch.linalg.vecdot(logp.exp(), gap))
        case "forward":
            return _at_least_0(-torch.linalg.vecdot(ref_logp.exp(), gap))
        case "symmetric":
            return _at_least_0(torch.linalg.vecdot(logp.exp() - ref_logp.exp(), gap) / 2)


def _slope(logp: Tensor, ref_logp: Tensor, direction: Direction) -> Tensor:
    """∂KL/∂logits [c, V]: reverse p·(log p/q − KL); forward p − q, over the tokens that π can give."""
    p = logp.exp()
    slope = torch.zeros_like(p)
    if direction != "forward":
        gap = _finite(logp) - _finite(ref_logp)
        slope += p * (gap - torch.linalg.vecdot(p, gap)[:, None])
    if direction != "reverse":
        q = ref_logp.exp().masked_fill_(logp == -math.inf, 0.0)
        slope += p * q.sum(-1, keepdim=True) - q
    return slope / 2 if direction == "symmetric" else slope


class _LinearFullKL(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        ref_hidden: Tensor,
        ref_weight: Tensor,
        ref_bias: Tensor | None,
        temperature: float,
        softcap: float | None,
        direction: Direction,
        chunk: int,
    ) -> Tensor:
        kl = hidden.new_empty(hidden.shape[0], dtype=wide(hidden))
        with torch.autocast(hidden.device.type, enabled=False):
            for start in range(0, hidden.shape[0], chunk):
                at = slice(start, start + chunk)
                z, _ = scaled_logits(hidden[at], weight, bias, temperature, softcap)
                ref_z, _ = scaled_logits(ref_hidden[at], ref_weight, ref_bias, temperature, softcap)
                kl[at] = _divergence(z.log_softmax(-1), ref_z.to(z.dtype).log_softmax(-1), direction)
        ctx.save_for_backward(hidden, weight, bias, ref_hidden, ref_weight, ref_bias)
        ctx.temperature, ctx.softcap, ctx.direction, ctx.chunk = temperature, softcap, direction, chunk
        return kl

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_kl: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, ref_hidden, ref_weight, ref_bias = ctx.saved_tensors
        head = HeadGradients(hidden, weight, bias, ctx.needs_input_grad[:3])
        grad_kl = grad_kl / ctx.temperature
        with torch.autocast(hidden.device.type, enabled=False):
            for start in range(0, hidden.shape[0], ctx.chunk):
                at = slice(start, start + ctx.chunk)
                z, slope = scaled_logits(hidden[at], weight, bias, ctx.temperature, ctx.softcap)
                ref_z, _ = scaled_logits(ref_hidden[at], ref_weight, ref_bias, ctx.temperature, ctx.softcap)
                grad = _slope(z.log_softmax(-1), ref_z.to(z.dtype).log_softmax(-1), ctx.direction)
                grad.mul_(grad_kl[at, None])
                head.add(at, grad if slope is None else grad.mul_(slope))
        return *head.result(), None, None, None, None, None, None, None
