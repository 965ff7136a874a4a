"""Decoding with tensors that do not move: one step, captured as a CUDA graph, serves every token and every batch.

The model's own code runs, with weights as they are where they are. The prefill is that of `kv_cache`, whose keys and
values of the prompts are copied here. A step waits for the device once, for its tokens and log-probs.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from grpo_core.algorithms.causal_lm import CausalLM
from grpo_core.algorithms.cpu_matmul import Linear
from grpo_core.algorithms.prefix_attention import attention_with
from grpo_core.engines.cuda_graphs import Graphs
from grpo_core.engines.decoding import Drawn
from grpo_core.engines.kv_cache import SharedPrefixCache
from grpo_core.engines.sampling import SAMPLE_ELEMENTS, UNIFORM_BLOCK, certainty, non_finite, sample
from grpo_core.engines.static_cache import MIN_TOKENS, NAME, Shape, StaticCache, bucket, static_cache
from grpo_sdk.endpoints.base import Sampling

FAMILIES = ("gemma3", "gpt2", "granite", "llama", "mistral", "phi3", "qwen2", "qwen3")
"""Modules of `transformers.models` whose step depends on nothing but the tensors that it is given."""

MEMORY_SHARE = 0.25
"""Share of the device's memory that keys and values may keep between batches; larger batches decode without graphs."""

LEAST_TOKENS = 16
"""Tokens of a completion from which a capture, which takes as long as a few tokens, is worth it."""


def unsupported(parts: CausalLM) -> str | None:
    """Why steps of a model cannot be captured; None if they can."""
    family = type(parts.body).__module__.rpartition("modeling_")[2]
    if family not in FAMILIES or not type(parts.body).__module__.startswith("transformers.models."):
        return f"{type(parts.model).__name__} is not among the models checked with them ({', '.join(FAMILIES)})"
    rope = getattr(parts.model.config.get_text_config(decoder=True), "rope_parameters", None) or {}
    kinds = {str(each.get("rope_type")) for each in (rope, *rope.values()) if isinstance(each, dict)}
    if changing := kinds & {"dynamic", "longrope"}:
        return f"position embeddings of type {', '.join(sorted(changing))} depend on the length"
    for module in parts.model.modules():
        if module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module):
            return f"{type(module).__name__} has hooks, which a graph would not call"
    for weight in parts.model.parameters():
        if type(weight) is not nn.Parameter or not weight.is_floating_point():
            return "weights are in shards or quantized"
        if weight.device != parts.device:
            return "some weights are not on the device"
    return None


class _HalfLinears:
    """Linear layers multiply with copies of their weights in autocast's type, as it would cast them in every step."""

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._layers: list[nn.Linear] = [
            module
            for module in model.modules()
            if isinstance(module, nn.Linear)
            and type(module) in (nn.Linear, Linear)
            and module.weight.dtype == torch.float32
        ]
        with torch.no_grad():
            self._copies = [tuple(part.to(dtype) for part in _weights(layer)) for layer in self._layers]

    @torch.no_grad()
    def refresh(self) -> None:
        """Follow the weights, in place."""
        copies = [part for parts in self._copies for part in parts]
        if copies:
            torch._foreach_copy_(copies, [part for layer in self._layers for part in _weights(layer)])

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """The layers multiply with the copies within the block, without gradients."""
        for layer, copies in zip(self._layers, self._copies, strict=True):
            layer.forward = self._forward(*copies)  # type: ignore[method-assign]
        try:
            yield
        finally:
            for layer in self._layers:
                del layer.forward

    def _forward(self, weight: Tensor, bias: Tensor | None = None) -> Any:
        return lambda x: F.linear(x.to(self.dtype), weight, bias)


def _weights(layer: nn.Linear) -> tuple[Tensor, ...]:
    return (layer.weight,) if layer.bias is None else (layer.weight, layer.bias)


