"""Log-probs and entropies of completions, without ever holding logits of all positions.

For N completion tokens, hidden size D and vocabulary V, the ordinary way keeps [B, L, V] logits, their softmax and
gradient. Here a chunk of positions is projected at a time, and projected again in the backward pass: 2·N·D·V more
multiplications for a memory of a few [chunk, V].
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from grpo_core.algorithms.causal_lm import causal_lm
from grpo_core.algorithms.masking import completion_mask

CHUNK_ELEMENTS = 3 * 2**21
"""Logits held at once on a CPU: 24 MiB in float32, 128 positions at V = 49,152. From 32 MiB on, glibc maps memory anew
for every chunk, and page faults triple the cost of a softmax; with fewer positions the matmuls slow down."""

CHUNK_ELEMENTS_GPU = 2**27
"""The same on an accelerator, where small matmuls leave it idle: 512 MiB in float32."""


def selective_logprob(logits: Tensor, index: Tensor) -> Tensor:
    """Return log softmax(logits) at `index`: [..., V], [...] -> [...], in float32 at least."""
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    return logits.gather(-1, index.unsqueeze(-1)).squeeze(-1) - logits.logsumexp(-1)


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
        with_entropy: Also return the entropy; costs two more passes over the logits.
        softcap: Gemma's cap of the logits.

    Returns:
        logp [N] and entropy [N] or None, in nats, in float32 at least.
    """
    if not temperature > 0:
        raise ValueError(f"temperature={temperature} must be above 0: log-probs of greedy sampling are those at 1.")
    device = hidden.device.type
    if torch.is_autocast_enabled(device):
        # Cast where autograd sees it: inside the function autocast is off, so that both passes compute the same.
        dtype = torch.get_autocast_dtype(device)
        hidden, weight = hidden.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    if chunk is None:
        elements = CHUNK_ELEMENTS if device == "cpu" else CHUNK_ELEMENTS_GPU
        chunk = max(1, elements // weight.shape[0])
    logp, entropy = _LinearLogprob.apply(  # type: ignore[no-untyped-call]  # torch does not annotate it
        hidden, weight, bias, ids, temperature, softcap, chunk, with_entropy
    )
    return logp, entropy if with_entropy else None


def completion_logprobs(
    model: nn.Module,
    input_ids: Tensor,
    prompt_lens: Tensor,
    completion_lens: Tensor,
    *,
    temperature: float = 1.0,
    with_entropy: bool = False,
    chunk: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Return log-probs of completions under `model`, which runs once, without a cache.

    Drawn for B = 2, with p prompt, c completion and - padding; hidden states are used at the marked positions only:

        input_ids   p p p c c -      logp   c c
                      ^ ^                             (the state before a token predicts it)
                    p c c c - -             c c c
                    ^ ^ ^

    Args:
        model: A decoder-only `transformers` model, or a PEFT model around one.
        input_ids: [B, L], right-padded, with anything: under causal attention no real token sees padding.
        prompt_lens: [B], each at least 1.
        completion_lens: [B]; 0 is allowed.
        temperature: Divides the logits; the one that sampled.
        with_entropy: Also return entropies over the whole vocabulary.
        chunk: Positions projected at a time; None fits the device.

    Returns:
        logp [B, T] and entropy [B, T] or None, T the longest completion; 0 where masked.

    Raises:
        UserError: the model's head carries an adapter, or its logits are made in an unknown way.
    """
    longest = int((prompt_lens + completion_lens).max()) if input_ids.shape[0] else 0
    if longest > input_ids.shape[1] or bool((prompt_lens < 1).any()):
        raise ValueError(
            f"prompt_lens and completion_lens do not fit input_ids of {input_ids.shape[1]} columns: prompts need at "
            f"least 1 token, and prompt + completion is at most {longest}."
        )
    parts = causal_lm(model)
    weight, bias = parts.head_weight()
    mask = completion_mask(completion_lens)  # [B, T]
    rows, offsets = mask.nonzero(as_tuple=True)  # [N] each
    columns = prompt_lens[rows] + offsets
    hidden = parts.hidden(_without_padding(input_ids, prompt_lens + completion_lens), use_cache=False)  # [B, L, D]
    flat = hidden.flatten(0, 1).index_select(0, rows * hidden.shape[1] + columns - 1)  # [N, D]
    if parts.scale != 1.0:
        flat = flat * parts.scale
        bias = None if bias is None else bias * parts.scale
    logp, entropy = linear_logprob(
        flat,
        weight,
        input_ids[rows, columns],
        bias=bias,
        temperature=temperature,
        chunk=chunk,
        with_entropy=with_entropy,
        softcap=parts.softcap,
    )
    return _unflatten(logp, mask), None if entropy is None else _unflatten(entropy, mask)


def _without_padding(input_ids: Tensor, lengths: Tensor) -> Tensor:
    """Replace padding, which may be no token at all (−100), by each row's first token, and cut columns of padding."""
    real = completion_mask(lengths, int(lengths.max()) if lengths.numel() else 0)
    return torch.where(real, input_ids[:, : real.shape[1]], input_ids[:, :1])


def _unflatten(values: Tensor, mask: Tensor) -> Tensor:
    return torch.zeros(mask.shape, dtype=values.dtype, device=values.device).masked_scatter(mask, values)


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
        logp = hidden.new_empty(hidden.shape[0], dtype=_wide(hidden))
        normaliser = torch.empty_like(logp)
        entropy = torch.zeros_like(logp)
        with torch.autocast(hidden.device.type, enabled=False):
            for start in range(0, hidden.shape[0], chunk):
                at = slice(start, start + chunk)
                z, _ = _scaled_logits(hidden[at], weight, bias, temperature, softcap)
                p = z.softmax(-1)
                # The likeliest token gives logsumexp(z) from the softmax, which is one fused pass; logsumexp is four.
                normaliser[at] = z.amax(-1) - p.amax(-1).log()
                logp[at] = z.gather(1, ids[at, None])[:, 0] - normaliser[at]
                if with_entropy:
                    entropy[at] = -torch.linalg.vecdot(p, _minus(z, normaliser[at]))
        ctx.save_for_backward(hidden, weight, bias, ids, normaliser, entropy)
        ctx.temperature, ctx.softcap, ctx.chunk, ctx.with_entropy = temperature, softcap, chunk, with_entropy
        if not with_entropy:
            ctx.mark_non_differentiable(entropy)
        return logp, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_logp: Tensor, grad_entropy: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, ids, normaliser, entropy = ctx.saved_tensors
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        # Chunks are summed in float32 at least: in bfloat16 the later ones would be rounded away.
        grad_hidden = torch.empty_like(hidden) if needs_hidden else None
        grad_weight = torch.zeros_like(weight, dtype=_wide(weight)) if needs_weight else None
        grad_bias = torch.zeros_like(bias, dtype=_wide(bias)) if needs_bias else None
        grad_logp, grad_entropy = grad_logp / ctx.temperature, grad_entropy / ctx.temperature
        with torch.autocast(hidden.device.type, enabled=False):
            for start in range(0, hidden.shape[0], ctx.chunk):
                at = slice(start, start + ctx.chunk)
                z, slope = _scaled_logits(hidden[at], weight, bias, ctx.temperature, ctx.softcap)
                grad = z.softmax(-1)
                if ctx.with_entropy:
                    surprise = _minus(z, normaliser[at] - entropy[at])  # log p + H
                    grad.mul_(surprise.mul_(grad_entropy[at, None]).add_(grad_logp[at, None])).neg_()
                else:
                    grad.mul_(-grad_logp[at, None])
                grad.scatter_add_(1, ids[at, None], grad_logp[at, None])  # [c, V]
                if slope is not None:
                    grad.mul_(slope)
                if grad_bias is not None:
                    grad_bias += grad.sum(0)
                grad = grad.to(hidden.dtype)
                if grad_hidden is not None:
                    grad_hidden[at] = grad @ weight
                if grad_weight is not None:
                    _add_product(grad_weight, grad.T, hidden[at])
        if grad_weight is not None:
            grad_weight = grad_weight.to(weight.dtype)
        if grad_bias is not None:
            grad_bias = grad_bias.to(bias.dtype)
        return grad_hidden, grad_weight, grad_bias, None, None, None, None, None


def _wide(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def _scaled_logits(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, temperature: float, softcap: float | None
) -> tuple[Tensor, Tensor | None]:
    """Return z [c, V] in float32 at least, and the slope of the soft cap (None without one)."""
    z = F.linear(hidden, weight, bias)
    z = z.to(_wide(z))
    slope = None
    if softcap is not None:
        z = z.div_(softcap).tanh_()
        slope = 1 - z.square()
        z = z.mul_(softcap)
    return (z if temperature == 1.0 else z.div_(temperature)), slope


def _minus(z: Tensor, x: Tensor) -> Tensor:
    """Subtract x [c] from z [c, V] in place; −inf becomes the least number, as 0·−inf is NaN where 0 is the limit."""
    return z.sub_(x[:, None]).clamp_(min=torch.finfo(z.dtype).min)


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add a·b to `total` in place, widening only the product."""
    if total.dtype == a.dtype:
        total.addmm_(a, b)
    else:
        total += a @ b
