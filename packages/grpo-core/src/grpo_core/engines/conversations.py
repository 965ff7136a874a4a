"""Keys and values of conversations, which stay between their turns, and passes that read new tokens behind them.

A conversation has a slot of a shelf; slots of a shelf have one capacity, so that a row that grows out of it moves:

    shelf of 96    slot 0  a a a a a a . .      One pass reads new tokens of any rows, side by side without padding:
    [S, KV, 96, D] slot 1  b b b b . . . .
                   slot 2  (free)                   a  b  d  e e e e e e e
    shelf of 128   slot 0  d d d d d d d d .
    [S, KV, 128, D]slot 1  e e .                one decoded token of a, b and d, and a prompt's seven of e

Decoded tokens of neighbours in a shelf are a `Run`, attended to in one operation; a prompt's are a `Span` of its own.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from grpo_core.engines.kv_cache import check_complete, in_autocast_type
from grpo_core.engines.static_cache import MIN_TOKENS, bucket

CALL_TOKENS = 256
"""Keys that take as long to read as an operation of its own takes to begin: more padding than that is not worth it."""

KeysValues = tuple[Tensor, Tensor]


class Shelf:
    """Slots of one capacity in tokens.

    Attributes:
        capacity: C.
        layers: Keys and values [S, KV, C, D] of each layer.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.layers: list[KeysValues] = []
        self._slots = 0
        self._free: list[int] = []

    def take(self) -> int:
        """A slot, the first that is free."""
        if self._free:
            return heapq.heappop(self._free)
        self._slots += 1
        return self._slots - 1

    def give_back(self, slot: int) -> None:
        """Free a slot; the memory is given back with the last one."""
        heapq.heappush(self._free, slot)
        if len(self._free) == self._slots:
            self.layers, self._free, self._slots = [], [], 0

    def layer(self, index: int, like: KeysValues) -> KeysValues:
        """Keys and values of a layer, with room for every slot that was taken; of the shape [*, KV, *, D] of `like`."""
        while len(self.layers) <= index:
            empty = [part.new_empty(0, part.shape[1], self.capacity, part.shape[3]) for part in like]
            self.layers.append((empty[0], empty[1]))
        if len(self.layers[index][0]) < self._slots:
            keys, values = self.layers[index]
            self.layers[index] = self._grown(keys), self._grown(values)
        return self.layers[index]

    def write(self, slot: int, index: int, at: int, new: KeysValues) -> None:
        """Keep keys and values [1, KV, n, D] of a layer from token `at` on."""
        for stored, part in zip(self.layer(index, new), new, strict=True):
            stored[slot, :, at : at + part.shape[2]] = part[0]

    def _grown(self, stored: Tensor) -> Tensor:
        with torch.inference_mode(False):  # what is kept is written to outside of it, too
            # Zeros, because padding is multiplied by a probability of 0 and what empty memory holds may be NaN.
            larger = stored.new_zeros(bucket(self._slots), *stored.shape[1:])
        larger[: len(stored)] = stored
        return larger


@dataclass(slots=True, eq=False)
class Conversation:
    """A sequence whose keys and values are kept.

    Attributes:
        name: None for one that is over with its completion.
        shelf: Where it is.
        slot: Its place there.
        tokens: Those that have keys and values.
    """

    name: str | None
    shelf: Shelf
    slot: int
    tokens: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Run:
    """Rows side by side in a shelf that read one token each.

    Attributes:
        shelf: Where their keys and values are.
        slots: Their slots.
        tokens: Their tokens in the pass.
        seen: T, tokens of the longest, the new one included.
        padding: [rows, T] bool, true behind the last token of a shorter row; None if all are of one length.
    """

    shelf: Shelf
    slots: slice
    tokens: slice
    seen: int
    padding: Tensor | None


@dataclass(frozen=True, slots=True)
class Span:
    """Several new tokens of one row.

    Attributes:
        shelf: Where its keys and values are.
        slot: Its slot.
        tokens: Its tokens in the pass.
        past: Tokens before them.
        seen: L, tokens with them.
        visible: [n, L] bool, which tokens each new one sees; None if there are none before them.
    """

    shelf: Shelf
    slot: int
    tokens: slice
    past: int
    seen: int
    visible: Tensor | None


@dataclass(slots=True)
class PromptTokens:
    """Tokens of the prompts of conversations.

    Attributes:
        reused: Those whose keys and values were there.
        read: The others.
    """

    reused: int = 0
    read: int = 0


