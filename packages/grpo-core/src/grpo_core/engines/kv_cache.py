"""Keys and values of prompts, stored once each, and of the completions that share them.

Example: two prompts, three rows (completions) of the first and one of the second, after three decoded tokens:

    prompts  [P, KV, L, D]           p0 p0 p0 p0 p0        completions  [A, KV, T, D]   a a a .   (continues prompt 0)
    (right-padded; padding is        p1 p1 p1 -- --        (room for T tokens, grown    b b b .   (continues prompt 0)
    masked by length)                                      by doubling)                 c c c .   (continues prompt 0)
                                                                                        d d d .   (continues prompt 1)

A row or prompt that is done is overwritten by the last one (one row is copied, not the batch), so the alive ones are
always the first `rows` and the first `prompts`. To attend to a prompt without copying it per row, the queries, which
are tiny, are moved to slots [P, G] (G = most rows of one prompt): slots 0..2 hold a, b, c and slot 3 holds d.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from grpo_core.engines.compatibility import INSTEAD
from grpo_sdk.errors import UserError

Item = TypeVar("Item")

INITIAL_TOKENS = 32
"""Room a completion starts with; doubling from here wastes at most half and copies each token at most about once."""


class Layout:
    """Layout of the batch, the same for every layer: the rows that are alive and the prompt of each.

    Attributes:
        prompt_lens: Length of each alive prompt.
        prompt_of: Index of each alive row's prompt.
        decoded: Tokens per row in the completion part, the one being decoded included.
        longest_prompt: L, the longest alive prompt.
        slots_per_prompt: G, the most rows of one prompt.
        padding: [P, L] bool, true where a shorter prompt has padding; None if all are of one length.
    """

    def __init__(self, prompt_lens: Sequence[int], device: torch.device) -> None:
        self.prompt_lens = list(prompt_lens)
        self.prompt_of: list[int] = []
        self.decoded = 0
        self._device = device
        self._arrange()

    def start(self, prompt_of: Sequence[int]) -> None:
        """Begin decoding, with one row for each element."""
        self.prompt_of = list(prompt_of)
        self._arrange()

    def drop(self, dead: Sequence[int]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Forget the rows `dead` and the prompts that nobody continues.

        Returns:
            The moves (from, to) that fill the holes: of rows, and of prompts.
        """
        row_moves = moves_that_fill(dead, len(self.prompt_of))
        fill(self.prompt_of, row_moves, len(dead))
        alive = set(self.prompt_of)
        unused = [prompt for prompt in range(len(self.prompt_lens)) if prompt not in alive]
        prompt_moves = moves_that_fill(unused, len(self.prompt_lens))
        fill(self.prompt_lens, prompt_moves, len(unused))
        renamed = dict(prompt_moves)
        self.prompt_of = [renamed.get(prompt, prompt) for prompt in self.prompt_of]
        self._arrange()
        return row_moves, prompt_moves

    @property
    def rows(self) -> int:
        """Rows alive."""
        return len(self.prompt_of)

    @property
    def prompts(self) -> int:
        """Prompts alive."""
        return len(self.prompt_lens)

    def _arrange(self) -> None:
        self.longest_prompt = max(self.prompt_lens, default=0)
        self.slots_per_prompt = max(Counter(self.prompt_of).values(), default=0)
        row_of_slot = [0] * (self.prompts * self.slots_per_prompt)  # an empty slot computes row 0 again, for nobody
        slot_of_row = []
        used = [0] * self.prompts
        for row, prompt in enumerate(self.prompt_of):
            slot = prompt * self.slots_per_prompt + used[prompt]
            used[prompt] += 1
            row_of_slot[slot] = row
            slot_of_row.append(slot)
        self._in_place = slot_of_row == list(range(len(row_of_slot)))
        self._row_of_slot = torch.tensor(row_of_slot, device=self._device)
        self._slot_of_row = torch.tensor(slot_of_row, device=self._device)
        self.padding: Tensor | None = None
        if any(length < self.longest_prompt for length in self.prompt_lens):
            lengths = torch.tensor(self.prompt_lens, device=self._device)
            self.padding = torch.arange(self.longest_prompt, device=self._device) >= lengths[:, None]

    def to_slots(self, x: Tensor) -> Tensor:
        """[A, KV, R, *] of rows -> [P, KV, G * R, *], so that one pass over a prompt's keys serves all its rows."""
        if not self._in_place:
            x = x.index_select(0, self._row_of_slot)
        blocks: Tensor = x.unflatten(0, (self.prompts, self.slots_per_prompt))
        return blocks.transpose(1, 2).flatten(2, 3)

    def to_rows(self, x: Tensor) -> Tensor:
        """Undo `to_slots`: [P, KV, G * R, *] -> [A, KV, R, *]."""
        x = x.unflatten(2, (self.slots_per_prompt, -1)).transpose(1, 2).flatten(0, 1)
        return x if self._in_place else x.index_select(0, self._slot_of_row)


