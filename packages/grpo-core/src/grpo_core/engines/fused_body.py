"""The body of a model of Llama's shape in a third of the operations, for the many small passes of sampling on a CPU.

Queries, keys and values are one matrix product, and so are the two halves of the MLP's input; norms and rotations are
one or two operations each. The weights are copies, made for one batch of requests. Other models run their own code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from grpo_core.algorithms.cpu_matmul import Linear, copied_linear
from grpo_core.engines.kv_cache import SharedPrefixCache
from grpo_core.engines.shared_attention import attend

FAMILIES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}
"""Modules of `transformers.models` and the prefix of their classes, all of this shape."""

PLAIN = (nn.Linear, Linear, nn.Embedding, nn.ModuleList, nn.SiLU)
"""Modules that these models may contain beside their own."""

TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.05}
"""Relative difference from the model's own code that rounding explains, by the type of the products."""

_Linear = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer; the norms map [..., D] to the same shape, those of heads [..., d]."""

    norm: _Linear
    qkv: _Linear
    query_norm: _Linear | None
    key_norm: _Linear | None
    output: _Linear
    scaling: float
    mlp_norm: _Linear
    gate_up: _Linear
    down: _Linear


class FusedBody:
    """Computes what the body of a model computes; see `of`."""

    def __init__(self, body: Any, rows: int) -> None:
        config = body.config
        self._embed, self._rotary, self._norm = body.embed_tokens, body.rotary_emb, _norm(body.norm)
        self._heads, self._kv_heads = config.num_attention_heads, config.num_key_value_heads
        self._layers = [_layer(layer, rows) for layer in body.layers]

    @classmethod
    def of(cls, body: nn.Module, rows: int) -> Self | None:
        """Copy the weights of a body as they are now, under autocast in its type.

        Args:
            body: A body of any kind.
            rows: Sequences of a pass, for which the copies are laid out.

        Returns:
            None if it is of another shape, has adapters or hooks, or is not in float32 on a CPU.
        """
        return cls(body, rows) if _is_known(body) else None

    def __call__(self, token_ids: Tensor, positions: Tensor, cache: SharedPrefixCache) -> Tensor:
        """Hidden states [b, l, D] of tokens [b, l] at their positions; their keys and values go to the cache."""
        x = self._embed(token_ids)
        cos, sin = (part.unsqueeze(2) for part in self._rotary(x, positions))  # [b, l, 1, d]
        half = sin.shape[-1] // 2
        sin = torch.cat((-sin[..., :half], sin[..., half:]), -1)
        rotated = self._heads + self._kv_heads
        for index, layer in enumerate(self._layers):
            qkv = layer.qkv(layer.norm(x)).unflatten(-1, (rotated + self._kv_heads, 2 * half))  # [b, l, H + 2 KV, d]
            qk, value = qkv[:, :, :rotated], qkv[:, :, rotated:]
            if layer.query_norm is not None and layer.key_norm is not None:
                qk = torch.cat((layer.query_norm(qk[:, :, : self._heads]), layer.key_norm(qk[:, :, self._heads :])), 2)
            qk = torch.addcmul(qk * cos, qk.roll(half, -1), sin)
            query, key = qk[:, :, : self._heads].transpose(1, 2), qk[:, :, self._heads :].transpose(1, 2)
            key, value = cache.update(key, value.transpose(1, 2), index)
            x = x + layer.output(attend(cache, query, key, value, layer.scaling).flatten(2))
            gate, up = layer.gate_up(layer.mlp_norm(x)).chunk(2, -1)
            x = x + layer.down(F.silu(gate) * up)
        return self._norm(x)


def _is_known(body: nn.Module) -> bool:
    family = type(body).__module__.rpartition("modeling_")[2]
    prefix = FAMILIES.get(family)
    if prefix is None or getattr(body.config, "hidden_act", None) != "silu":
        return False
    module = f"transformers.models.{family}.modeling_{family}"
    own = [f"{prefix}{part}" for part in ("Model", "DecoderLayer", "Attention", "MLP", "RMSNorm", "RotaryEmbedding")]
    for part in body.modules():
        kind = type(part)
        is_plain = kind in PLAIN or kind.__name__ == "SiLUActivation"
        if not is_plain and (kind.__module__, kind.__name__) not in [(module, name) for name in own]:
            return False
        if part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part):
            return False
    return all(
        type(weight) is nn.Parameter and weight.dtype == torch.float32 and weight.device.type == "cpu"
        for weight in body.parameters()
    )


def _layer(layer: Any, rows: int) -> _Layer:
    attention, mlp = layer.self_attn, layer.mlp
    return _Layer(
        norm=_norm(layer.input_layernorm),
        qkv=_joined((attention.q_proj, attention.k_proj, attention.v_proj), rows),
        query_norm=_norm(attention.q_norm) if hasattr(attention, "q_norm") else None,
        key_norm=_norm(attention.k_norm) if hasattr(attention, "k_norm") else None,
        output=_joined((attention.o_proj,), rows),
        scaling=attention.scaling,
        mlp_norm=_norm(layer.post_attention_layernorm),
        gate_up=_joined((mlp.gate_proj, mlp.up_proj), rows),
        down=_joined((mlp.down_proj,), rows),
    )


def _norm(norm: Any) -> _Linear:
    weight, eps = norm.weight.detach(), norm.variance_epsilon
    return lambda x: F.rms_norm(x.to(weight.dtype), weight.shape, weight, eps)  # products in bfloat16 are widened


def _joined(layers: Sequence[nn.Linear], rows: int) -> _Linear:
    """Several linear layers of one input as one product."""
    biases = [layer.bias for layer in layers if layer.bias is not None]
    assert len(biases) in (0, len(layers)), "these models have a bias everywhere or nowhere"
    weight = torch.cat([layer.weight.detach() for layer in layers])
    return copied_linear(weight, torch.cat([bias.detach() for bias in biases]) if biases else None, rows)
