"""Hidden states of completions that share a prompt: the prompt runs once, its completions side by side behind it.

Drawn for a prompt of 2 tokens with completions of 3 and 2 tokens. The last token of a completion predicts nothing, so
it is left out; each completion sees the prompt and itself, at the positions it would have alone:

    tokens      p p a a b          attends to    p p a a b
    position    0 1 2 3 2                    p   x
    segment     0 0 1 1 2                    p   x x
                                             a   x x x
                                             a   x x x x
                                             b   x x     x

G completions of T tokens behind a prompt of P cost P + G·(T − 1) tokens and not G·(P + T). On a CPU their attention is
computed in parts (`prefix_attention`); elsewhere under a mask, whose cost grows with the square of the sequence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from weakref import WeakSet

import torch
from torch import Tensor, nn

from grpo_core.algorithms.causal_lm import CausalLM, causal_lm
from grpo_core.algorithms.hidden_states import CompletionStates, completion_states
from grpo_core.algorithms.masking import completion_mask
from grpo_core.algorithms.prefix_attention import PackedSequence, attention_over

Pack = tuple[int, ...]
"""Rows of a batch that share a prompt and run as one sequence."""

DROPOUT = ("attention_dropout", "attn_pdrop", "attention_probs_dropout_prob")
"""Names of the attention's dropout in configurations of models."""

_own_attention: WeakSet[nn.Module] = WeakSet()
"""Models with layers that do not call the attention they are told to."""


def can_pack(model: nn.Module) -> bool:
    """Whether the model's attention takes a mask of ours: full attention in every layer, and not a fused kernel."""
    config = causal_lm(model).model.config.get_text_config(decoder=True)
    layers = set(getattr(config, "layer_types", None) or ("full_attention",))
    windowed = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
    return layers == {"full_attention"} and not windowed and config._attn_implementation in ("sdpa", "eager")


def plan_packs(
    prompt_lens: Sequence[int],
    completion_lens: Sequence[int],
    groups: Sequence[int],
    *,
    pair_cost: float,
    max_rows: int | None = None,
    max_tokens: int | None = None,
) -> list[Pack]:
    """Group rows of equal prompt into sequences, as many together as makes the whole cheapest.

    A sequence of S tokens costs S + pair_cost·S² (half of the square for a row alone, whose attention is causal).

    Args:
        prompt_lens: [B].
        completion_lens: [B].
        groups: [B] rows with an equal number share their prompt.
        pair_cost: Cost of one (query, key) pair in units of one token's; 0 packs all, inf packs none.
        max_rows: Rows per sequence at most.
        max_tokens: Tokens per sequence at most, unless a row alone has more.

    Returns:
        Every row once, rows of a group in their order.
    """
    members: dict[int, list[int]] = {}
    for row, group in enumerate(groups):
        members.setdefault(group, []).append(row)
    packs: list[Pack] = []
    for rows in members.values():
        prompt = prompt_lens[rows[0]]
        best = None
        for size in range(1, min(len(rows), max_rows or len(rows)) + 1):
            choice = [tuple(rows[start : start + size]) for start in range(0, len(rows), size)]
            lengths = [prompt + sum(completion_lens[row] - 1 for row in pack) for pack in choice]
            if max_tokens is not None and len(choice) < len(rows) and max(lengths) > max_tokens:
                continue
            if len(choice) == len(rows):
                cost = sum(length + pair_cost * length * length / 2 for length in lengths)
            else:
                cost = sum(length + pair_cost * length * length for length in lengths)
            if best is None or cost < best[0]:
                best = (cost, choice)
        assert best is not None, "a row alone is always allowed"
        packs += best[1]
    return packs


def pair_cost(model: nn.Module) -> float:
    """Cost of one attention pair of a packed sequence relative to one token: 0 in parts, inf for what cannot be packed.

    Under a mask it is 4·layers·width of attention over 2·parameters of the body.
    """
    if not can_pack(model):
        return math.inf
    parts = causal_lm(model)
    if attends_in_parts(parts):
        return 0.0
    config = parts.model.config.get_text_config(decoder=True)
    heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    embedding = sum(parameter.numel() for parameter in parts.model.get_input_embeddings().parameters())
    body = max(1, sum(parameter.numel() for parameter in parts.body.parameters()) - embedding)
    return float(2 * config.num_hidden_layers * heads * head_dim / body)


def attends_in_parts(parts: CausalLM) -> bool:
    """Whether the model's attention can be computed in parts: torch's own, on a CPU, called once in each pass."""
    config = parts.model.config.get_text_config(decoder=True)
    return (
        parts.device.type == "cpu"
        and config._attn_implementation == "sdpa"
        and not any(getattr(config, name, 0.0) for name in DROPOUT)
        and not parts.is_checkpointed
        and parts.model not in _own_attention
    )


