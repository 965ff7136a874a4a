"""Attention in parts on a CPU: what tokens see of a shared prompt, and what they see of their own completion.

Each part is a flash attention, which keeps no scores, and returns the logarithm of its softmax's denominator beside its
result. With these the results are merged to the attention of prompt and completion in one softmax, exactly:

    out = (e^lₚ outₚ + e^lₒ outₒ) / (e^lₚ + e^lₒ) = outₒ + σ(lₚ − lₒ) (outₚ − outₒ)        l = log(e^lₚ + e^lₒ)

The backward pass of a part takes the merged `out` and `l` in place of its own (Liu et al., Ring Attention, 2310.01889).
A completion of T tokens behind a prompt of P costs T·(P + T/2), however many completions are packed into one sequence,
where a mask over the packed sequence computes every pair.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers import AttentionInterface, PretrainedConfig

NAME = "grpo_packed"
"""Name of the function in `transformers`' registry."""


def attention_part(
    query: Tensor, key: Tensor, value: Tensor, *, scale: float, causal: bool = False, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Attention and the logarithm of its denominator, on a CPU.

    Args:
        query: [B, H, Q, D].
        key: [B, KV, K, D], where KV divides H.
        value: As key.
        scale: Factor of the scores.
        causal: Whether query i sees keys up to i only.
        mask: Added to the scores, of a shape that expands to [B, H, Q, K].

    Returns:
        [B, H, Q, D] and [B, H, Q].
    """
    result: tuple[Tensor, Tensor] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, causal, attn_mask=mask, scale=scale
    )
    return result


def merged(prompt: Tensor, prompt_log: Tensor, own: Tensor, own_log: Tensor) -> Tensor:
    """The attention over two parts, from the result [..., D] and logarithm [...] of each."""
    return torch.lerp(own, prompt, torch.sigmoid(prompt_log - own_log).to(own.dtype).unsqueeze(-1))


def mask_of(padding: Tensor, dtype: torch.dtype) -> Tensor:
    """The mask [P, 1, 1, L] that hides keys where padding [P, L] is true."""
    return torch.zeros(padding.shape, dtype=dtype).masked_fill(padding, -torch.inf)[:, None, None]


@dataclass(slots=True)
class PackedSequence:
    """Completions behind their prompts, all in one sequence of N tokens without padding.

    The tokens of a prompt are followed by those of its completions, the last of each left out, as it predicts nothing.
    Attention gathers them into blocks [P, L] of prompts and [P, G, T] of completions, which are padded.

    Attributes:
        ids: [1, N] tokens.
        positions: [1, N] each token's position behind its own prompt.
        predictors: [B, T'] index of the token that predicts each completion token; 0 where there is none.
        attended: Layers that attended to it.
    """

    ids: Tensor
    positions: Tensor
    predictors: Tensor
    attended: int
    _prompts: Tensor  # [P, L] index of each token
    _own: Tensor  # [P, G, T]
    _padding: Tensor | None  # [P, L], true where a prompt is shorter
    _unused: Tensor | None  # [P, G, T], true where a completion is shorter or missing
    _places: Tensor  # [N] index of each token in prompts, then completions

    @classmethod
    def of(
        cls, input_ids: Tensor, prompts: Sequence[int], completions: Sequence[int], packs: Sequence[Sequence[int]]
    ) -> PackedSequence:
        """Lay rows [B, L] with these lengths out; each pack's rows share a prompt."""
        longest, most = max(prompts[pack[0]] for pack in packs), max(map(len, packs))
        inner = max(max(completions) - 1, 1)  # the operator refuses empty blocks
        prompt_index = torch.zeros(len(packs), longest, dtype=torch.int64)
        padding = torch.ones(len(packs), longest, dtype=torch.bool)
        own_index = torch.zeros(len(packs), most, inner, dtype=torch.int64)
        unused = torch.ones(len(packs), most, inner, dtype=torch.bool)
        predictors = torch.zeros(len(prompts), max(completions), dtype=torch.int64)
        ids, positions, places, at = [], [], [], 0
        for index, pack in enumerate(packs):
            length = prompts[pack[0]]
            prompt_index[index, :length] = torch.arange(at, at + length)
            padding[index, :length] = False
            ids.append(input_ids[pack[0], :length])
            positions.append(torch.arange(length))
            places.append(torch.arange(length) + index * longest)
            last, at = at + length - 1, at + length
            for slot, row in enumerate(pack):
                tokens = completions[row] - 1
                predictors[row, 0] = last
                predictors[row, 1 : tokens + 1] = own_index[index, slot, :tokens] = torch.arange(at, at + tokens)
                unused[index, slot, :tokens] = False
                ids.append(input_ids[row, length : length + tokens])
                positions.append(torch.arange(length, length + tokens))
                places.append(torch.arange(tokens) + len(packs) * longest + (index * most + slot) * inner)
                at += tokens
        return cls(
            ids=torch.cat(ids)[None],
            positions=torch.cat(positions)[None],
            predictors=predictors,
            attended=0,
            _prompts=prompt_index,
            _own=own_index,
            _padding=padding if bool(padding.any()) else None,
            _unused=unused if bool(unused.any()) else None,
            _places=torch.cat(places),
        )

    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Gather [N, H, D]: of prompts [P, H, L, D], and of completions [P, H, G·T, D]."""
        prompts: Tensor = x.index_select(0, self._prompts.flatten()).unflatten(0, self._prompts.shape)
        own: Tensor = x.index_select(0, self._own.flatten()).unflatten(0, (len(self._own), -1))
        return prompts.transpose(1, 2), own.transpose(1, 2)

    def rows(self, x: Tensor) -> Tensor:
        """[P, H, G·T, *] -> [P·G, H, T, *], one block for each completion."""
        packs, heads = x.shape[:2]
        blocks: Tensor = x.unflatten(2, self._own.shape[1:]).transpose(1, 2)
        return blocks.reshape(packs * self._own.shape[1], heads, *blocks.shape[3:])

    def packs(self, x: Tensor) -> Tensor:
        """Undo `rows`."""
        blocks: Tensor = x.unflatten(0, self._own.shape[:2])
        return blocks.transpose(1, 2).flatten(2, 3)

    def join(self, prompts: Tensor, own: Tensor) -> Tensor:
        """Undo `split`."""
        blocks = (prompts.transpose(1, 2).flatten(0, 1), own.transpose(1, 2).flatten(0, 1))
        return torch.cat(blocks).index_select(0, self._places)

    def mask(self, like: Tensor) -> Tensor | None:
        """The mask that hides the padding of prompts; None where there is none."""
        return None if self._padding is None else mask_of(self._padding, like.dtype)

    def without_padding(self, prompts: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients as `split` gathers them, with 0 for what only fills the blocks."""
        if self._padding is not None:
            prompts = prompts.masked_fill(self._padding[:, None, :, None], 0.0)
        if self._unused is not None:
            own = own.masked_fill(self._unused.flatten(1)[:, None, :, None], 0.0)
        return prompts, own


class _PackedAttention(torch.autograd.Function):
    """Attention of packed tokens: query [N, H, D], key and value [N, KV, D] -> [N, H, D]."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, sequence: PackedSequence, scale: float) -> Tensor:
        prompt_q, own_q = sequence.split(query)
        prompt_k, own_k = sequence.split(key)
        prompt_v, own_v = sequence.split(value)
        prompts, prompts_log = attention_part(prompt_q, prompt_k, prompt_v, scale=scale, causal=True)
        seen, seen_log = attention_part(own_q, prompt_k, prompt_v, scale=scale, mask=sequence.mask(query))
        blocks = map(sequence.rows, (own_q, own_k, own_v))
        own, own_log = map(sequence.packs, attention_part(*blocks, scale=scale, causal=True))
        out = sequence.join(prompts, merged(seen, seen_log, own, own_log))
        ctx.save_for_backward(query, key, value, out, prompts_log, torch.logaddexp(seen_log, own_log))
        ctx.sequence, ctx.scale = sequence, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, out, prompts_log, own_log = ctx.saved_tensors
        sequence: PackedSequence = ctx.sequence
        grad_prompts, grad_own = sequence.without_padding(*sequence.split(grad))
        (prompt_q, own_q), (prompt_k, own_k), (prompt_v, own_v), (prompts, own) = map(
            sequence.split, (query, key, value, out)
        )

        def gradients(*tensors: Tensor, causal: bool, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
            result: tuple[Tensor, Tensor, Tensor] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                *tensors, 0.0, causal, attn_mask=mask, scale=ctx.scale
            )
            return result

        of_prompts = gradients(grad_prompts, prompt_q, prompt_k, prompt_v, prompts, prompts_log, causal=True)
        of_seen = gradients(grad_own, own_q, prompt_k, prompt_v, own, own_log, causal=False, mask=sequence.mask(query))
        blocks = map(sequence.rows, (grad_own, own_q, own_k, own_v, own, own_log))
        of_own = tuple(map(sequence.packs, gradients(*blocks, causal=True)))
        return (
            sequence.join(of_prompts[0], of_seen[0] + of_own[0]),
            sequence.join(of_prompts[1] + of_seen[1], of_own[1]),
            sequence.join(of_prompts[2] + of_seen[2], of_own[2]),
            None,
            None,
        )


_sequence: ContextVar[PackedSequence] = ContextVar("grpo_packed_sequence")

Value = TypeVar("Value")


@contextmanager
def attention_with(name: str, config: PretrainedConfig, variable: ContextVar[Value], value: Value) -> Iterator[None]:
    """Make models with this config call a registered attention, which reads the variable, within the block only."""
    before = config._attn_implementation
    token = variable.set(value)
    config._attn_implementation = name
    try:
        yield
    finally:
        config._attn_implementation = before
        variable.reset(token)


def attention_over(sequence: PackedSequence, config: PretrainedConfig) -> AbstractContextManager[None]:
    """Make models with this config attend over packed tokens within the block, and as before after it."""
    return attention_with(NAME, config, _sequence, sequence)


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention as `transformers` calls it: query [1, H, N, D], key and value [1, KV, N, D] -> [1, N, H, D].

    Zeros, and not counted as attended, for a layer with dropout or with values of another width.
    """
    sequence = _sequence.get()
    if kwargs.get("dropout") or value.shape[-1] != query.shape[-1]:
        return value.new_zeros(1, query.shape[2], query.shape[1], value.shape[-1]), None
    sequence.attended += 1
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if torch.is_autocast_enabled("cpu"):  # as for torch's own attention
        query, key, value = (x.to(torch.get_autocast_dtype("cpu")) for x in (query, key, value))
    tokens = (x[0].transpose(0, 1) for x in (query, key, value))
    out: Tensor = _PackedAttention.apply(*tokens, sequence, scale)  # type: ignore[no-untyped-call]
    return out[None], None


AttentionInterface.register(NAME, packed_attention)
