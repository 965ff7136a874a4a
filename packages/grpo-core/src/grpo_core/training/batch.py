"""Rollouts as tensors.

Rows are right-padded, prompt and completion without a gap, so positions are 0 … n−1 and causal attention needs no
padding mask. With P prompt tokens, C completion tokens and L = max(P + C):

    input_ids        p p p c c c . .      [B, L]
    old_logprobs         c c c . .        [B, T]   T = max(C)
    mask                 1 1 1 0 0        [B, T]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from grpo_core.algorithms.packing import Pack, plan_packs
from grpo_core.rollout import Rollout


@dataclass(frozen=True, slots=True)
class TrainBatch:
    """The trained turns of some rollouts.

    Attributes:
        input_ids: [B, L] prompt and completion tokens, right-padded.
        prompt_lens: [B] tokens of the prompt.
        completion_lens: [B] tokens of the completion.
        groups: [B] rows with an equal number answer the same prompt.
        mask: [B, T] true on completion tokens that get a loss.
        advantages: [B] or [B, T] float64.
        weights: [B, T] float64 share of each token in the loss of its optimizer step; see `token_weights`.
        sampler_logprobs: [B, T] log-probs that the sampler reported, 0 where there is no token.
        old_logprobs: [B, T] under the policy that sampled; None while strictly on-policy (they are logp itself).
        ref_logprobs: [B, T] under the reference; None where nothing compares with it token by token.
        token_kl: [B, T] estimate of the KL against the reference, where it is part of the reward.
        token_k3: [B, T] its k3 (or full KL), never negative, which drives a controller of beta.
        old_values: [B, T] of the value head before the update.
        returns: [B, T] what the value head learns to predict.
        policy_mask: [B, T] bool, tokens that the policy loss is restricted to; None for all.
    """

    input_ids: Tensor
    prompt_lens: Tensor
    completion_lens: Tensor
    groups: Tensor
    mask: Tensor
    advantages: Tensor
    weights: Tensor
    sampler_logprobs: Tensor
    old_logprobs: Tensor | None = None
    ref_logprobs: Tensor | None = None
    token_kl: Tensor | None = None
    token_k3: Tensor | None = None
    old_values: Tensor | None = None
    returns: Tensor | None = None
    policy_mask: Tensor | None = None

    def __len__(self) -> int:
        return int(self.input_ids.shape[0])

    def rows(self, index: Tensor) -> TrainBatch:
        """Some rows, trimmed to their own longest."""
        prompts, completions = self.prompt_lens[index], self.completion_lens[index]
        length = int((prompts + completions).max()) if len(index) else 0
        tokens = int(completions.max()) if len(index) else 0
        picked: dict[str, Tensor | None] = {}
        for field in fields(self):
            tensor = getattr(self, field.name)
            if tensor is None or tensor.dim() == 1:
                picked[field.name] = None if tensor is None else tensor[index]
            else:
                picked[field.name] = tensor[index, : length if field.name == "input_ids" else tokens]
        return TrainBatch(**picked)  # type: ignore[arg-type] # every field is there, by construction

    def to(self, device: torch.device) -> TrainBatch:
        """The same batch on another device; float64 becomes float32 where there is none."""
        moved: dict[str, Tensor | None] = {}
        for field in fields(self):
            tensor = getattr(self, field.name)
            if tensor is not None and device.type == "mps" and tensor.dtype == torch.float64:
                tensor = tensor.float()
            moved[field.name] = None if tensor is None else tensor.to(device)
        return TrainBatch(**moved)  # type: ignore[arg-type] # every field is there, by construction


def collate(rollouts: Sequence[Rollout], *, pad_id: int, mask_truncated: bool) -> TrainBatch:
    """Make one batch of single-turn rollouts, in their order; its advantages are still 0.

    Args:
        rollouts: Scored or abstained rollouts.
        pad_id: Token that fills the rows.
        mask_truncated: Leave completions that hit the length limit out of the loss; they stay in every row count.
    """
    turns = [rollout.turns[-1] for rollout in rollouts]
    sequences = [torch.tensor(turn.prompt_ids + turn.completion.token_ids) for turn in turns]
    logprobs = [torch.tensor(turn.completion.logprobs, dtype=torch.float32) for turn in turns]
    completion_lens = torch.tensor([len(turn.completion.token_ids) for turn in turns])
    tokens = int(completion_lens.max()) if turns else 0
    mask = torch.arange(tokens)[None, :] < completion_lens[:, None]
    if mask_truncated:
        truncated = torch.tensor([turn.completion.finish_reason == "length" for turn in turns])
        mask = mask & ~truncated[:, None]
    return TrainBatch(
        input_ids=torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True, padding_value=pad_id),
        prompt_lens=torch.tensor([len(turn.prompt_ids) for turn in turns]),
        completion_lens=completion_lens,
        groups=torch.tensor([rollout.group for rollout in rollouts]),
        mask=mask,
        advantages=torch.zeros(len(turns), dtype=torch.float64),
        weights=torch.zeros(mask.shape, dtype=torch.float64),
        sampler_logprobs=torch.nn.utils.rnn.pad_sequence(logprobs, batch_first=True),
    )


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Rows for one forward pass.

    Attributes:
        rows: Indices into the batch, [M].
        packs: The same rows by position, 0 … M−1, in sequences that share a prompt; see `packing`.
    """

    rows: Tensor
    packs: tuple[Pack, ...]


def micro_batches(
    batch: TrainBatch, *, pair_cost: float, max_rows: int | None, max_tokens: int, prompts: int | None = None
) -> Iterator[MicroBatch]:
    """Split a batch into forward passes: sequences of similar length together, so that little is padding.

    Args:
        batch: The rows of one optimizer step.
        pair_cost: See `packing.plan_packs`; inf runs every row by itself.
        max_rows: Rows per micro-batch; None fills it by tokens.
        max_tokens: Padded tokens per micro-batch where `max_rows` is None; a longer sequence goes alone.
        prompts: Whole prompts per micro-batch, in place of the other limits, in the order drawn: by group number, so
            that rows left out of `batch` move no other prompt into another micro-batch.
    """
    groups = batch.groups.tolist()
    lens, completions = batch.prompt_lens.tolist(), batch.completion_lens.tolist()
    by_tokens = max_rows is None and prompts is None
    packs = plan_packs(
        lens,
        completions,
        groups,
        pair_cost=pair_cost,
        max_rows=max_rows,
        max_tokens=max_tokens if by_tokens else None,
    )
    if prompts is not None:
        together: dict[int, list[Pack]] = {}
        for pack in packs:
            together.setdefault(groups[pack[0]] // prompts, []).append(pack)
        yield from map(_micro_batch, together.values())
        return
    lengths = [lens[pack[0]] + sum(completions[row] for row in pack) for pack in packs]
    longest_first = sorted(range(len(packs)), key=lambda index: (-lengths[index], packs[index]))
    chosen: list[Pack] = []
    width = 0
    for index in longest_first:
        rows = sum(map(len, chosen)) + len(packs[index])
        full = rows > max_rows if max_rows is not None else (len(chosen) + 1) * width > max_tokens
        if chosen and full:
            yield _micro_batch(chosen)
            chosen = []
        width = width if chosen else lengths[index]
        chosen.append(packs[index])
    if chosen:
        yield _micro_batch(chosen)


def _micro_batch(packs: Sequence[Pack]) -> MicroBatch:
    rows = [row for pack in packs for row in pack]
    places = iter(range(len(rows)))
    return MicroBatch(torch.tensor(rows), tuple(tuple(next(places) for _ in pack) for pack in packs))
