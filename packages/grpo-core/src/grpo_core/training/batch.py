"""Rollouts as tensors.

Rows are right-padded, prompt and completion without a gap, so positions are 0 … n−1 and causal attention needs no
padding mask. With P prompt tokens, C completion tokens and L = max(P + C):

    input_ids        p p p c c c . .      [B, L]
    old_logprobs         c c c . .        [B, T]   T = max(C)
    mask                 1 1 1 0 0        [B, T]

A turn whose prompt goes on from the turn before is in that turn's row: what stands between them, feedback f, is a hole.
Any other turn, as each one of a game, is a row of its own.

    input_ids        p p c c f f c c      completion: c c f f c c
    mask                 1 1 0 0 1 1
    turns_left           1 1 . . 0 0      trained turns of the rollout that come after

`collate` makes a `TokenBatch` of rollouts. What the policy and its reference say of it before the update is a
`Snapshot`. The two with advantages and weights are a `TrainBatch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Self

import torch
from torch import Tensor

from grpo_core.algorithms.packing import Pack, plan_packs
from grpo_core.policy.pass_budget import PassLimits, PassSize
from grpo_core.rollouts.rollout import Rollout


@dataclass(frozen=True, slots=True)
class _Tensors:
    """Tensors of which the first dimension counts the rows; None for what there is not."""

    def _map(self, function: Callable[[str, Tensor], Tensor]) -> Self:
        """The same with a function of (name, tensor) applied to every tensor."""
        changed: dict[str, object] = {}
        for part in fields(self):
            value = getattr(self, part.name)
            if value is not None:
                changed[part.name] = value._map(function) if isinstance(value, _Tensors) else function(part.name, value)
        return replace(self, **changed)


@dataclass(frozen=True, slots=True)
class Snapshot(_Tensors):
    """What the policy and its reference say of a batch before the update; None where nothing asks for it.

    Attributes:
        old_logprobs: [B, T] under the policy that sampled; None while strictly on-policy (they are logp itself).
        ref_logprobs: [B, T] under the reference, where the loss compares with it token by token.
        token_kl: [B, T] estimate of the KL against the reference, where it is part of the reward or only measured.
        token_k3: [B, T] its k3 (or full KL), never negative, which drives a controller of beta.
        old_values: [B, T] of the value head.
        last_values: [B] of the value head after the last token of a row that is cut, 0 elsewhere; None without
            `trainer.gae_bootstrap`.
        policy_mask: [B, T] bool, tokens that the policy loss is restricted to; None for all.
    """

    old_logprobs: Tensor | None = None
    ref_logprobs: Tensor | None = None
    token_kl: Tensor | None = None
    token_k3: Tensor | None = None
    old_values: Tensor | None = None
    last_values: Tensor | None = None
    policy_mask: Tensor | None = None


@dataclass(frozen=True, slots=True)
class TokenBatch(_Tensors):
    """The trained turns of some rollouts.

    Attributes:
        input_ids: [B, L] prompt and completion tokens, right-padded.
        prompt_lens: [B] tokens of the prompt.
        completion_lens: [B] tokens of the completion.
        groups: [B] rows with an equal number answer the same prompt.
        mask: [B, T] true on completion tokens that get a loss.
        sampler_logprobs: [B, T] log-probs that the sampler reported, 0 where there is no token.
        is_cut: [B] true where a rollout ends with this row's last token because the length limit ended it.
        rollouts: [B] index of each row's rollout.
        prompts: [B] rows with an equal number begin with the same prompt.
        turns_left: [B, T] trained turns that come after a token's own in its rollout; None where there is one turn.
    """

    input_ids: Tensor
    prompt_lens: Tensor
    completion_lens: Tensor
    groups: Tensor
    mask: Tensor
    sampler_logprobs: Tensor
    is_cut: Tensor
    rollouts: Tensor
    prompts: Tensor
    turns_left: Tensor | None = None

    def __len__(self) -> int:
        return int(self.input_ids.shape[0])

    @property
    def n_tokens(self) -> int:
        """Sampled tokens."""
        return int(self.completion_lens.sum() if self.turns_left is None else self.mask.sum())

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """What `Policy.states` takes: tokens, and the lengths of prompts and completions."""
        return self.input_ids, self.prompt_lens, self.completion_lens

    def rows(self, index: Tensor) -> Self:
        """Some rows, trimmed to their own longest."""
        prompts, completions = self.prompt_lens[index], self.completion_lens[index]
        length = int((prompts + completions).max()) if len(index) else 0
        tokens = int(completions.max()) if len(index) else 0
        widths = {"input_ids": length}
        return self._map(
            lambda name, tensor: tensor[index] if tensor.dim() == 1 else tensor[index, : widths.get(name, tokens)]
        )

    def to(self, device: torch.device) -> Self:
        """The same on another device; float64 becomes float32 where there is none."""
        narrowed = (torch.float64,) if device.type == "mps" else ()
        return self._map(lambda _, tensor: (tensor.float() if tensor.dtype in narrowed else tensor).to(device))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainBatch(TokenBatch):
    """TokenBatch with all that their update needs.

    Attributes:
        snapshot: What the policy and its reference say of it before the update.
        advantages: [B] or [B, T] float64.
        weights: [B, T] float64 share of each token in the loss of its optimizer step; see `token_weights`.
        returns: [B, T] what the value head learns to predict.
    """

    snapshot: Snapshot
    advantages: Tensor
    weights: Tensor
    returns: Tensor | None = None

    @classmethod
    def of(
        cls, tokens: TokenBatch, snapshot: Snapshot, *, advantages: Tensor, weights: Tensor, returns: Tensor | None
    ) -> TrainBatch:
        """Put the parts together."""
        rows = {part.name: getattr(tokens, part.name) for part in fields(tokens)}
        return cls(**rows, snapshot=snapshot, advantages=advantages, weights=weights, returns=returns)


def collate(rollouts: Sequence[Rollout], *, pad_id: int, mask_truncated: bool) -> TokenBatch:
    """Turn rollouts into rows, in their order.

    Args:
        rollouts: Scored or abstained rollouts.
        pad_id: Token that fills the rows.
        mask_truncated: Leave turns that hit the length limit out of the loss; they stay in every count of rollouts.
    """
    owned = [(index, row) for index, rollout in enumerate(rollouts) for row in _rows(rollout, pad_id, mask_truncated)]
    owners, rows = [index for index, _ in owned], [row for _, row in owned]
    several = len(rows) != len(rollouts) or any(len(rollout.turns) != 1 for rollout in rollouts)
    groups = torch.tensor([rollouts[index].group for index in owners])
    numbers: dict[tuple[int, ...], int] = {}
    prompts = torch.tensor([numbers.setdefault(row.prompt_ids, len(numbers)) for row in rows]) if several else groups
    return TokenBatch(
        input_ids=_padded([torch.tensor([*row.prompt_ids, *row.token_ids]) for row in rows], pad_id),
        prompt_lens=torch.tensor([len(row.prompt_ids) for row in rows]),
        completion_lens=torch.tensor([len(row.token_ids) for row in rows]),
        groups=groups,
        mask=_padded([torch.tensor(row.mask) for row in rows], False),
        sampler_logprobs=_padded([torch.tensor(row.logprobs, dtype=torch.float32) for row in rows], 0.0),
        is_cut=torch.tensor([row.is_cut for row in rows]),
        rollouts=torch.tensor(owners),
        prompts=prompts,
        turns_left=_padded([torch.tensor(row.turns_left) for row in rows], 0) if several else None,
    )


@dataclass(slots=True)
class _Row:
    """A row while it is made; a value per token of the completion."""

    prompt_ids: tuple[int, ...]
    token_ids: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    turns_left: list[int] = field(default_factory=list)
    is_cut: bool = False

    def add(self, token_ids: Sequence[int], logprobs: Sequence[float], *, trained: bool, turns_left: int) -> None:
        self.token_ids += token_ids
        self.logprobs += logprobs
        self.mask += [trained] * len(token_ids)
        self.turns_left += [turns_left] * len(token_ids)

    @property
    def ids(self) -> tuple[int, ...]:
        return (*self.prompt_ids, *self.token_ids)


def _rows(rollout: Rollout, pad_id: int, mask_truncated: bool) -> list[_Row]:
    """The rows of a rollout: one for each run of turns that go on from one another."""
    rows: list[_Row] = []
    left = sum(turn.trained for turn in rollout.turns)
    for turn in rollout.turns:
        left -= turn.trained
        before = rows[-1].ids if rows else ()
        if rows and turn.prompt_ids[: len(before)] == before:
            feedback = turn.prompt_ids[len(before) :]
            rows[-1].add(feedback, [0.0] * len(feedback), trained=False, turns_left=0)
        else:
            rows.append(_Row(turn.prompt_ids))
        completion = turn.completion
        counts = turn.trained and not (mask_truncated and completion.finish_reason == "length")
        rows[-1].add(completion.token_ids, completion.logprobs, trained=counts, turns_left=left)
        is_last = turn is rollout.turns[-1]
        rows[-1].is_cut = is_last and counts and completion.finish_reason == "length"
    if not rows:  # a seat that the game never reached: it is counted and teaches nothing
        rows = [_Row((pad_id,))]
        rows[0].add([pad_id], [0.0], trained=False, turns_left=0)
    return rows


def _padded(rows: Sequence[Tensor], value: float) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=value)


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Rows for one forward pass.

    Attributes:
        rows: Indices into the batch, [M].
        packs: The same rows by position, 0 … M−1, in sequences that share a prompt; see `packing`.
        size: What the pass takes.
    """

    rows: Tensor
    packs: tuple[Pack, ...]
    size: PassSize


