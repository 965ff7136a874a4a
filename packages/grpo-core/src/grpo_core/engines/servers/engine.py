"""The engine: completions by token ids from a server, with their log-probs, for the weights of a version."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from queue import Empty, SimpleQueue

from grpo_core.engines.compatibility import LengthLimit, check_fits
from grpo_core.engines.decoding import SampledRow, StopMatcher, StopStrings, TextDecoder, eos_ids
from grpo_core.engines.sampling import hashed_key
from grpo_core.engines.servers.api import Reply, VLLMServer
from grpo_core.engines.servers.client import MAX_CONNECTIONS, ServerClient, in_background
from grpo_core.engines.servers.model import TrainedModel
from grpo_core.engines.servers.weights import Sent, Weights
from grpo_sdk.endpoints.base import Arrivals, AtOnce, Processes, Request, Sampling
from grpo_sdk.endpoints.completion import Completion
from grpo_sdk.errors import EngineError, NonFiniteError

SINCE = "0.28"
"""First version of vLLM that will do."""

SEED_BYTES = 7
"""Of a request's seed: servers take 64 bits with a sign."""


ARRIVALS_S = 0.01
"""Time between two looks at who has come."""

LOGPROB_ERROR = 1e-2
"""By how much rounding may bring a log-prob above 0."""


