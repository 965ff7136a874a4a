"""The native engine: samples in process, with the training weights themselves, on any device torch knows.

Each prompt is read once and shared by its completions; finished completions leave the batch at once; logits exist only
for the tokens being drawn. The model's own code runs, through `transformers`' cache and attention interfaces.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from grpo_core.algorithms.causal_lm import CausalLM, causal_lm, evaluating
from grpo_core.algorithms.cpu_matmul import PackedLinears, multiplies_bfloat16
from grpo_core.engines.compatibility import check_model, check_requests
from grpo_core.engines.cuda_graphs import Graphs
from grpo_core.engines.decoding import StopMatcher, StopStrings, TextDecoder, eos_ids
from grpo_core.engines.fused_body import TOLERANCE, FusedBody
from grpo_core.engines.kv_cache import SharedPrefixCache, fill
from grpo_core.engines.sampling import SAMPLE_ELEMENTS, UNIFORM_BLOCK, UniformStream, sample
from grpo_core.engines.shared_attention import attention_through
from grpo_core.engines.static_decode import LEAST_TOKENS, StaticDecoder, unsupported
from grpo_sdk.endpoints.base import Request, Sampling
from grpo_sdk.endpoints.completion import Completion, FinishReason
from grpo_sdk.errors import UserError

MAX_SLOT_SHARE = 4
"""Query slots per row, at most (slots are prompts × the largest group), so that groups of uneven sizes waste little."""

PREFILL_TOKENS = 8192
"""Prompt tokens read in one forward: enough to fill the hardware, and it bounds the activations (an MLP of SmolLM2 on
8,192 tokens takes 50 MiB in float32)."""


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


@dataclass(frozen=True, slots=True)
class _Copies:
    """Copies of the weights for the time of a batch of requests, on a CPU.

    Attributes:
        body: Computes what the body does, where it is of a shape that is known.
        linears: The head, or all linear layers where there is no such body.
    """

    body: FusedBody | None = None
    linears: PackedLinears | None = None


class NativeEngine:
    """Samples from a model that is in this process, and may be training.

    Attributes:
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
        compact: bool = True,
        dtype: Literal["auto", "bfloat16"] = "auto",
        cuda_graphs: Literal["auto", "off"] = "auto",
        version: int = 0,
    ) -> None:
        """Check that the model can be sampled from.

        Args:
            model: A decoder-only `transformers` model, or a PEFT model around one. Nothing is copied.
            tokenizer: Its tokenizer: decodes, and names the end-of-sequence token.
            max_batch_tokens: Tokens of keys and values held at once; more requests than fit are sampled in turns.
            compact: Whether finished rows leave the batch. False is for measuring what that saves.
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
        self._options: dict[str, Any] = {"dtype": dtype, "cuda_graphs": cuda_graphs}
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
        self._compact = compact
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
        sizes: dict[str, Any] = {"max_batch_tokens": self._max_batch_tokens, "compact": self._compact}
        return NativeEngine(model, self._tokenizer, **{**sizes, **self._options, **options})

    def sync(self, version: int) -> None:
        """Stamp what follows with `version`; the weights are the trainer's own, so nothing is copied."""
        self.version = version

    def free_memory(self) -> bool:
        """Give back the keys, values and graphs of decoding on CUDA, which the next batch makes anew."""
        return self._static is not None and self._static.free_memory()

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        """Yield (index of the request, completion) as each finishes.

        Between two completions the model is as it was (attention, training mode), so the caller may use it, but must
        not change its weights or `sync` before the last.

        Raises:
            UserError: a request does not fit the model's context; raised at the call, before anything is sampled.
            NonFiniteError: the model's logits are NaN or infinite.
        """
        check_requests(requests, sampling, self._config)
        return self._generate(list(requests), sampling)

    def _generate(self, requests: list[Request], sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        version = self.version
        copies = self._copies_of_weights(requests, sampling)
        static = self._static_for(requests, sampling)
        stops = {request.stop: StopStrings(self._decode, request.stop) for request in requests}
        for groups in plan(requests, sampling, self._max_batch_tokens):
            rows = [
                SampledRow(
                    request=index,
                    prompt_len=len(group.prompt_ids),
                    limit=requests[index].limit(sampling),
                    uniforms=None if sampling.greedy else UniformStream(requests[index].key),
                    matcher=StopMatcher(stops[requests[index].stop]) if requests[index].stop else None,
                )
                for group in groups
                for index in group.requests
            ]
            batch = _Batch(self._parts, copies.body, groups, rows, sampling, self.eos_ids, self._compact, static)
            with batch.in_memory():
                while batch.rows:
                    if self.version != version:
                        raise RuntimeError(
                            f"sync({self.version}) came while completions of version {version} were being sampled: "
                            "take all completions from generate() before the weights change."
                        )
                    with self._sampling(batch.cache, copies):
                        finished = batch.until_some_finish()
                    for row in finished:
                        yield row.request, self._completion(row, version)

    @contextmanager
    def _sampling(self, cache: SharedPrefixCache, copies: _Copies) -> Iterator[None]:
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

    def _copies_of_weights(self, requests: Sequence[Request], sampling: Sampling) -> _Copies:
        longest = max((request.limit(sampling) for request in requests), default=0)
        if self._device.type != "cpu" or longest < COPY_FROM:
            return _Copies()
        with self._precision():
            body = FusedBody.of(self._parts.body, len(requests)) if self._fuses is not False else None
        if body is not None and self._fuses is None:
            self._fuses = self._agrees(body, requests[0].prompt_ids)
            body = body if self._fuses else None
        with self._precision():
            linears = PackedLinears(self._parts.model if body is None else self._parts.head, len(requests))
        return _Copies(body, linears)

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

    def _completion(self, row: SampledRow, version: int) -> Completion:
        assert row.finished is not None, "only finished rows become completions"
        text = row.text
        if text is None:
            # Some tokenizers do not count a generation config's EOS among their special tokens.
            ended = row.token_ids[-1] in self.eos_ids
            text = self._decode(row.token_ids[:-1] if ended else row.token_ids)
        return Completion(
            token_ids=tuple(row.token_ids),
            logprobs=tuple(row.logprobs),
            text=text,
            finish_reason=row.finished,
            policy_version=version,
        )


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
        compact: bool,
        static: StaticDecoder | None = None,
    ) -> None:
        self.rows = rows
        self._parts, self._body, self._groups, self._sampling = parts, body, groups, sampling
        self._eos_ids, self._compact = eos_ids, compact
        self._device = parts.device
        prompt_lens = [len(group.prompt_ids) for group in groups]
        self.cache = SharedPrefixCache(prompt_lens, max(row.limit for row in rows), self._device)
        self._rows_at_once = max(1, SAMPLE_ELEMENTS // parts.model.config.get_text_config(decoder=True).vocab_size)
        self._started = False
        self._static, self._is_static = static, False
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
            if not self._started:
                self._choose(self._prefill())
            elif self._decodes_statically():
                self._step()
            else:
                self._choose(self._decode_one())
            finished = [index for index, row in enumerate(self.rows) if row.finished is not None]
            if finished and (self._compact or len(finished) == len(self.rows)):
                done = [self.rows[index] for index in finished]
                self._drop(finished)
                return done

    def _drop(self, finished: Sequence[int]) -> None:
        if self._is_static:
            assert self._static is not None, "it decodes the batch"
            self._static.drop(finished)
            self.rows = [row for row in self.rows if row.finished is None]
        else:
            fill(self.rows, self.cache.drop(finished), len(finished))

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
        self._push(self._static.step(blocks))

    def _prefill(self) -> Tensor:
        """Read every prompt once; return the last hidden state of each row's prompt, [A, D]."""
        self._started = True
        prompts = [group.prompt_ids for group in self._groups]
        last = []
        for chunk in prefill_chunks([len(prompt) for prompt in prompts]):
            chosen = prompts[chunk]
            longest = max(map(len, chosen))
            # Padding repeats the prompt's last token: any token will do, and a pad token makes some models warn.
            padded = [prompt + prompt[-1:] * (longest - len(prompt)) for prompt in chosen]
            self.cache.begin_prefill(chunk.start)
            hidden = self._forward(padded, [tuple(range(longest))] * len(chosen))  # [p, l, D]
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
        return self._forward(tokens, [(row.prompt_len + fed,) for row in self.rows])[:, 0]

    def _forward(self, token_ids: Sequence[Sequence[int]], positions: Sequence[Sequence[int]]) -> Tensor:
        """Run the body on [b, l] tokens; return hidden states [b, l, D]."""
        ids = torch.tensor(token_ids, device=self._device)
        places = torch.tensor(positions, device=self._device)
        if self._body is not None:
            return self._body(ids, places, self.cache)
        hidden = self._parts.hidden(ids, position_ids=places, cache=self.cache)
        self.cache.check_complete(type(self._parts.model).__name__)
        return hidden

    def _choose(self, hidden: Tensor) -> None:
        """Draw a token for every row from its hidden state, [A, D]."""
        u = None
        if not self._sampling.greedy:
            u = torch.tensor([row.uniform() for row in self.rows], dtype=torch.float64, device=self._device)
        drawn: list[tuple[int, float]] = []
        for start in range(0, len(self.rows), self._rows_at_once):
            at = slice(start, start + self._rows_at_once)
            token, logprob = sample(self._parts.logits(hidden[at]), None if u is None else u[at], self._sampling)
            drawn += zip(token.tolist(), logprob.tolist(), strict=True)
        self._push(drawn)

    def _push(self, drawn: Sequence[tuple[int, float]]) -> None:
        for row, (token_id, logprob_value) in zip(self.rows, drawn, strict=True):
            if row.finished is None:
                row.push(token_id, logprob_value, self._eos_ids)


@dataclass(slots=True)
class SampledRow:
    """Tokens so far, and what ends it: `limit` tokens, an end token or a stop string.

    Attributes:
        request: Index of the request.
        prompt_len: Tokens of the prompt.
        limit: Most tokens.
        uniforms: What tokens are drawn with; None is greedy.
        matcher: Finds stop strings; None without any.
        token_ids: Tokens so far.
        logprobs: Their log-probs.
        text: The text before a stop string, once there is one.
        finished: Why it has ended; None while it has not.
    """

    request: int
    prompt_len: int
    limit: int
    uniforms: UniformStream | None
    matcher: StopMatcher | None
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    text: str | None = None
    finished: FinishReason | None = None
    _block: list[float] = field(default_factory=list)

    def uniform(self) -> float:
        """The uniform that draws the next token."""
        return self.block()[len(self.token_ids) % UNIFORM_BLOCK]

    def block(self) -> list[float]:
        """The block of uniforms that the next token's is in; call it once per token."""
        assert self.uniforms is not None, "greedy rows draw nothing"
        if len(self.token_ids) % UNIFORM_BLOCK == 0:
            self._block = self.uniforms.take(UNIFORM_BLOCK).tolist()
        return self._block

    def push(self, token_id: int, logprob: float, eos_ids: frozenset[int]) -> None:
        """Add a token, and see whether it ends the completion."""
        self.token_ids.append(token_id)
        self.logprobs.append(logprob)
        if token_id in eos_ids:
            self.finished = "stop"
            return
        if self.matcher is not None:
            self.text = self.matcher.push(token_id)
        if self.text is not None:
            self.finished = "stop"
        elif len(self.token_ids) == self.limit:
            self.finished = "length"