def micro_batches(batch: TokenBatch, limits: PassLimits, pair_cost: float) -> Iterator[MicroBatch]:
    """Split a batch into forward passes: sequences of similar length together, so that little is padding.

    Whole prompts go together in the order drawn, by group number, so that rows left out of `batch` move no other prompt
    into another micro-batch.

    Args:
        batch: The rows of one optimizer step.
        limits: How large a pass may be; a sequence of more tokens goes alone.
        pair_cost: Cost of attention, as for `packing.plan_packs`; inf runs every row by itself.
    """
    groups = batch.groups.tolist()
    lens, completions = batch.prompt_lens.tolist(), batch.completion_lens.tolist()
    by_tokens = limits.rows is None and limits.prompts is None
    packs = plan_packs(
        lens,
        completions,
        batch.prompts.tolist(),
        pair_cost=pair_cost,
        max_rows=limits.rows,
        max_tokens=limits.tokens if by_tokens else None,
    )
    lengths = {pack: lens[pack[0]] + sum(completions[row] for row in pack) for pack in packs}

    def micro_batch(chosen: Sequence[Pack]) -> MicroBatch:
        rows = [row for pack in chosen for row in pack]
        places = iter(range(len(rows)))
        tokens = len(chosen) * max(lengths[pack] for pack in chosen)
        size = PassSize(len(rows), tokens, len({groups[row] for row in rows}))
        return MicroBatch(torch.tensor(rows), tuple(tuple(next(places) for _ in pack) for pack in chosen), size)

    if limits.prompts is not None:
        together: dict[int, list[Pack]] = {}
        for pack in packs:
            together.setdefault(groups[pack[0]] // limits.prompts, []).append(pack)
        yield from map(micro_batch, together.values())
        return
    chosen: list[Pack] = []
    width = 0
    for pack in sorted(packs, key=lambda pack: (-lengths[pack], pack)):
        rows = sum(map(len, chosen)) + len(pack)
        full = (len(chosen) + 1) * width > limits.tokens if limits.rows is None else rows > limits.rows
        if chosen and full:
            yield micro_batch(chosen)
            chosen = []
        width = width if chosen else lengths[pack]
        chosen.append(pack)
    if chosen:
        yield micro_batch(chosen)
