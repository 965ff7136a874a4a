"""Log-probs and entropies of tokens, without ever holding logits of all positions.

For N tokens, hidden size D and vocabulary V, the ordinary way keeps [B, L, V] logits, their softmax and gradient.
Here a chunk of positions is projected at a time, and again in the backward pass: 2·N·D·V more multiplications for a
memory of a few [chunk, V].
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from grpo_core.algorithms.cpu_matmul import linear

CHUNK_ELEMENTS = 3 * 2**21
"""Logits held at once on a CPU: 24 MiB in float32, 128 positions at V = 49,152. From 32 MiB on, glibc maps memory anew
for every chunk, and page faults triple the cost of a softmax; with fewer positions the matmuls slow down."""

CHUNK_ELEMENTS_GPU = 2**27
"""The same on an accelerator, where small matmuls leave it idle: 512 MiB in float32."""

LEAST_LOG_PROB = -1e4
"""Stands for log 0 where it is multiplied by a probability of 0, as 0·−inf is NaN. exp of it is 0 in every dtype."""


def selective_logprob(logits: Tensor, index: Tensor) -> Tensor:
    """Return log softmax(logits) at `index`: [..., V], [...] -> [...], in float32 at least."""
    # Not logits[index] − logsumexp(logits): the difference of two numbers near 10,000 has 3 digits in float32.
    logp = logits.to(wide(logits)).log_softmax(-1)
    return logp.gather(-1, index.unsqueeze(-1)).squeeze(-1)


def full_entropy(logits: Tensor) -> Tensor:
    """Return −Σ_v p_v log p_v of p = softmax(logits): [..., V] -> [...], in nats, in float32 at least.

    A logit of −inf is a token that cannot be: it adds nothing, and its gradient is 0.
    """
    return entropy_of(logits.to(wide(logits)).log_softmax(-1))


def entropy_of(logp: Tensor) -> Tensor:
    """The same of log-probs."""
    entropy: Tensor = -torch.linalg.vecdot(logp.exp(), logp.clamp(min=LEAST_LOG_PROB))
    return entropy


def linear_logprob(
    hidden: Tensor,
    weight: Tensor,
    ids: Tensor,
    *,
    bias: Tensor | None = None,
    temperature: float = 1.0,
    chunk: int | None = None,
    with_entropy: bool = False,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Project hidden states and take log-probs of the given tokens, a chunk of positions at a time.

    z = s(hidden Wᵀ + bias) / temperature, with s(x) = softcap·tanh(x / softcap) or the identity;
    logp = z[ids] − logsumexp(z); entropy = −Σ_v p_v log p_v over the whole vocabulary.
    Both are differentiable once, in hidden, weight and bias.

    Args:
        hidden: [N, D].
        weight: [V, D].
        ids: [N] int64.
        bias: [V].
        temperature: Above 0; the one that sampled, so that ratios start at 1.
        chunk: Positions at a time; None fits the device (`CHUNK_ELEMENTS`).
        with_entropy: Also return the entropy; costs two more passes over the logits, and in the backward pass nothing
            unless the entropy is part of what is differentiated.
        softcap: Gemma's cap of the logits.

    Returns:
        logp [N] and entropy [N] or None, in nats, in float32 at least.
    """
    if not temperature > 0:
        raise ValueError(f"temperature={temperature} must be above 0: log-probs of greedy sampling are those at 1.")
    hidden, weight, bias = autocast_inputs(hidden, weight, bias)
    if chunk is None:
        chunk = chunk_rows(hidden.device, weight.shape[0])
    logp, entropy = _LinearLogprob.apply(  # type: ignore[no-untyped-call]  # torch does not annotate it
        hidden, weight, bias, ids, temperature, softcap, chunk, with_entropy
    )
    return logp, entropy if with_entropy else None