class SharedPrefixLayer:
    """Keys and values of one attention layer."""

    def __init__(self, layout: Layout, max_tokens: int) -> None:
        self._layout = layout
        self._max_tokens = max_tokens
        self._prompts: tuple[Tensor, Tensor] | None = None
        self._completions: tuple[Tensor, Tensor] | None = None

    def store_prompts(self, first: int, at: int, keys: Tensor, values: Tensor) -> None:
        """Keep keys and values [p, KV, l, D] of prompts `first` to `first + p`, of their tokens from `at` on."""
        shape = (self._layout.prompts, keys.shape[1], self._layout.longest_prompt)
        if self._prompts is None:
            # Zeros, because padding is multiplied by a probability of 0 and what empty memory holds may be NaN.
            self._prompts = (keys.new_zeros(*shape, keys.shape[-1]), values.new_zeros(*shape, values.shape[-1]))
        for stored, new in zip(self._prompts, (keys, values), strict=True):
            stored[first : first + new.shape[0], :, at : at + new.shape[2]] = new

    def spread(self, tokens: int) -> None:
        """Give all prompts the first tokens of the first one."""
        for stored in self._prompts or ():
            stored[1:, :, :tokens] = stored[:1, :, :tokens]

    def store_tokens(self, keys: Tensor, values: Tensor) -> None:
        """Keep keys and values [A, KV, 1, D] of the token being decoded."""
        if self._completions is None:
            room = min(INITIAL_TOKENS, self._max_tokens)
            self._completions = (_room_for(keys, room), _room_for(values, room))
        elif self._layout.decoded > self._completions[0].shape[2]:
            keys_before, values_before = self._completions
            self._completions = (self._grown(keys_before), self._grown(values_before))
        at = self._layout.decoded - 1
        for stored, new in zip(self._completions, (keys, values), strict=True):
            stored[: new.shape[0], :, at] = new[:, :, 0]

    def prompts(self) -> tuple[Tensor, Tensor]:
        """Keys and values [P, KV, L, D] of the alive prompts, as views."""
        assert self._prompts is not None, "prefill stores prompts before anything is decoded"
        count, length = self._layout.prompts, self._layout.longest_prompt
        keys, values = self._prompts
        return keys[:count, :, :length], values[:count, :, :length]

    def tokens(self) -> tuple[Tensor, Tensor]:
        """Keys and values [A, KV, T, D] of the alive rows' decoded tokens, as views."""
        assert self._completions is not None, "store_tokens comes before tokens"
        rows, decoded = self._layout.rows, self._layout.decoded
        keys, values = self._completions
        return keys[:rows, :, :decoded], values[:rows, :, :decoded]

    def move(self, rows: Sequence[tuple[int, int]], prompts: Sequence[tuple[int, int]]) -> None:
        """Copy rows and prompts (from, to) over those that are done."""
        for tensors, moves in ((self._completions, rows), (self._prompts, prompts)):
            for stored in tensors or ():
                for source, target in moves:
                    stored[target] = stored[source]

    def _grown(self, stored: Tensor) -> Tensor:
        used = stored.shape[2]
        alive = stored[: self._layout.rows]
        larger = _room_for(alive, min(2 * used, self._max_tokens))
        larger[:, :, :used] = alive
        return larger


