"""The body of a model of Llama's shape in a third of the operations, for the many small passes of sampling on a CPU.

Queries, keys and values are one matrix product, and so are the two halves of the MLP's input. The weights are copies,
made for one batch of requests, in which the halves of a head are interleaved: rotating queries and keys is then one
product of complex numbers. Other models run their own code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from grpo_core.algorithms.cpu_matmul import Linear, copied_linear
from grpo_core.engines.shared_attention import SampledCache, attend

FAMILIES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}
"""Modules of `transformers.models` and the prefix of their classes, all of this shape."""

PLAIN = (nn.Linear, Linear, nn.Embedding, nn.ModuleList, nn.SiLU)
"""Modules that these models may contain beside their own."""

TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.01, torch.bfloat16: 0.05}
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

    def __call__(self, token_ids: Tensor, positions: Tensor, cache: SampledCache) -> Tensor:
        """Hidden states [b, l, D] of tokens [b, l] at their positions; their keys and values go to the cache."""
        x = self._embed(token_ids)
        with torch.inference_mode(False):  # some keep their frequencies for longer sequences
            cos, sin = (part[..., None, : part.shape[-1] // 2] for part in self._rotary(x, positions))
        rotation = torch.complex(cos.contiguous(), sin.contiguous())  # [b, l, 1, d / 2]
        heads = (self._heads, self._kv_heads, self._kv_heads)
        for index, layer in enumerate(self._layers):
            qkv = layer.qkv(layer.norm(x)).float().unflatten(-1, (sum(heads), -1))  # [b, l, H + 2 KV, d]
            query, key, value = qkv.split(heads, 2)
            if layer.query_norm is not None and layer.key_norm is not None:
                query.copy_(layer.query_norm(query))
                key.copy_(layer.key_norm(key))
            torch.view_as_complex(qkv.unflatten(-1, (-1, 2)))[:, :, : -self._kv_heads].mul_(rotation)
            query, key, value = (part.transpose(1, 2) for part in (query, key, value))
            key, value = cache.update(key, value, index)
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
    width = attention.head_dim
    return _Layer(
        norm=_norm(layer.input_layernorm),
        qkv=_joined((attention.q_proj, attention.k_proj, attention.v_proj), rows, rotated=(width, width, 0)),
        query_norm=_norm(attention.q_norm, width) if hasattr(attention, "q_norm") else None,
        key_norm=_norm(attention.k_norm, width) if hasattr(attention, "k_norm") else None,
        output=_joined((attention.o_proj,), rows),
        scaling=attention.scaling,
        mlp_norm=_norm(layer.post_attention_layernorm),
        gate_up=_joined((mlp.gate_proj, mlp.up_proj), rows),
        down=_joined((mlp.down_proj,), rows),
    )


def _norm(norm: Any, rotated: int = 0) -> _Linear:
    weight, eps = _interleaved(norm.weight.detach(), rotated), norm.variance_epsilon
    return lambda x: F.rms_norm(x.float(), weight.shape, weight, eps)  # products in bfloat16 are widened


def _joined(layers: Sequence[nn.Linear], rows: int, rotated: Sequence[int] | None = None) -> _Linear:
    """Several linear layers of one input as one product.

    Args:
        layers: They have a bias all, or none.
        rows: Tokens of a pass.
        rotated: For each layer the width of the heads that are rotated, or 0; None if none is.
    """
    parts = list(zip(layers, rotated or [0] * len(layers), strict=True))
    weight = torch.cat([_interleaved(layer.weight.detach(), width) for layer, width in parts])
    biases = [_interleaved(layer.bias.detach(), width) for layer, width in parts if layer.bias is not None]
    assert len(biases) in (0, len(layers)), "these models have a bias everywhere or nowhere"
    return copied_linear(weight, torch.cat(biases) if biases else None, rows)


def _interleaved(rows: Tensor, width: int) -> Tensor:
    """Heads of rows [heads * width, *], each with its halves interleaved: (a0, a1, b0, b1) -> (a0, b0, a1, b1)."""
    return rows.unflatten(0, (-1, 2, width // 2)).transpose(1, 2).flatten(0, 2) if width else rows