def packed_states(
    model: nn.Module, input_ids: Tensor, prompt_lens: Tensor, completion_lens: Tensor, packs: Sequence[Pack]
) -> CompletionStates:
    """The states that `completion_states` gives, each pack computed as one sequence.

    Args:
        model: A model that `can_pack`, unless every pack is one row.
        input_ids: [B, L], right-padded.
        prompt_lens: [B], each at least 1; equal within a pack, and so are the prompts.
        completion_lens: [B], each at least 1.
        packs: Every row once; see `plan_packs`.
    """
    if all(len(pack) == 1 for pack in packs):
        return completion_states(model, input_ids, prompt_lens, completion_lens)
    parts = causal_lm(model)
    prompts, completions = prompt_lens.tolist(), completion_lens.tolist()
    in_parts = _in_parts(parts, input_ids, prompts, completions, packs) if attends_in_parts(parts) else None
    if in_parts is not None:
        hidden, predictors = in_parts  # [R, S, D], [B, T]
    else:
        ids, positions, segments, predictors = _layout(input_ids, prompts, completions, packs)
        mask = _attention_mask(segments, parts)
        hidden = parts.hidden(ids, attention_mask=mask, position_ids=positions, use_cache=False)
    real = completion_mask(completion_lens)  # [B, T]
    states = hidden.flatten(0, 1).index_select(0, predictors[real])
    rows, offsets = real.nonzero(as_tuple=True)
    return CompletionStates(parts, states, input_ids[rows, prompt_lens[rows] + offsets], real)


def _in_parts(
    parts: CausalLM, input_ids: Tensor, prompts: Sequence[int], completions: Sequence[int], packs: Sequence[Pack]
) -> tuple[Tensor, Tensor] | None:
    """Hidden states of all packs as one sequence, and the index of what predicts; None if a layer attends otherwise."""
    sequence = PackedSequence.of(input_ids, prompts, completions, packs)
    config = parts.model.config.get_text_config(decoder=True)
    with attention_over(sequence, config):
        hidden = parts.hidden(sequence.ids, position_ids=sequence.positions, use_cache=False)
    if sequence.attended == config.num_hidden_layers:
        return hidden, sequence.predictors
    _own_attention.add(parts.model)
    return None


def _layout(
    input_ids: Tensor, prompts: Sequence[int], completions: Sequence[int], packs: Sequence[Pack]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Tokens, positions, segments [R, S] (−1 is padding), and the flat index of what predicts each token [B, T].

    Made on the CPU and copied at once: on an accelerator every part of a row would be a kernel of its own.
    """
    width = max(prompts[pack[0]] + sum(completions[row] - 1 for row in pack) for pack in packs)
    length = input_ids.shape[1]
    source, positions, segments = torch.zeros(3, len(packs), width, dtype=torch.int64)  # source: flat index of a token
    segments.fill_(-1)
    predictors = torch.zeros(len(prompts), max(completions), dtype=torch.int64)
    for index, pack in enumerate(packs):
        prompt, at = prompts[pack[0]], prompts[pack[0]]
        positions[index, :prompt] = torch.arange(prompt)
        source[index, :prompt] = positions[index, :prompt] + pack[0] * length
        segments[index, :prompt] = 0
        for segment, row in enumerate(pack, start=1):
            inner = completions[row] - 1
            positions[index, at : at + inner] = torch.arange(prompt, prompt + inner)
            source[index, at : at + inner] = positions[index, at : at + inner] + row * length
            segments[index, at : at + inner] = segment
            predictors[row, 0] = index * width + prompt - 1
            predictors[row, 1 : inner + 1] = torch.arange(at, at + inner) + index * width
            at += inner
    source, positions, segments = torch.stack((source, positions, segments)).to(input_ids.device)
    return input_ids.flatten()[source], positions, segments, predictors.to(input_ids.device)


def _attention_mask(segments: Tensor, parts: CausalLM) -> Tensor:
    """[R, 1, S, S], true where a query (third axis) sees a key; every query sees itself, so that no row is empty."""
    columns = torch.arange(segments.shape[1], device=segments.device)
    causal = columns[:, None] >= columns[None, :]
    prompt_key, same = (segments == 0)[:, None, :], segments[:, :, None] == segments[:, None, :]
    seen = (causal & (prompt_key | same))[:, None]
    if parts.model.config.get_text_config(decoder=True)._attn_implementation == "sdpa":
        return seen
    dtype = parts.model.dtype
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill(~seen, torch.finfo(dtype).min)