class _LinearLogprob(torch.autograd.Function):
    """With p = softmax(z): ∂logp/∂z = 1[ids] − p and ∂H/∂z = −p·(log p + H)."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        ids: Tensor,
        temperature: float,
        softcap: float | None,
        chunk: int,
        with_entropy: bool,
    ) -> tuple[Tensor, Tensor]:
        logp = hidden.new_empty(hidden.shape[0], dtype=wide(hidden))
        # The normaliser in two parts, so that nothing is ever the difference of two large numbers.
        top, above_top = torch.empty_like(logp), torch.empty_like(logp)  # max z, and logsumexp(z) − max z
        entropy = torch.zeros_like(logp)
        with torch.autocast(hidden.device.type, enabled=False):
            for start in range(0, hidden.shape[0], chunk):
                at = slice(start, start + chunk)
                z, _ = scaled_logits(hidden[at], weight, bias, temperature, softcap)
                p = z.softmax(-1)
                top[at] = z.amax(-1)
                # The likeliest token gives logsumexp(z) from the softmax, which is one fused pass; logsumexp is four.
                above_top[at] = -p.amax(-1).log()
                logp[at] = z.gather(1, ids[at, None])[:, 0] - top[at] - above_top[at]
                if with_entropy:
                    entropy[at] = above_top[at] - torch.linalg.vecdot(p, _below(z, top[at]))
        ctx.save_for_backward(hidden, weight, bias, ids, top, above_top, entropy)
        ctx.temperature, ctx.softcap, ctx.chunk = temperature, softcap, chunk
        # An output that the loss does not use has gradient None, and costs nothing.
        ctx.set_materialize_grads(False)
        if not with_entropy:
            ctx.mark_non_differentiable(entropy)
        return logp, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_logp: Tensor | None, grad_entropy: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, ids, top, above_top, entropy = ctx.saved_tensors
        head = HeadGradients(hidden, weight, bias, ctx.needs_input_grad[:3])
        grad_logp = torch.zeros_like(top) if grad_logp is None else grad_logp / ctx.temperature
        if grad_entropy is not None:
            grad_entropy = grad_entropy / ctx.temperature
        with torch.autocast(hidden.device.type, enabled=False):
            for start in range(0, hidden.shape[0], ctx.chunk):
                at = slice(start, start + ctx.chunk)
                z, slope = scaled_logits(hidden[at], weight, bias, ctx.temperature, ctx.softcap)
                grad = z.softmax(-1)
                if grad_entropy is not None:
                    # log p + H = (z − max z) + (H − above_top)
                    constant = grad_entropy[at] * (entropy[at] - above_top[at]) + grad_logp[at]
                    grad.mul_(_below(z, top[at]).mul_(grad_entropy[at, None]).add_(constant[:, None])).neg_()
                else:
                    grad.mul_(-grad_logp[at, None])
                grad.scatter_add_(1, ids[at, None], grad_logp[at, None])  # [c, V]
                head.add(at, grad if slope is None else grad.mul_(slope))
        return *head.result(), None, None, None, None, None


class HeadGradients:
    """Gradients of a linear head, gathered from those of its logits a chunk of positions at a time."""

    def __init__(self, hidden: Tensor, weight: Tensor, bias: Tensor | None, needed: tuple[bool, bool, bool]) -> None:
        self._hidden, self._weight, self._bias = hidden, weight, bias
        # Chunks are summed in float32 at least: in bfloat16 the later ones would be rounded away.
        self._of_hidden = torch.empty_like(hidden) if needed[0] else None
        self._of_weight = torch.zeros_like(weight, dtype=wide(weight)) if needed[1] else None
        self._of_bias = torch.zeros_like(bias, dtype=wide(bias)) if bias is not None and needed[2] else None

    def add(self, at: slice, grad: Tensor) -> None:
        """Take the gradient [c, V] of the logits before scaling, at these positions."""
        if self._of_bias is not None:
            self._of_bias += grad.sum(0)
        grad = grad.to(self._hidden.dtype)
        if self._of_hidden is not None:
            self._of_hidden[at] = linear(grad, self._weight.t())
        if self._of_weight is None:
            return
        if self._of_weight.dtype == grad.dtype:
            self._of_weight.addmm_(grad.T, self._hidden[at])
        else:
            self._of_weight += grad.T @ self._hidden[at]

    def result(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Gradients of hidden, weight and bias, each in its dtype; None where none is needed."""
        of_weight = None if self._of_weight is None else self._of_weight.to(self._weight.dtype)
        of_bias = None
        if self._bias is not None and self._of_bias is not None:
            of_bias = self._of_bias.to(self._bias.dtype)
        return self._of_hidden, of_weight, of_bias


def wide(x: Tensor) -> torch.dtype:
    """The tensor's dtype, or float32 where it is narrower."""
    return torch.promote_types(x.dtype, torch.float32)


def autocast_inputs(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Under autocast, cast where autograd sees it: inside a function of ours it is off in both passes."""
    device = hidden.device.type
    if not torch.is_autocast_enabled(device):
        return hidden, weight, bias
    dtype = torch.get_autocast_dtype(device)
    return hidden.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)


def chunk_rows(device: torch.device, vocabulary: int, *, tensors: int = 1) -> int:
    """Positions at a time that suit the device, where `tensors` of logits are held at once."""
    elements = CHUNK_ELEMENTS if device.type == "cpu" else CHUNK_ELEMENTS_GPU
    return max(1, elements // (vocabulary * tensors))


def scaled_logits(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, temperature: float, softcap: float | None
) -> tuple[Tensor, Tensor | None]:
    """Return z [c, V] in float32 at least, and the slope of the soft cap (None without one)."""
    z = linear(hidden, weight, bias)
    z = z.to(wide(z))
    slope = None
    if softcap is not None:
        z = z.div_(softcap).tanh_()
        slope = 1 - z.square()
        z = z.mul_(softcap)
    return (z if temperature == 1.0 else z.div_(temperature)), slope


def _below(z: Tensor, top: Tensor) -> Tensor:
    """Subtract the largest logit [c] from z [c, V] in place; where p is 0 its log must stay finite."""
    return z.sub_(top[:, None]).clamp_(min=LEAST_LOG_PROB)