class ConversationCache(Cache):
    """The conversations that are kept, least recently used first, and those being sampled.

    Attributes:
        max_tokens: Most tokens that slots have room for; kept conversations leave to make room for others.
        wanted: Names of conversations that leave last, since what is being sampled goes on with them.
        held: Tokens that taken slots have room for.
        runs: Of the pass that comes next.
        spans: Of that pass.
        current: The layer whose keys and values came last.
        attended: Layers that went through our attention in a pass.
    """

    def __init__(self, max_tokens: int, device: torch.device) -> None:
        super().__init__(layers=[])  # the base class's own layers stay empty: shelves have ours
        self.max_tokens, self._device = max_tokens, device
        self.wanted: frozenset[str] = frozenset()
        self.held = 0
        self.runs: list[Run] = []
        self.spans: list[Span] = []
        self.current = self.updated = self.attended = 0
        self._writes: list[tuple[Shelf, Tensor, Tensor, slice]] = []
        self._kept: dict[str, Conversation] = {}
        self._shelves: dict[int, Shelf] = {}

    # --- conversations

    def known(self, name: str | None, prompt_ids: Sequence[int]) -> int:
        """Tokens of a prompt that need not be read; the last one always is, since what it predicts is not kept."""
        kept = None if name is None else self._kept.get(name)
        if kept is None:
            return 0
        most = min(len(kept.tokens), len(prompt_ids) - 1)
        return next((at for at in range(most) if kept.tokens[at] != prompt_ids[at]), most)

    def open(self, name: str | None, prompt_ids: Sequence[int], room: int) -> Conversation:
        """Go on with what is kept under a name, as far as the prompt begins with it, or begin.

        Args:
            name: Name of the conversation.
            prompt_ids: Its prompt.
            room: Tokens of prompt and completion.
        """
        past = self.known(name, prompt_ids)
        kept = None if name is None else self._kept.pop(name, None)
        if kept is not None:
            del kept.tokens[past:]
            if kept.shelf.capacity >= room:
                return kept
        opened = self._placed(name, room)
        if kept is not None:
            self.copy(kept, opened, past)
            self.close(kept)
        return opened

    def copy(self, source: Conversation, target: Conversation, tokens: int) -> None:
        """Keep the first tokens of a conversation in another one, too."""
        at = slice(source.slot, source.slot + 1)
        for index, (keys, values) in enumerate(source.shelf.layers):
            target.shelf.write(target.slot, index, 0, (keys[at, :, :tokens], values[at, :, :tokens]))
        target.tokens = source.tokens[:tokens]

    def add(self, name: str, tokens: list[int], layers: Iterable[Sequence[KeysValues]]) -> None:
        """Keep what was computed elsewhere, if there is room without those that are wanted.

        Args:
            name: Name of the conversation.
            tokens: Its tokens.
            layers: For each layer keys and values [1, KV, l, D] of the parts that follow each other.
        """
        if (old := self._kept.pop(name, None)) is not None:
            self.close(old)
        if not self._make_room(bucket(len(tokens), MIN_TOKENS), self._unwanted()):
            return
        added = self._placed(name, len(tokens))
        for index, parts in enumerate(layers):
            at = 0
            for part in parts:
                added.shelf.write(added.slot, index, at, part)
                at += part[0].shape[2]
        added.tokens = tokens
        self._kept[name] = added

    def keep(self, conversation: Conversation) -> None:
        """Keep one whose completion is over; one without a name leaves, and so does an older one of its name."""
        if conversation.name is None:
            self.close(conversation)
            return
        if (old := self._kept.pop(conversation.name, None)) is not None:
            self.close(old)
        self._kept[conversation.name] = conversation
        self._make_room(0, [*self._unwanted(), *reversed(self._kept)])

    def close(self, conversation: Conversation) -> None:
        """Forget one that is not among the kept."""
        conversation.shelf.give_back(conversation.slot)
        self.held -= conversation.shelf.capacity

    def clear(self) -> bool:
        """Forget the kept ones; False if there were none."""
        had = bool(self._kept)
        while self._kept:
            self.close(self._kept.popitem()[1])
        return had

    def _placed(self, name: str | None, room: int) -> Conversation:
        capacity = bucket(room, MIN_TOKENS)
        self._make_room(capacity, [*self._unwanted(), *reversed(self._kept)])
        shelf = self._shelves.setdefault(capacity, Shelf(capacity))
        self.held += capacity
        return Conversation(name, shelf, shelf.take())

    def _unwanted(self) -> list[str]:
        return [name for name in self._kept if name not in self.wanted]

    def _make_room(self, tokens: int, leaving: Iterable[str]) -> bool:
        """Let kept conversations leave, in this order, until so many tokens fit; whether they do."""
        for name in leaving:
            if self.held + tokens <= self.max_tokens:
                break
            if name in self._kept:
                self.close(self._kept.pop(name))
        return self.held + tokens <= self.max_tokens

    # --- a pass

    def begin(self, feeds: Sequence[tuple[Conversation, Sequence[int]]]) -> tuple[Tensor, Tensor, Tensor]:
        """Say that the next forward reads new tokens of some conversations.

        Returns:
            Tokens [1, N], their positions [1, N], and of each conversation the index of its last one, [A].
        """
        order = sorted(range(len(feeds)), key=lambda index: _place(*feeds[index]))
        ids: list[int] = []
        positions: list[int] = []
        ends = [0] * len(feeds)
        self.runs, self.spans, self._writes = [], [], []
        singles: list[Conversation] = []
        for index in order:
            conversation, new = feeds[index]
            past, start = len(conversation.tokens), len(ids)
            ids += new
            positions += range(past, past + len(new))
            ends[index] = len(ids) - 1
            if len(new) == 1:
                singles.append(conversation)
            else:
                seen, tokens = past + len(new), slice(start, len(ids))
                visible = torch.ones(len(new), seen, dtype=torch.bool, device=self._device).tril(past) if past else None
                self.spans.append(Span(conversation.shelf, conversation.slot, tokens, past, seen, visible))
            conversation.tokens += new
        self._arrange(singles)
        self.current = self.updated = self.attended = 0
        places = (torch.tensor(each, device=self._device) for each in ([ids], [positions], ends))
        return next(places), next(places), next(places)

    def _arrange(self, singles: Sequence[Conversation]) -> None:
        """Make runs of rows that read one token each, sorted by their places."""
        start = 0
        for shelf, members in groupby(singles, key=lambda conversation: conversation.shelf):
            rows = list(members)
            where = [[row.slot for row in rows], [len(row.tokens) - 1 for row in rows]]
            slots, at = torch.tensor(where, device=self._device)
            self._writes.append((shelf, slots, at, slice(start, start + len(rows))))
            for run in _runs(rows):
                first, lens = run[0].slot, [len(row.tokens) for row in run]
                seen, padding = max(lens), None
                if min(lens) < seen:
                    padding = (
                        torch.arange(seen, device=self._device) >= torch.tensor(lens, device=self._device)[:, None]
                    )
                tokens = slice(start, start + len(run))
                self.runs.append(Run(shelf, slice(first, first + len(run)), tokens, seen, padding))
                start += len(run)

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store new keys and values [1, KV, N, D] and return them as they are; the attention finds the rest."""
        self.current = layer_idx
        self.updated += 1
        new = in_autocast_type(key_states), in_autocast_type(value_states)
        for shelf, slots, at, tokens in self._writes:
            for stored, part in zip(shelf.layer(layer_idx, new), new, strict=True):
                stored[slots, :, at] = part[0, :, tokens].transpose(0, 1)
        for span in self.spans:
            keys, values = (part[:, :, span.tokens] for part in new)
            span.shelf.write(span.slot, layer_idx, span.past, (keys, values))
        return new

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the tokens of the longest row (for models that ask; positions are always given to them)."""
        return max([run.seen for run in self.runs] + [span.seen for span in self.spans])

    def check_complete(self, model_name: str) -> None:
        """Refuse a model of which some layer went another way; see `kv_cache.check_complete`."""
        layers = max(len(shelf.layers) for shelf in self._shelves.values())
        check_complete(model_name, layers, self.updated, self.attended)


def _place(conversation: Conversation, new: Sequence[int]) -> tuple[bool, int, int]:
    """Single tokens first, so that those of a run are side by side."""
    return len(new) > 1, conversation.shelf.capacity, conversation.slot


def _runs(rows: Sequence[Conversation]) -> Iterator[list[Conversation]]:
    """Rows side by side whose padding costs less than an operation of their own."""
    run: list[Conversation] = []
    longest = 0
    for row in rows:
        length = len(row.tokens)
        padding = abs(length - longest) * (len(run) if length > longest else 1)
        if run and (row.slot != run[-1].slot + 1 or padding > CALL_TOKENS):
            yield run
            run, longest = [], 0
        run.append(row)
        longest = max(longest, length)
    if run:
        yield run