class StaticDecoder:
    """Decodes batches, one at a time, from their second token on.

    One class because graphs hold the addresses of all that it keeps: what moves one has to drop them.

    Attributes:
        graphs: The captured steps; None to run every step as it is, which a test on a CPU does.
        busy: Whether a batch is being decoded.
    """

    def __init__(self, parts: CausalLM, graphs: Graphs | None) -> None:
        self._parts, self.graphs = parts, graphs
        self._config: Any = parts.model.config.get_text_config(decoder=True)
        self._device = parts.device
        self._cache = StaticCache(self._device)
        self._half: _HalfLinears | None = None
        self._state: Hashable = None
        self._rows = 0
        self._tokens = self._uniforms = self._drawn = torch.empty(0)
        self._slots: list[int] = []
        self._lens: list[int] = []
        self._sampling = Sampling()
        self._decoded, self._stale = 0, True
        self._has_said_too_large = False
        self.busy = False

    # --- before a batch

    def refresh(self) -> None:
        """Follow the model before the first batch of some requests: its weights, and where they are; under autocast."""
        state = _state_of(self._parts.model)
        if state != self._state:  # weights change in place, but a model may be moved, or its adapters turned off
            self.release()
            self._state = state
        kind = self._device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        if dtype is None:
            return  # copies stay for the next batch that needs them
        if self._half is None or self._half.dtype != dtype:
            self._forget_graphs()
            self._half = _HalfLinears(self._parts.model, dtype)
        else:
            self._half.refresh()

    def free_memory(self) -> bool:
        """Give all memory back, unless a batch is being decoded; False if nothing was held."""
        held = not self.busy and (self._rows > 0 or self._half is not None)
        if held:
            self.release()
        return held

    def release(self) -> None:
        """Give all memory back."""
        self._forget_graphs()
        self._half, self._state, self._rows = None, None, 0
        self._cache = StaticCache(self._device)

    def begin(self, prefilled: SharedPrefixCache, tokens: Sequence[int], limit: int, sampling: Sampling) -> bool:
        """Take over a batch after the first token of each row.

        Args:
            prefilled: Its prompts; emptied.
            tokens: First token of each row.
            limit: Most tokens of a completion.
            sampling: How tokens are chosen.

        Returns:
            False, with nothing changed, if the batch needs more memory than may be kept, or another is being decoded.
        """
        layout = prefilled.layout
        if self.busy:
            return False
        group = max(Counter(layout.prompt_of).values())
        shape = Shape.of(len(layout.prompt_lens), group, layout.longest_prompt, limit)
        prompts = prefilled.prompts()
        per_token = sum(part.shape[1] * part.shape[3] * part.element_size() for pair in prompts for part in pair)
        if self._device.type == "cuda":
            memory = torch.cuda.get_device_properties(self._device).total_memory
            if shape.held * per_token > MEMORY_SHARE * memory:
                if not self._has_said_too_large:
                    self._has_said_too_large = True
                    warnings.warn(
                        f"a batch of {shape.held:,} tokens is sampled without CUDA graphs: its keys and values need "
                        f"more than {MEMORY_SHARE:.0%} of the GPU's memory. Lower engine.max_batch_tokens to avoid it.",
                        stacklevel=2,
                    )
                return False
        if self._cache.load(shape, prompts, layout.prompt_lens):
            self._forget_graphs()
        prefilled.clear()
        self._sampling, self._lens, self._decoded = sampling, list(layout.prompt_lens), 0
        self._place(layout.prompt_of)
        self._tokens[torch.tensor(self._slots, device=self._device)] = torch.tensor(tokens, device=self._device)
        self.busy = True
        return True

    def end(self) -> None:
        """Forget the batch."""
        self.busy = False

    # --- a batch

    @property
    def wants_uniforms(self) -> bool:
        """Whether the next step needs the rows' blocks of uniforms."""
        return not self._sampling.greedy and (self._stale or (self._decoded + 1) % len(self._uniforms) == 0)

    def step(self, blocks: Sequence[Sequence[float]] | None) -> list[Drawn]:
        """Decode one token of every row.

        Args:
            blocks: If `wants_uniforms`, for each row the uniforms of its tokens 64·i to 64·i + 63, of which it needs
                one next.

        Returns:
            What each row has drawn.

        Raises:
            NonFiniteError: the model's logits are NaN or infinite.
        """
        if blocks is not None:
            slots = torch.tensor(self._slots, device=self._device)
            new = torch.tensor(blocks, dtype=torch.float64, device=self._device)
            self._uniforms.index_copy_(1, slots, new.T.contiguous())
            self._stale = False
        shape, half = self._cache.shape, self._half_in_use
        seen = min(shape.tokens, max(MIN_TOKENS, 1 << self._decoded.bit_length()))
        # Sorting, as filters do, is left out of the graph.
        chooses = not self._sampling.filtered
        key = (
            shape,
            seen,
            self._cache.dtype,
            None if half is None else half.dtype,
            (self._sampling.temperature, self._sampling.certainty) if chooses else None,
        )

        def captured() -> Tensor:
            with self._in_use(half):
                hidden = self._hidden(seen)
                if chooses:
                    self._choose(hidden)
            return hidden

        hidden = captured() if self.graphs is None else self.graphs.run(key, captured)
        if not chooses:
            with self._in_use(half):
                self._choose(hidden)
        self._decoded += 1
        drawn, logprobs, *measured = self._drawn[:, : shape.rows].tolist()
        found: list[Drawn] = [
            (int(drawn[slot]), logprobs[slot], [each[slot] for each in measured] if self._sampling.certainty else None)
            for slot in self._slots
        ]
        if bad := [row for row, (_, logprob, _) in enumerate(found) if not math.isfinite(logprob)]:
            self.release()  # NaN among the keys and values would outlive the batch
            raise non_finite(bad, len(found))
        return found

    def drop(self, dead: Sequence[int]) -> None:
        """Forget rows; those that stay keep their order. They move once they fit half of the places."""
        gone = set(dead)
        slots = self._slots = [slot for row, slot in enumerate(self._slots) if row not in gone]
        shape = self._cache.shape
        members = Counter(slot // shape.group for slot in slots)
        if not members:
            return
        smaller = Shape(bucket(len(members)), bucket(max(members.values())), shape.prompt_tokens, shape.tokens)
        if 2 * smaller.rows > shape.rows or smaller.prompts > shape.prompts or smaller.group > shape.group:
            return
        number = {prompt: index for index, prompt in enumerate(sorted(members))}
        tokens = self._tokens[torch.tensor(slots, device=self._device)]  # a copy
        self._lens = [self._lens[prompt] for prompt in number]
        before = slots
        self._place([number[slot // shape.group] for slot in before], smaller)
        rows = [0] * smaller.rows
        for old, new in zip(before, self._slots, strict=True):
            rows[new] = old
        prompts = [*number, *[0] * (smaller.prompts - len(number))]
        self._cache.regroup(smaller, prompts, rows, self._lens)
        self._tokens[torch.tensor(self._slots, device=self._device)] = tokens

    def _place(self, prompt_of: Sequence[int], shape: Shape | None = None) -> None:
        """Give every row a place of its prompt."""
        shape = shape or self._cache.shape
        used: Counter[int] = Counter()
        self._slots = []
        for prompt in prompt_of:
            self._slots.append(prompt * shape.group + used[prompt])
            used[prompt] += 1
        if shape.rows > self._rows:
            self._forget_graphs()
            self._rows = shape.rows
            self._tokens = torch.zeros(shape.rows, dtype=torch.int64, device=self._device)
            self._uniforms = torch.zeros(UNIFORM_BLOCK, shape.rows, dtype=torch.float64, device=self._device)
            self._drawn = torch.zeros(4, shape.rows, dtype=torch.float64, device=self._device)
        self._stale = True

    # --- a step, which is captured: it works with tensors on the device alone

    @property
    def _half_in_use(self) -> _HalfLinears | None:
        return self._half if torch.is_autocast_enabled(self._device.type) else None

    @contextmanager
    def _in_use(self, half: _HalfLinears | None) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(attention_with(NAME, self._config, static_cache, self._cache))
            if half is not None:
                stack.enter_context(half.in_use())
                # A cast that autocast keeps would be captured once, and not follow the weights.
                stack.enter_context(torch.autocast(self._device.type, dtype=half.dtype, cache_enabled=False))
            yield

    def _hidden(self, seen: int) -> Tensor:
        """Feed every row's last token; return the hidden states [P * G, D] that predict the next."""
        cache = self._cache
        cache.begin_step(seen)
        shape = cache.shape
        positions = cache.lens.repeat_interleave(shape.group, output_size=shape.rows) + cache.at
        context = getattr(self._config, "max_position_embeddings", None)
        if context:  # rows that are done go on, and may leave the context
            positions = positions.clamp(max=context - 1)
        fed = self._tokens[: shape.rows, None]
        return self._parts.hidden(fed, position_ids=positions[:, None], cache=cache)[:, 0]

    def _choose(self, hidden: Tensor) -> None:
        """Draw a token for every row from its hidden state, and feed it next."""
        rows, greedy = len(hidden), self._sampling.greedy
        u = None if greedy else self._uniforms.index_select(0, (self._cache.at + 1) % len(self._uniforms))[0]
        at_once = max(1, SAMPLE_ELEMENTS // self._config.vocab_size)
        for start in range(0, rows, at_once):
            at = slice(start, min(rows, start + at_once))
            logits = self._parts.logits(hidden[at])
            token, logprob = sample(logits, None if u is None else u[at], self._sampling, checks=False)
            self._tokens[at].copy_(token.clamp(max=self._config.vocab_size - 1))  # NaN may lead beyond
            self._drawn[0, at].copy_(token)
            self._drawn[1, at].copy_(logprob)
            if self._sampling.certainty:
                self._drawn[2:, at].copy_(certainty(logits, token).T)
        self._cache.at += 1

    def _forget_graphs(self) -> None:
        if self.graphs is not None:
            self.graphs.clear()


def _state_of(model: nn.Module) -> Hashable:
    """What captured steps rely on beside the values of weights: where they are, and the state of adapters."""
    places = [part.data_ptr() for part in (*model.parameters(), *model.buffers())]
    modules: list[Any] = list(model.modules())
    adapters = [
        (module.disable_adapters, tuple(module.merged_adapters), tuple(module.active_adapters))
        for module in modules
        if hasattr(module, "merged_adapters") and hasattr(module, "active_adapters")
    ]
    return (*places, *adapters)
