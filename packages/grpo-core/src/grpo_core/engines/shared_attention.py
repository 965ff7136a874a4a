"""The attention of the native engine: prompts are attended to once for all rows that share them.

It is registered with `transformers`' attention interface, so every model that goes through that interface keeps its
own code: projections, position embeddings, norms and heads are never rewritten here. No mask function is registered
beside it, and then `transformers` makes no mask: the prefill is causal, and decoding masks by length.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, PretrainedConfig

from grpo_core.algorithms.prefix_attention import attention_part, attention_with, mask_of, merged
from grpo_core.engines.compatibility import INSTEAD
from grpo_core.engines.conversations import ConversationCache
from grpo_core.engines.kv_cache import SharedPrefixCache
from grpo_sdk.errors import UserError

NAME = "grpo_shared_prefix"
"""Name of the function in `transformers`' registry."""

UNSUPPORTED_ARGUMENTS = ("softcap", "s_aux", "position_bias")
"""Arguments of attention functions that this one does not support: soft-capping, sinks, relative positions."""

SampledCache = SharedPrefixCache | ConversationCache
"""Where a batch that is being sampled has its keys and values."""

_cache: ContextVar[SampledCache] = ContextVar("grpo_shared_prefix_cache")


def attention_through(cache: SampledCache, config: PretrainedConfig) -> AbstractContextManager[None]:
    """Make models with this config attend through `cache` within the block, and as before after it."""
    return attention_with(NAME, config, _cache, cache)


def shared_prefix_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend to what the cache holds.

    softmax([q·Kₚ, q·K𝒸]·scaling)·[Vₚ; V𝒸] with p the row's prompt and c its own decoded tokens, each part by itself and
    then merged (`prefix_attention`): it is the ordinary attention of the concatenated sequence.

    Args:
        module: The attention module.
        query: [A, H, 1, D], or [p, H, l, D] in the prefill; [1, H, N, D] where conversations go on.
        key: [A, KV, 1, D], [p, KV, l, D] or [1, KV, N, D]: as `update` of the cache returned it.
        value: As key.
        attention_mask: None, because no mask function is registered.
        scaling: Factor of the scores; D^-1/2 by default.
        **kwargs: What the model passes to any attention; those in `UNSUPPORTED_ARGUMENTS` must be None.

    Returns:
        [A, 1, H, D] (or [p, l, H, D], or [1, N, H, D]) and no weights.

    Raises:
        UserError: the model needs something that this attention does not compute.
    """
    cache = _cache.get()
    _refuse_unsupported(module, attention_mask, kwargs)
    return attend(cache, query, key, value, query.shape[-1] ** -0.5 if scaling is None else scaling), None


def attend(cache: SampledCache, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
    """Attention of the layer whose keys and values the cache has just stored; shapes as above."""
    cache.attended += 1
    if isinstance(cache, ConversationCache):
        with torch.autocast(query.device.type, enabled=False):
            return _go_on(cache, query, scaling)
    if cache.prefilling:
        # Prompts are right-padded, so under a causal mask no real token sees padding.
        grouped, visible = query.shape[1] != key.shape[1], None
        if cache.common:
            prompts, tokens = query.shape[0], query.shape[2]
            key, value = cache.being_read(prompts, tokens)
            visible = torch.ones(tokens, cache.common + tokens, dtype=torch.bool, device=query.device).tril(
                cache.common
            )
        out = F.scaled_dot_product_attention(
            query, key, value, attn_mask=visible, is_causal=visible is None, scale=scaling, enable_gqa=grouped
        )
        return out.transpose(1, 2).contiguous()
    if not torch.is_autocast_enabled(query.device.type):
        return _decode(cache, query, scaling)
    with torch.autocast(query.device.type, enabled=False):  # it would round the scores to half precision
        return _decode(cache, query, scaling)


def _decode(cache: SharedPrefixCache, query: Tensor, scaling: float) -> Tensor:
    assert cache.current is not None, "a layer updates the cache before it attends"
    layout = cache.layout
    prompt_keys, prompt_values = cache.current.prompts()  # [P, KV, L, D]
    keys, values = cache.current.tokens()  # [A, KV, T, D]
    rows, heads, _, width = query.shape
    kv = keys.shape[1]
    query = query.reshape(rows, kv, heads // kv, width).to(keys.dtype)  # R = H / KV query heads share a key head
    slots = layout.to_slots(query)  # [P, KV, G * R, D]
    prompt, prompt_log = _attend(slots, prompt_keys, prompt_values, scaling, layout.padding)
    own, own_log = _attend(query, keys, values, scaling)  # [A, KV, R, D]
    out = merged(layout.to_rows(prompt), layout.to_rows(prompt_log[..., None])[..., 0], own, own_log)
    return out.view(rows, 1, heads, values.shape[-1])


def _go_on(cache: ConversationCache, query: Tensor, scaling: float) -> Tensor:
    """Attention [1, N, H, D] of new tokens of conversations, queries [1, H, N, D], to all before them."""
    out = []
    for run in cache.runs:
        keys, values = (part[run.slots, :, : run.seen] for part in run.shelf.layers[cache.current])
        rows = query[0, :, run.tokens].transpose(0, 1).unflatten(1, (keys.shape[1], -1))  # [rows, KV, R, D]
        out.append(_attend(rows.to(keys.dtype), keys, values, scaling, run.padding)[0].flatten(1, 2))
    for span in cache.spans:
        keys, values = (part[span.slot : span.slot + 1, :, : span.seen] for part in span.shelf.layers[cache.current])
        seen = F.scaled_dot_product_attention(
            query[:, :, span.tokens].to(keys.dtype),
            keys,
            values,
            attn_mask=span.visible,
            is_causal=span.visible is None,
            scale=scaling,
            enable_gqa=query.shape[1] != keys.shape[1],
        )
        out.append(seen[0].transpose(0, 1))
    return torch.cat(out).to(query.dtype)[None]


def _attend(
    query: Tensor, key: Tensor, value: Tensor, scale: float, padding: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Attention [B, KV, Q, D] and the logarithm of its denominator [B, KV, Q], without keys where padding [B, L] is."""
    if query.device.type == "cpu" and query.shape[-1] == value.shape[-1]:
        mask = None if padding is None else mask_of(padding, query.dtype)
        return attention_part(query, key, value, scale=scale, mask=mask)
    scores = _product(query * scale, key.mT)
    if padding is not None:
        scores = scores.masked_fill(padding[:, None, None], -torch.inf)
    log = scores.logsumexp(-1)
    return _product((scores - log[..., None]).exp().to(value.dtype), value), log


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Multiply with a result in float32 at least: scores in bfloat16 would carry errors of 2^-8 into the softmax."""
    return a @ b if a.dtype in (torch.float32, torch.float64) else a.float() @ b.float()


def _refuse_unsupported(module: nn.Module, attention_mask: Tensor | None, kwargs: dict[str, Any]) -> None:
    for name in UNSUPPORTED_ARGUMENTS:
        if kwargs.get(name) is not None:
            raise UserError(
                f"the native engine cannot sample from {type(module).__name__}: its attention uses {name!r}, which the "
                f"shared-prompt attention does not compute. {INSTEAD}"
            )
    if attention_mask is not None or not kwargs.get("is_causal", getattr(module, "is_causal", True)):
        raise UserError(
            f"the native engine cannot sample from {type(module).__name__}: it brings an attention mask of its own or "
            f"is not causal. {INSTEAD}"
        )


AttentionInterface.register(NAME, shared_prefix_attention)