class ServerEngine:
    """Samples from a server that has a copy of the model.

    A request has a seed of its own, derived from its key. Servers compute a batch's logits together, so that their
    last bits depend on what else is in the batch, and with them, now and then, a token: equal seeds make equal
    completions likely, not certain.

    Several ranks sample from one server: each its own requests. The first one sends weights and steers the server, so
    ranks call `sync` and `rest` together, and wait for each other before `rest`.

    Args:
        api: The server.
        weights: Sends the model's weights to it; None on every rank but the first.
        trained: The model in training.
        processes: The ranks.

    Attributes:
        version: Version of the weights, stamped on completions.
        description: The server in one line, for the header of a run.
    """

    def __init__(
        self,
        api: VLLMServer,
        weights: Weights | None,
        trained: TrainedModel,
        processes: Processes,
    ) -> None:
        self._api, self._weights, self._trained = api, weights, trained
        self._processes, self._resources = processes, ExitStack()
        self._decode = TextDecoder(trained.tokenizer)
        inner = trained.inner
        self._eos_ids = eos_ids(inner, trained.tokenizer)
        self._vocab_size = inner.config.get_text_config().vocab_size
        self.version, self.description = 0, api.client.name
        self._sent = Sent("")
        self._sent_version: int | None = None  # of the weights that the server has
        self._is_asleep = False

    def sync(self, version: int) -> None:
        """Send the model's weights, unless the server has those of this version; every rank takes part.

        Raises:
            EngineError: the server is gone, or did not take them.
        """
        self.version = version
        if not self._is_stale():
            return
        drops_weights = self._is_asleep and self._api.facts.sleep_level == 2
        pushes = self._sent_version != version or drops_weights
        state = self._trained.trained_state() if pushes else None

        def send() -> str:
            assert self._weights is not None, "called on the first rank"
            if self._is_asleep:
                self._api.wake("weights")
            sent = self._weights.push(version, state) if pushes else self._sent
            if self._is_asleep:
                self._api.wake("kv_cache")
            return json.dumps(sent)

        self._sent = Sent(*json.loads(self._processes.lead(send)))
        self._sent_version, self._is_asleep = version, False

    def rest(self) -> None:
        """Put the server to sleep, so that its share of the accelerator is free for training."""
        if self._api.facts.sleep_level and not self._is_asleep:
            if self._processes.is_main:
                self._api.sleep()
            self._is_asleep = True

    def _is_stale(self) -> bool:
        return self._is_asleep or self._sent_version != self.version

    @property
    def client(self) -> ServerClient:
        """Makes requests to the server."""
        return self._api.client

    @property
    def max_context(self) -> int | None:
        """Tokens that the server reads and writes together."""
        return self._api.facts.max_model_len

    def keep(self, resources: ExitStack) -> None:
        """Take over what ends the server, if it is the run's own, and removes files."""
        self._resources = resources

    def close(self) -> None:
        """End the server, if it is the run's own."""
        self._resources.close()

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        """Yield (index of the request, completion) as each finishes; see `Engine`.

        Where the server cannot say a log-prob (see `VLLMServer.knows_logprobs`), it is NaN.

        Raises:
            UserError: a request does not fit; raised at the call.
            EngineError: the server is gone, refuses, or has other weights.
            NonFiniteError: the model's logits are NaN or infinite.
        """
        self._check_fits(requests, sampling)
        return self._as_they_come(AtOnce(requests), sampling)

    def generate_arriving(self, arrivals: Arrivals, sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        """Yield (number of the request, completion) as each finishes; see `TakesArrivals`, and `generate`."""
        return self._as_they_come(arrivals, sampling)

    def _as_they_come(self, arrivals: Arrivals, sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        if self._is_stale():
            assert self._processes.size == 1, "ranks call sync() together before they sample"
            self.sync(self.version)
        version, name = self.version, self._sent.name
        stops: dict[tuple[str, ...], StopStrings] = {}
        self._check_weights()
        slots, session = asyncio.Semaphore(MAX_CONNECTIONS), self.client.session()

        async def complete(request: Request) -> Reply:
            async with slots:
                seed = hashed_key(request.key, SEED_BYTES)
                return await self._api.complete(session, name, request, sampling, self._eos_ids, seed)

        running: dict[Future[Reply], tuple[int, Request]] = {}
        done: SimpleQueue[Future[Reply]] = SimpleQueue()
        are_coming = True
        try:
            while are_coming or running:
                came = arrivals.take(wait=not running) if are_coming else []
                are_coming = came is not None and are_coming
                self._check_fits([request for _, request in came or ()], sampling)
                for number, request in came or ():
                    future = in_background.submit(complete(request))
                    running[future] = number, request
                    future.add_done_callback(done.put)
                try:
                    future = done.get(timeout=ARRIVALS_S if are_coming else None) if running else done.get_nowait()
                except Empty:
                    continue
                number, request = running.pop(future)
                reply = future.result()
                if self.version != version:
                    raise RuntimeError(
                        f"sync({self.version}) came while completions of version {version} were sampled."
                    )
                stop = stops.setdefault(request.stop, StopStrings(self._decode, request.stop))
                yield number, self._completion(reply, request, stop, sampling)
        finally:
            for future in running:
                future.cancel()
            in_background.submit(session.aclose()).result()
        self._check_weights()

    def _check_fits(self, requests: Sequence[Request], sampling: Sampling) -> None:
        limit = LengthLimit(self._api.facts.max_model_len, "the server's max_model_len (engine.args.max_model_len)")
        check_fits(requests, sampling, self._vocab_size, limit)

    def _check_weights(self) -> None:
        """Compare the version of the server's weights with that of those sent."""
        if self._sent.version:
            self._api.check_version(self._sent.version)

    def _completion(self, reply: Reply, request: Request, stop: StopStrings, sampling: Sampling) -> Completion:
        token_ids, logprobs = self._tokens(reply, request.limit(sampling))
        # Ends are matched here, too: what ends a completion must not depend on the engine.
        matcher = StopMatcher(stop) if stop.longest else None
        row = SampledRow(0, request.prompt_ids, len(token_ids) + 1, None, matcher)
        for token, logprob in zip(token_ids, logprobs, strict=True):
            row.push(token, logprob, self._eos_ids)
            if row.finished is not None:
                break
        else:
            if reply.finish_reason == "stop" and not stop.longest:
                raise EngineError(
                    f"{self.client.name} ended a completion with token {token_ids[-1]}, which is no end of this "
                    "model's completions: it serves another model, or was started with stop tokens of its own."
                )
            row.finished = "length" if reply.finish_reason == "length" else "stop"
        if not self._api.knows_logprobs(sampling):
            row.logprobs = [math.nan] * len(row.token_ids)
        return row.completion(self._decode, self._eos_ids, self.version)

    def _tokens(self, reply: Reply, limit: int) -> tuple[list[int], list[float]]:
        """The tokens of a completion and their log-probs.

        Raises:
            EngineError: the server did not finish it, has other weights, or replied without tokens or log-probs or with
                some that cannot be.
            NonFiniteError: a log-prob is not finite.
        """
        name = self.client.name
        if reply.finish_reason not in ("stop", "length"):
            raise EngineError(f"{name} ended a completion for {reply.finish_reason!r:.80}, which is none of ours.")
        if not reply.token_ids or len(reply.token_ids) != len(reply.logprobs):
            raise EngineError(
                f"{name} replied with {len(reply.token_ids)} token ids and {len(reply.logprobs)} log-probs; it must "
                f"be vLLM {SINCE} or later, which returns both."
            )
        if len(reply.token_ids) > limit:
            raise EngineError(f"{name} replied with {len(reply.token_ids)} tokens, and at most {limit} were requested.")
        if (token := next((each for each in reply.token_ids if not 0 <= each < self._vocab_size), None)) is not None:
            raise EngineError(
                f"{name} replied with token {token}, and the model has {self._vocab_size}: it serves another model."
            )
        finite = [value for value in reply.logprobs if value is not None and math.isfinite(value)]
        if len(finite) < len(reply.logprobs):
            raise NonFiniteError(f"{name} computed a log-prob that is not finite: the logits are NaN or infinite.")
        if (greatest := max(finite)) > LOGPROB_ERROR:
            raise EngineError(f"{name} replied with a log-prob of {greatest:g}; none is above 0.")
        return reply.token_ids, finite
