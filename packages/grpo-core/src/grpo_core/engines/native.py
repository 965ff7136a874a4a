"""The native engine: samples in process, with the training weights themselves, on any device torch knows.

Each prompt is read once and shared by its completions, and so is what all prompts begin with; finished completions
leave the batch at once; logits exist only for the tokens being drawn. The model's own code runs, through
`transformers`' cache and attention interfaces.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from grpo_core.algorithms.causal_lm import CausalLM, causal_lm, evaluating
from grpo_core.algorithms.cpu_matmul import PackedLinears, multiplies_bfloat16
from grpo_core.engines.compatibility import check_model, check_requests
from grpo_core.engines.continuous_batch import PREFILL_TOKENS, ContinuousBatch
from grpo_core.engines.conversations import ConversationCache, PromptTokens
from grpo_core.engines.cuda_graphs import Graphs
from grpo_core.engines.decoding import SampledRow, StopMatcher, StopStrings, TextDecoder, draw, eos_ids, push
from grpo_core.engines.fused_body import TOLERANCE, FusedBody
from grpo_core.engines.kv_cache import SharedPrefixCache, fill
from grpo_core.engines.sampling import UniformStream
from grpo_core.engines.shared_attention import SampledCache, attention_through
from grpo_core.engines.static_decode import LEAST_TOKENS, StaticDecoder, unsupported
from grpo_sdk.endpoints.base import Arrivals, AtOnce, Request, Sampling
from grpo_sdk.endpoints.completion import Completion
from grpo_sdk.errors import NonFiniteError, UserError

MAX_SLOT_SHARE = 4
"""Query slots per row, at most (slots are prompts × the largest group), so that groups of uneven sizes waste little."""


@dataclass(slots=True)
class RequestGroup:
    """Requests that share a prompt.

    Attributes:
        prompt_ids: The prompt.
        requests: Indices of the requests.
    """

    prompt_ids: tuple[int, ...]
    requests: list[int] = field(default_factory=list)


def plan(requests: Sequence[Request], sampling: Sampling, max_batch_tokens: int) -> Iterator[list[RequestGroup]]:
    """Yield sub-batches, from short prompts to long ones, each with at most `max_batch_tokens` of keys and values.

    A sub-batch holds P·longest prompt + Σ completion limits tokens. A single request that is larger goes alone.
    """
    batch: list[RequestGroup] = []
    completions = rows = largest = 0
    for group in _by_prompt(requests):
        length = len(group.prompt_ids)  # sorted, so it is the longest so far
        for index in group.requests:
            opens = not batch or batch[-1].prompt_ids != group.prompt_ids
            members = 1 if opens else len(batch[-1].requests) + 1
            limit = requests[index].limit(sampling)
            prompts = len(batch) + opens
            too_many = prompts * length + completions + limit > max_batch_tokens
            too_uneven = prompts * max(largest, members) > MAX_SLOT_SHARE * (rows + 1)
            if batch and (too_many or too_uneven):
                yield batch
                batch, completions, rows, largest, members, opens = [], 0, 0, 0, 1, True
            if opens:
                batch.append(RequestGroup(group.prompt_ids))
            batch[-1].requests.append(index)
            completions, rows, largest = completions + limit, rows + 1, max(largest, members)
    if batch:
        yield batch


def common_tokens(prompts: Sequence[tuple[int, ...]]) -> int:
    """Tokens that all prompts begin with, less than any of them has; 0 where reading them apart costs little.

    Args:
        prompts: From the shortest to the longest.
    """
    cut = [prompts[0][:-1], *prompts[1:]]
    low, high = min(cut), max(cut)
    common = next((place for place, pair in enumerate(zip(low, high, strict=False)) if len({*pair}) > 1), len(low))
    return common if common >= COMMON_FROM and len(prompts) > 1 else 0


def prefill_chunks(lengths: Sequence[int]) -> Iterator[slice]:
    """Yield slices of prompts, sorted by length, that are read together: right-padded to at most `PREFILL_TOKENS`."""
    start = 0
    for end in range(1, len(lengths) + 1):
        if end == len(lengths) or (end + 1 - start) * lengths[end] > PREFILL_TOKENS:
            yield slice(start, end)
            start = end


def _by_prompt(requests: Sequence[Request]) -> list[RequestGroup]:
    groups: dict[tuple[int, ...], RequestGroup] = {}
    for index, request in enumerate(requests):
        groups.setdefault(request.prompt_ids, RequestGroup(request.prompt_ids)).requests.append(index)
    return sorted(groups.values(), key=lambda group: len(group.prompt_ids))


FLOAT32_MARGIN = 1e-3
"""In float32, a greedy token does not depend on the batch where the best logit leads by more than this: matmuls of
other shapes round otherwise, and the differences (1e-5 at logits of 10) stay far below. In float64 it never does."""

MAX_BATCH_TOKENS = 65_536
"""Tokens of keys and values held at once: 3 GB for SmolLM2-135M in float32 (46 KB a token); 128 × 512 tokens."""

COPY_FROM = 16
"""Tokens of a completion from which copied weights are worth their making, which takes as long as about four tokens."""


COMMON_FROM = 128
"""Tokens from which what all prompts begin with is read once: examples, or instructions, before each question."""

KEPT_ROWS = 16
"""Rows that copies of weights are laid out for at least, where they stay: others may join the first."""


@dataclass(frozen=True, slots=True)
class _Copies:
    """Copies of the weights for the time of a batch of requests, on a CPU.

    Attributes:
        body: Computes what the body does, where it is of a shape that is known.
        linears: The head, or all linear layers where there is no such body.
    """

    body: FusedBody | None = None
    linears: PackedLinears | None = None


@dataclass(slots=True)
class _Kept:
    """What stays between calls for the conversations that go on, until the weights change.

    Attributes:
        cache: Keys and values.
        precision: Type that they were computed in.
        copies: Copies of the weights, since a turn may have few tokens; None before they are worth their making.
    """

    cache: ConversationCache
    precision: torch.dtype | None
    copies: _Copies | None = None


class NativeEngine:
    """Samples from a model that is in this process, and may be training.

    What it reads and samples of a request that names a conversation stays until `sync`, `rest` or `free_memory`, and a
    later request of that name reads what is new in its prompt. Where `generate` decodes with CUDA graphs it reads all
    of a prompt: their memory holds one batch at a time.

    Attributes:
        prompt_tokens: How many tokens of the prompts of conversations were read, and how many were there.
        eos_ids: Tokens that end a completion: those of the generation config and the tokenizer's.
        version: Version of the weights, stamped on completions.
        choices: What was chosen for the user, as (option, value, reason); on CUDA only.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: PreTrainedTokenizerBase,
        *,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        kept_tokens: int | None = None,
        dtype: Literal["auto", "bfloat16"] = "auto",
        cuda_graphs: Literal["auto", "off"] = "auto",
        version: int = 0,
    ) -> None:
        """Check that the model can be sampled from.

        Args:
            model: A decoder-only `transformers` model, or a PEFT model around one. Nothing is copied.
            tokenizer: Its tokenizer: decodes, and names the end-of-sequence token.
            max_batch_tokens: Tokens of keys and values held at once; more requests than fit are sampled in turns.
            kept_tokens: Tokens of keys and values that conversations keep, of which those that were used least recently
                leave first; 0 keeps nothing. None is half of `max_batch_tokens`, which then leaves that half free.
            dtype: Type of the matrix products: that of training, or bfloat16, whose log-probs differ from training's.
            cuda_graphs: Whether decoding steps are captured as CUDA graphs, where the device and the model allow it
                (`static_decode`); their keys and values stay in memory between calls. Log-probs differ by rounding.
            version: Version of the weights until `sync`.

        Raises:
            UserError: the model is not one that this engine can sample from (see `engines.compatibility`), or the CPU
                does not multiply bfloat16.
        """
        if max_batch_tokens < 1:
            raise UserError(f"max_batch_tokens={max_batch_tokens} must be at least 1.")
        if kept_tokens is not None and kept_tokens < 0:
            raise UserError(f"engine.args.kept_tokens={kept_tokens} must be 0 (nothing is kept) or a number of tokens.")
        self._options: dict[str, Any] = {
            "max_batch_tokens": max_batch_tokens,
            "kept_tokens": kept_tokens,
            "dtype": dtype,
            "cuda_graphs": cuda_graphs,
        }
        self._tokenizer = tokenizer
        self._parts: CausalLM = causal_lm(model)
        self._device = self._parts.device
        if dtype == "bfloat16" and self._device.type == "cpu" and not multiplies_bfloat16():
            raise UserError(
                "engine.args.dtype=bfloat16: this CPU has neither AVX512-BF16 nor AMX, and would be slower than in "
                "float32. Leave it out."
            )
        self._autocast = torch.bfloat16 if dtype == "bfloat16" else None
        check_model(self._parts.model)
        self._config = self._parts.model.config.get_text_config(decoder=True)
        self._decode = TextDecoder(tokenizer)
        self._max_batch_tokens = max_batch_tokens
        self._kept_tokens = max_batch_tokens // 2 if kept_tokens is None else kept_tokens
        self._kept: _Kept | None = None
        self.prompt_tokens = PromptTokens()
        self._fuses: bool | None = None  # not known before the first requests
        self._static: StaticDecoder | None = None
        self.choices: tuple[tuple[str, str, str], ...] = ()
        if self._device.type == "cuda" and cuda_graphs == "auto":
            why = unsupported(self._parts)
            if why is None:
                self._static = StaticDecoder(self._parts, Graphs(self._device))
            reason = why or f"for completions of {LEAST_TOKENS} tokens or more, steps are captured and replayed"
            self.choices = (("engine.args.cuda_graphs", "off" if why else "on", reason),)
        self.eos_ids = eos_ids(self._parts.model, tokenizer)
        self.version = version

    def for_model(self, model: nn.Module, **options: Any) -> NativeEngine:
        """An engine for another model of the same tokenizer, with the options of this one but those given."""
        return NativeEngine(model, self._tokenizer, **{**self._options, **options})

    def sync(self, version: int) -> None:
        """Stamp what follows with `version`; the weights are the trainer's own, so nothing is copied."""
        self.version = version
        self.rest()

    def rest(self) -> None:
        """Forget conversations."""
        if self._kept is not None:
            self._kept.cache.clear()
            self._kept = None

    def free_memory(self) -> bool:
        """Give back conversations, and on CUDA what decoding keeps, which the next batch makes anew."""
        had_kept = self._kept is not None
        self.rest()
        return (self._static is not None and self._static.free_memory()) or had_kept

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        """Yield (index of the request, completion) as each finishes.

        Between two completions the model is as it was (attention, training mode), so the caller may use it, but must
        not change its weights or `sync` before the last.

        Raises:
            UserError: a request does not fit the model's context; raised at the call, before anything is sampled.
            NonFiniteError: the model's logits are NaN or infinite.
        """
        check_requests(requests, sampling, self._config)
        return self._guarded(self._generate(list(requests), sampling))

    def generate_arriving(self, arrivals: Arrivals, sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        """Yield (number of the request, completion) as each finishes; see `TakesArrivals`, and `generate`.

        A request that arrives joins those being sampled; on CUDA, steps are not captured as graphs.
        """
        return self._guarded(self._as_they_come(arrivals, sampling))

    def _guarded(self, completions: Iterator[tuple[int, Completion]]) -> Iterator[tuple[int, Completion]]:
        """Forget conversations where numbers that are not finite may be among them, or their memory is needed."""
        try:
            yield from completions
        except (NonFiniteError, MemoryError, torch.OutOfMemoryError):
            self.rest()
            raise

    def _generate(self, requests: list[Request], sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        version = self.version
        names = frozenset(request.conversation for request in requests if request.conversation is not None)
        static = self._static_for(requests, sampling)
        kept = self._keeping() if names and static is None and self._kept_tokens else None
        copies = self._copies_of_weights(requests, sampling, kept)
        new = list(range(len(requests)))
        if kept is not None:
            known = [
                index for index in new if kept.cache.known(requests[index].conversation, requests[index].prompt_ids)
            ]
            new = sorted(set(new).difference(known))
            yield from self._as_they_come(AtOnce([requests[index] for index in known], known), sampling)
            kept.cache.wanted = names
        stops, cache = self._stops(requests), None if kept is None else kept.cache
        most = self._max_batch_tokens - (0 if cache is None else min(cache.max_tokens, self._max_batch_tokens // 2))
        for groups in plan([requests[index] for index in new], sampling, most):
            rows = [
                self._row(new[place], requests[new[place]], sampling, stops)
                for group in groups
                for place in group.requests
            ]
            batch = _Batch(self._parts, copies.body, groups, rows, sampling, self.eos_ids, static, cache)
            self.prompt_tokens.read += sum(map(len, {row.prompt_ids for row in rows if row.conversation is not None}))
            with batch.in_memory():
                while batch.rows:
                    self._check_version(version)
                    with self._sampling(batch.cache, copies):
                        finished = batch.until_some_finish()
                    for row in finished:
                        yield row.request, row.completion(self._decode, self.eos_ids, version)

    def _as_they_come(self, arrivals: Arrivals, sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        version, kept, copies = self.version, self._keeping(), _Copies()
        cache = kept.cache
        are_coming = True

        def forward(ids: Tensor, positions: Tensor) -> Tensor:
            return _hidden(self._parts, copies.body, ids, positions, cache)

        batch = ContinuousBatch(
            self._parts, forward, cache, sampling, self.eos_ids, self._max_batch_tokens, self.prompt_tokens
        )
        try:
            while are_coming or not batch.is_empty:
                came = arrivals.take(wait=batch.is_empty) if are_coming else []
                if came is None:
                    are_coming = False
                elif came:
                    requests = [request for _, request in came]
                    check_requests(requests, sampling, self._config)
                    copies, stops = self._copies_of_weights(requests, sampling, kept), self._stops(requests)
                    cache.wanted |= {request.conversation for request in requests if request.conversation is not None}
                    for number, request in came:
                        batch.add(self._row(number, request, sampling, stops))
                finished: list[SampledRow] = []
                self._check_version(version)
                with self._sampling(cache, copies):
                    while not finished and not batch.is_empty:
                        finished = batch.step()
                        if are_coming:
                            break  # to see who has come
                cache.wanted = cache.wanted.difference([row.conversation for row in finished])
                for row in finished:
                    yield row.request, row.completion(self._decode, self.eos_ids, version)
        finally:
            batch.close()

    def _keeping(self) -> _Kept:
        with self._precision():
            kind = self._device.type
            precision = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        if self._kept is None or self._kept.precision != precision:
            self.rest()
            self._kept = _Kept(ConversationCache(self._kept_tokens, self._device), precision)
        return self._kept

    def _stops(self, requests: Sequence[Request]) -> dict[tuple[str, ...], StopStrings]:
        return {request.stop: StopStrings(self._decode, request.stop) for request in requests}

    def _row(
        self, number: int, request: Request, sampling: Sampling, stops: Mapping[tuple[str, ...], StopStrings]
    ) -> SampledRow:
        return SampledRow(
            request=number,
            prompt_ids=request.prompt_ids,
            limit=request.limit(sampling),
            uniforms=None if sampling.greedy else UniformStream(request.key),
            matcher=StopMatcher(stops[request.stop]) if request.stop else None,
            conversation=request.conversation,
        )

    def _check_version(self, version: int) -> None:
        if self.version != version:
            raise RuntimeError(
                f"sync({self.version}) came while completions of version {version} were being sampled: "
                "take all completions from generate() before the weights change."
            )

    @contextmanager
    def _sampling(self, cache: SampledCache, copies: _Copies) -> Iterator[None]:
        """Dropout and gradients off, attention through `cache`; all restored after the block, exceptions included."""
        with ExitStack() as stack:
            stack.enter_context(evaluating(self._parts.model))
            stack.enter_context(attention_through(cache, self._config))
            stack.enter_context(self._precision())
            if copies.body is not None:  # another model's code may keep what it computes
                stack.enter_context(torch.inference_mode())
            if copies.linears is not None:
                stack.enter_context(copies.linears.in_use())
            yield

    def _precision(self) -> AbstractContextManager[object]:
        return nullcontext() if self._autocast is None else torch.autocast(self._device.type, dtype=self._autocast)

    def _static_for(self, requests: Sequence[Request], sampling: Sampling) -> StaticDecoder | None:
        """The decoder of these requests; None where they are decoded as on a CPU."""
        static = self._static
        longest = max((request.limit(sampling) for request in requests), default=0)
        if static is None or static.busy or longest < LEAST_TOKENS or unsupported(self._parts) is not None:
            return None
        if static.graphs is not None and static.graphs.failed is not None:
            static.release()
            return None
        with self._precision():
            static.refresh()
        return static

    def _copies_of_weights(self, requests: Sequence[Request], sampling: Sampling, kept: _Kept | None = None) -> _Copies:
        """Copies for some requests; those that are made for conversations stay with them."""
        if kept is not None and kept.copies is not None:
            return kept.copies
        longest = max((request.limit(sampling) for request in requests), default=0)
        if self._device.type != "cpu" or longest < COPY_FROM:
            return _Copies()
        rows = len(requests) if kept is None else max(len(requests), KEPT_ROWS)
        with self._precision():
            body = FusedBody.of(self._parts.body, rows) if self._fuses is not False else None
        if body is not None and self._fuses is None:
            self._fuses = self._agrees(body, requests[0].prompt_ids)
            body = body if self._fuses else None
        with self._precision():
            linears = PackedLinears(self._parts.model if body is None else self._parts.head, rows)
        copies = _Copies(body, linears)
        if kept is not None:
            kept.copies = copies
        return copies

    def _agrees(self, body: FusedBody, prompt_ids: Sequence[int]) -> bool:
        """Whether the fused body computes what the model's own code does, which another version may have changed."""
        ids = torch.tensor([prompt_ids])
        positions = torch.arange(len(prompt_ids))[None]
        cache = SharedPrefixCache([len(prompt_ids)], 1, self._device)
        cache.begin_prefill(0)
        with self._sampling(cache, _Copies()):
            own = self._parts.hidden(ids, position_ids=positions, cache=cache)
            fused = body(ids, positions, cache)
            products = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32
        difference = float((fused - own).abs().max() / own.abs().max().clamp_min(1e-30))
        if not own.isfinite().all() or difference <= TOLERANCE[products]:
            return True
        name = type(self._parts.model).__name__
        warnings.warn(
            f"sampling runs the code of {name} as it is: the faster form differs by {difference:.2g} of its hidden "
            "states, so this version of transformers computes the model otherwise than grpo-core knows.",
            stacklevel=2,
        )
        return False


class _Batch:
    """Rows that are decoded together, one token each at a time."""

    def __init__(
        self,
        parts: CausalLM,
        body: FusedBody | None,
        groups: Sequence[RequestGroup],
        rows: list[SampledRow],
        sampling: Sampling,
        eos_ids: frozenset[int],
        static: StaticDecoder | None,
        kept: ConversationCache | None,
    ) -> None:
        self.rows = rows
        self._parts, self._body, self._groups, self._sampling = parts, body, groups, sampling
        self._eos_ids, self._device = eos_ids, parts.device
        prompt_lens = [len(group.prompt_ids) for group in groups]
        self.cache = SharedPrefixCache(prompt_lens, max(row.limit for row in rows), self._device)
        self._started = False
        self._static, self._is_static = static, False
        self._kept = kept
        self._limit = max(row.limit for row in rows)

    @contextmanager
    def in_memory(self) -> Iterator[None]:
        """Give the static decoder back after the block, and its memory where memory runs out."""
        try:
            yield
        except torch.OutOfMemoryError:
            if self._static is not None and (self._is_static or not self._static.busy):
                self._static.release()
            raise
        finally:
            if self._static is not None and self._is_static:
                self._static.end()

    def until_some_finish(self) -> list[SampledRow]:
        """Decode until at least one row is finished; return those that are, and forget them."""
        while True:
            if self._started and self._decodes_statically():
                self._step()
            else:
                hidden = self._decode_one() if self._started else self._prefill()
                draw(self._parts, hidden, self.rows, self._sampling, self._eos_ids)
            if finished := [index for index, row in enumerate(self.rows) if row.finished is not None]:
                done = [self.rows[index] for index in finished]
                self._drop(finished)
                return done

    def _drop(self, finished: Sequence[int]) -> None:
        if self._is_static:
            assert self._static is not None, "it decodes the batch"
            self._static.drop(finished)
            self.rows = [row for row in self.rows if row.finished is None]
            return
        for index in finished if self._kept is not None else ():
            self._keep(index, self.rows[index])
        fill(self.rows, self.cache.drop(finished), len(finished))

    def _keep(self, index: int, row: SampledRow) -> None:
        if row.conversation is not None and self._kept is not None:
            sampled = row.token_ids[:-1]  # the last one was not read
            self._kept.add(row.conversation, [*row.prompt_ids, *sampled], self.cache.row(index, len(sampled)))

    def _decodes_statically(self) -> bool:
        """Whether the static decoder has the batch; it is offered it once, after the first token."""
        if self._static is not None and not self._is_static:
            try:
                tokens = [row.token_ids[-1] for row in self.rows]
                self._is_static = self._static.begin(self.cache, tokens, self._limit, self._sampling)
            except torch.OutOfMemoryError:  # the prompts are still where the prefill put them
                self._static.release()
            if not self._is_static:
                self._static = None
        return self._is_static

    def _step(self) -> None:
        """Decode one token of every row with the static decoder."""
        assert self._static is not None, "it decodes the batch"
        blocks = [row.block() for row in self.rows] if self._static.wants_uniforms else None
        push(self.rows, self._static.step(blocks), self._eos_ids)

    def _prefill(self) -> Tensor:
        """Read every prompt once; return the last hidden state of each row's prompt, [A, D]."""
        self._started = True
        prompts = [group.prompt_ids for group in self._groups]
        if common := common_tokens(prompts):
            self.cache.begin_prefill(0)
            self._forward([prompts[0][:common]], [tuple(range(common))])
            self.cache.spread(common)
            prompts = [prompt[common:] for prompt in prompts]
        last = []
        for chunk in prefill_chunks([len(prompt) for prompt in prompts]):
            chosen = prompts[chunk]
            longest = max(map(len, chosen))
            # Padding repeats the prompt's last token: any token will do, and a pad token makes some models warn.
            padded = [prompt + prompt[-1:] * (longest - len(prompt)) for prompt in chosen]
            self.cache.begin_prefill(chunk.start)
            hidden = self._forward(padded, [tuple(range(common, common + longest))] * len(chosen))  # [p, l, D]
            ends = torch.tensor([len(prompt) - 1 for prompt in chosen], device=self._device)
            last.append(hidden[torch.arange(len(chosen), device=self._device), ends])
        prompt_of = [prompt for prompt, group in enumerate(self._groups) for _ in group.requests]
        self.cache.layout.start(prompt_of)
        return torch.cat(last)[torch.tensor(prompt_of, device=self._device)]

    def _decode_one(self) -> Tensor:
        """Feed every row's last token; return the hidden states [A, D] that predict the next."""
        fed = self.cache.layout.decoded
        self.cache.begin_step()
        tokens = [(row.token_ids[-1],) for row in self.rows]
        return self._forward(tokens, [(len(row.prompt_ids) + fed,) for row in self.rows])[:, 0]

    def _forward(self, token_ids: Sequence[Sequence[int]], positions: Sequence[Sequence[int]]) -> Tensor:
        """Run the body on [b, l] tokens; return hidden states [b, l, D]."""
        ids = torch.tensor(token_ids, device=self._device)
        places = torch.tensor(positions, device=self._device)
        return _hidden(self._parts, self._body, ids, places, self.cache)


def _hidden(parts: CausalLM, body: FusedBody | None, ids: Tensor, positions: Tensor, cache: SampledCache) -> Tensor:
    """Hidden states [b, l, D] of tokens [b, l]."""
    if body is not None:
        return body(ids, positions, cache)
    hidden = parts.hidden(ids, position_ids=positions, cache=cache)
    cache.check_complete(type(parts.model).__name__)
    return hidden
