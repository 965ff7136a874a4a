"""Keys and values in memory that does not move, so that a decoding step can be captured as a CUDA graph.

Rows have places [P, G]: place (p, g) is row p·G + g and continues prompt p, so queries meet their prompt through views
alone. Places without a row compute something finite that nobody reads. All shapes are views of the same memory, which
grows to the largest batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.cache_utils import Cache

NAME = "grpo_static"
"""Name of the function in `transformers`' registry."""

MIN_TOKENS = 32
"""Least tokens of a bucket of lengths."""

static_cache: ContextVar[StaticCache] = ContextVar("grpo_static_cache")


def bucket(n: int, least: int = 1) -> int:
    """The least of 1, 2, 3, 4, 6, 8, 12, 16, … that is at least `n` and `least`."""
    wanted = max(n, least)
    power = 1 << (wanted - 1).bit_length()
    return power * 3 // 4 if power >= 4 and wanted <= power * 3 // 4 else power


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a batch.

    Attributes:
        prompts: P.
        group: G, places per prompt.
        prompt_tokens: L, room for a prompt.
        tokens: Room for a completion.
    """

    prompts: int
    group: int
    prompt_tokens: int
    tokens: int

    @classmethod
    def of(cls, prompts: int, group: int, prompt_tokens: int, tokens: int) -> Shape:
        """The bucket that so many fit into."""
        return cls(bucket(prompts), bucket(group), bucket(prompt_tokens, MIN_TOKENS), bucket(tokens, MIN_TOKENS))

    @property
    def rows(self) -> int:
        """Places of all prompts."""
        return self.prompts * self.group

    @property
    def held(self) -> int:
        """Tokens of keys and values that it has room for."""
        return self.prompts * self.prompt_tokens + self.rows * self.tokens


_Layer = tuple[Tensor, Tensor, Tensor, Tensor]
"""Keys and values of prompts [P, KV, L, D], and of completions [P * G, KV, T, D]."""


class StaticCache(Cache):
    """Keys and values of one batch at a time.

    Attributes:
        shape: Of the batch.
        seen: T, tokens of a completion that a step looks at, of which later ones are masked.
        at: [1] int64 on the device, index of the token being decoded.
        lens: [P] int64 on the device, lengths of the prompts; 0 where there is none.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__(layers=[])
        self._device = device
        self._memory: list[tuple[Tensor, ...]] = []
        self._small = torch.zeros(0, dtype=torch.int64, device=device)
        self._views: list[_Layer] = []
        self._mask = torch.empty(0)
        self._widths: list[tuple[int, int, int]] = []
        self._last = 0
        self.shape = Shape(1, 1, 1, 1)
        self.seen = 1
        self.at = torch.zeros(1, dtype=torch.int64, device=device)
        self.lens = self._small

    @property
    def dtype(self) -> torch.dtype:
        """Type of keys and values."""
        return self._memory[0][0].dtype

    def load(self, shape: Shape, prompts: Sequence[tuple[Tensor, Tensor]], lens: Sequence[int]) -> bool:
        """Begin a batch with keys and values [p, KV, l, D] of its prompts, for each layer.

        Returns:
            Whether memory has moved, so that what was captured is of no use.
        """
        moved = self._reserve(shape, prompts)
        self._arrange(shape, lens)
        for (keys, values, _, _), new in zip(self._views, prompts, strict=True):
            for stored, part in zip((keys, values), new, strict=True):
                stored[: part.shape[0], :, : part.shape[2]] = part
        self.at.zero_()
        return moved

    def regroup(self, shape: Shape, prompts: Sequence[int], rows: Sequence[int], lens: Sequence[int]) -> None:
        """Copy what is alive to a smaller shape, of the same lengths.

        Args:
            shape: The new shape.
            prompts: For each new prompt the old one; any where there is none.
            rows: For each new place the old one; any where there is none.
            lens: Lengths of the new prompts; 0 where there is none.
        """
        old = self._views
        self._arrange(shape, lens)
        which = [torch.tensor(index, device=self._device) for index in (prompts, prompts, rows, rows)]
        for before, after in zip(old, self._views, strict=True):
            for source, target, index in zip(before, after, which, strict=True):
                target.copy_(source.index_select(0, index))  # both are views of the same memory, hence the copy between

    def _reserve(self, shape: Shape, prompts: Sequence[tuple[Tensor, Tensor]]) -> bool:
        sizes = []
        for keys, values in prompts:
            per_token = [keys.shape[1] * part.shape[3] for part in (keys, values)]
            own = shape.rows * shape.tokens
            sizes.append([n * tokens for tokens in (shape.prompts * shape.prompt_tokens, own) for n in per_token])
        dtype = prompts[0][0].dtype
        self._widths = [(keys.shape[1], keys.shape[3], values.shape[3]) for keys, values in prompts]
        fits = len(self._memory) == len(sizes) and all(
            part.dtype == dtype and part.numel() >= size
            for parts, needed in zip(self._memory, sizes, strict=True)
            for part, size in zip(parts, needed, strict=True)
        )
        if fits and self._small.numel() >= shape.prompts:
            return False
        self._memory, self._views = [], []  # given back before as much is asked for
        # Zeros, because what is masked is multiplied by a probability of 0 and what empty memory holds may be NaN.
        self._memory = [
            tuple(torch.zeros(size, dtype=dtype, device=self._device) for size in needed) for needed in sizes
        ]
        self._small = torch.zeros(max(shape.prompts, self._small.numel()), dtype=torch.int64, device=self._device)
        return True

    def _arrange(self, shape: Shape, lens: Sequence[int]) -> None:
        self.shape = shape
        self.lens = self._small[: shape.prompts]
        self.lens.copy_(torch.tensor([*lens, *[0] * (shape.prompts - len(lens))]))
        self._views = []
        for (kv, width, value_width), memory in zip(self._widths, self._memory, strict=True):
            shapes = [
                (first, kv, tokens, each)
                for first, tokens in ((shape.prompts, shape.prompt_tokens), (shape.rows, shape.tokens))
                for each in (width, value_width)
            ]
            views = [
                part[: size[0] * size[1] * size[2] * size[3]].view(size)
                for part, size in zip(memory, shapes, strict=True)
            ]
            self._views.append((views[0], views[1], views[2], views[3]))

    def begin_step(self, seen: int) -> None:
        """Make the mask of a step that looks at `seen` tokens of each completion; operations on the device alone."""
        self.seen = seen
        dtype = torch.float64 if self.dtype == torch.float64 else torch.float32
        padding = torch.arange(self.shape.prompt_tokens, device=self._device) >= self.lens[:, None]  # [P, L]
        later = (torch.arange(seen, device=self._device) > self.at).expand(self.shape.prompts, -1)  # [P, T]
        hidden = torch.cat((padding, later), -1)
        self._mask = torch.zeros(hidden.shape, dtype=dtype, device=self._device).masked_fill_(hidden, -torch.inf)

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store keys and values [P * G, KV, 1, D] of the token being decoded."""
        _, _, keys, values = self._views[layer_idx]
        keys.index_copy_(2, self.at, key_states.to(keys.dtype))
        values.index_copy_(2, self.at, value_states.to(values.dtype))
        self._last = layer_idx
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return a length for models that ask; positions are always given to them."""
        return self.shape.prompt_tokens + self.seen - 1

    def attend(self, query: Tensor, scaling: float) -> Tensor:
        """Attention [P * G, 1, H, D] of the layer that was updated last, of queries [P * G, H, 1, D]."""
        prompt_keys, prompt_values, keys, values = (part.flatten(0, 1) for part in self._views[self._last])
        prompts, group, length = self.shape.prompts, self.shape.group, self.shape.prompt_tokens
        rows, heads, _, width = query.shape
        kv = len(keys) // rows
        shared = heads // kv  # R query heads share a key head
        own = query.to(keys.dtype).reshape(rows * kv, shared, width)
        slots = own.view(prompts, group, kv, shared, width).transpose(1, 2).reshape(prompts * kv, -1, width)
        prompt_scores = _product(slots, prompt_keys.mT).view(prompts, kv, group, shared, length)
        own_scores = _product(own, keys[:, : self.seen].mT).view(prompts, group, kv, shared, self.seen)
        scores = torch.cat((prompt_scores, own_scores.transpose(1, 2)), -1)  # [P, KV, G, R, L + T]
        weights = torch.softmax(torch.add(self._mask[:, None, None, None], scores, alpha=scaling), -1).to(keys.dtype)
        of_prompt = _product(weights[..., :length].reshape(prompts * kv, -1, length), prompt_values)
        of_own = _product(weights[..., length:].transpose(1, 2).reshape(rows * kv, shared, -1), values[:, : self.seen])
        out = of_prompt.view(prompts, kv, group, shared, -1).transpose(1, 2) + of_own.view(
            prompts, group, kv, shared, -1
        )
        return out.reshape(rows, 1, heads, -1).to(query.dtype)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Batched product with a result in float32 at least, as scores in bfloat16 would carry errors of 2^-8."""
    if a.dtype in (torch.float32, torch.float64):
        return torch.bmm(a, b)
    if widens_products(a.device, a.dtype):  # without widening the keys and values of all tokens first
        return torch.bmm(a, b, out_dtype=torch.float32)
    return torch.bmm(a.float(), b.float())


@cache
def widens_products(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether a batched product of a narrow type may have a result in float32: CUDA from torch 2.8 on, not ROCm."""
    one = torch.ones(1, 1, 1, device=device, dtype=dtype)
    try:
        torch.bmm(one, one, out_dtype=torch.float32)
    except (TypeError, RuntimeError):
        return False
    return True


def static_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend to what the static cache holds; as `shared_prefix_attention`, whose prefill has refused what is unknown.

    Args:
        module: The attention module.
        query: [P * G, H, 1, D].
        key: As `StaticCache.update` returned it; the cache has it.
        value: As key.
        attention_mask: None, because no mask function is registered.
        scaling: Factor of the scores; D^-1/2 by default.
        **kwargs: What the model passes to any attention.

    Returns:
        [P * G, 1, H, D] and no weights.
    """
    cache = static_cache.get()
    factor = query.shape[-1] ** -0.5 if scaling is None else scaling
    with torch.autocast(query.device.type, enabled=False):  # it would round the scores to half precision
        return cache.attend(query, factor), None


AttentionInterface.register(NAME, static_attention)