class SharedPrefixCache(Cache):
    """One `SharedPrefixLayer` for each attention layer, made as the model first calls it.

    Attributes:
        layout: Rows and prompts alive.
        current: The layer whose keys and values came last: the attention function, called next, reads it.
        updated: Layers that stored keys and values since `begin_*`.
        attended: Layers that went through our attention function since `begin_*`.
        common: Tokens that all prompts begin with and that have been read, once for all.
    """

    def __init__(self, prompt_lens: Sequence[int], max_tokens: int, device: torch.device) -> None:
        super().__init__(layers=[])  # the base class's own layers stay empty: ours keep two parts each
        self.layout = Layout(prompt_lens, device)
        self.current: SharedPrefixLayer | None = None
        self.updated = self.attended = 0
        self._max_tokens = max_tokens
        self._shared: list[SharedPrefixLayer] = []
        self._prefill_first: int | None = None
        self.common = 0

    @property
    def prefilling(self) -> bool:
        """Whether prompts are being read, not completions decoded."""
        return self._prefill_first is not None

    def being_read(self, prompts: int, tokens: int) -> tuple[Tensor, Tensor]:
        """Keys and values [p, KV, common + l, D] of the prompts being read, with `tokens` behind the common ones."""
        assert self.current is not None and self._prefill_first is not None, (
            "a layer updates the cache before it attends"
        )
        at = slice(self._prefill_first, self._prefill_first + prompts)
        keys, values = (part[at, :, : self.common + tokens] for part in self.current.prompts())
        return keys, values

    def begin_prefill(self, first_prompt: int) -> None:
        """Say that the next forward reads prompts from `first_prompt` on."""
        self._prefill_first = first_prompt
        self.updated = self.attended = 0

    def spread(self, tokens: int) -> None:
        """Take the first tokens of the first prompt, which have been read, as those of all."""
        for layer in self._shared:
            layer.spread(tokens)
        self.common = tokens

    def begin_step(self) -> None:
        """Say that the next forward decodes one token of every alive row."""
        self._prefill_first = None
        self.updated = self.attended = 0
        self.layout.decoded += 1

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store new keys and values and return them as they are; the attention function finds the rest."""
        while len(self._shared) <= layer_idx:
            self._shared.append(SharedPrefixLayer(self.layout, self._max_tokens))
        self.current = self._shared[layer_idx]
        self.updated += 1
        key_states, value_states = in_autocast_type(key_states), in_autocast_type(value_states)
        if self._prefill_first is None:
            self.current.store_tokens(key_states, value_states)
        else:
            self.current.store_prompts(self._prefill_first, self.common, key_states, value_states)
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the tokens of the longest row (for models that ask; positions are always given to them)."""
        return self.layout.longest_prompt + self.layout.decoded

    def drop(self, dead: Sequence[int]) -> list[tuple[int, int]]:
        """Forget rows, and the prompts that nobody continues; return the rows' moves, for others to follow."""
        rows, prompts = self.layout.drop(dead)
        for layer in self._shared:
            layer.move(rows, prompts)
        return rows

    def row(self, row: int, tokens: int) -> Iterator[list[tuple[Tensor, Tensor]]]:
        """Keys and values [1, KV, l, D] of a row's prompt and of its first decoded tokens, for each layer."""
        prompt = self.layout.prompt_of[row]
        length = self.layout.prompt_lens[prompt]
        for layer in self._shared:
            keys, values = layer.prompts()
            parts = [(keys[prompt : prompt + 1, :, :length], values[prompt : prompt + 1, :, :length])]
            if tokens:
                keys, values = layer.tokens()
                parts.append((keys[row : row + 1, :, :tokens], values[row : row + 1, :, :tokens]))
            yield parts

    def prompts(self) -> list[tuple[Tensor, Tensor]]:
        """Keys and values [P, KV, L, D] of the alive prompts, as views, for each layer."""
        return [layer.prompts() for layer in self._shared]

    def clear(self) -> None:
        """Give the memory of keys and values back; nothing can be decoded after it."""
        self._shared.clear()
        self.current = None

    def check_complete(self, model_name: str) -> None:
        """Refuse a model of which some layer went another way, after a forward.

        Raises:
            UserError: a layer shares another's keys, keeps no keys here, or does not use our attention.
        """
        check_complete(model_name, len(self._shared), self.updated, self.attended)


def check_complete(model_name: str, layers: int, updated: int, attended: int) -> None:
    """Refuse a model of which some layer did not store its keys, or not attend to what is stored, in one pass."""
    if not updated == attended == layers > 0:
        raise UserError(
            f"the native engine cannot sample from {model_name}: of its {layers} caching layers, "
            f"{updated} stored keys and {attended} used the shared-prompt attention in one pass. "
            f"{INSTEAD}"
        )


def in_autocast_type(part: Tensor) -> Tensor:
    """Keys or values as attention takes them: rotations widen keys under autocast, as attention does not."""
    device = part.device.type
    return part.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else part


def moves_that_fill(dead: Sequence[int], length: int) -> list[tuple[int, int]]:
    """Return moves (from, to) of the last alive of `length` into the holes `dead`, so that the alive come first.

    Example: `moves_that_fill([0, 3], 5) == [(4, 0)]`: of 0..4, hole 0 takes 4, and hole 3 is cut off with the tail.
    """
    gone = set(dead)
    kept = length - len(gone)
    holes = sorted(hole for hole in gone if hole < kept)
    tail = [index for index in range(length - 1, kept - 1, -1) if index not in gone]
    return list(zip(tail, holes, strict=True))


def fill(items: list[Item], moves: Sequence[tuple[int, int]], dropped: int) -> None:
    """Apply `moves` to a list and cut off the `dropped` items at its end."""
    for source, target in moves:
        items[target] = items[source]
    del items[len(items) - dropped :]


def _room_for(like: Tensor, tokens: int) -> Tensor:
    rows, kv, _, width = like.shape
    return like.new_empty(rows, kv, tokens, width)
