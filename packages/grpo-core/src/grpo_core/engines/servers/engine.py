"""The engine: completions by token ids from a server, with their log-probs, for the weights of a version."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

from grpo_core.engines.background import gather_or_cancel, stream_from_thread
from grpo_core.engines.base import Processes, Request, Sampling
from grpo_core.engines.compatibility import LengthLimit, check_fits
from grpo_core.engines.completion import Completion, FinishReason
from grpo_core.engines.decoding import StopMatcher, StopStrings, TextDecoder, eos_ids
from grpo_core.engines.sampling import hashed_key
from grpo_core.engines.servers.api import Reply, ServerAPI
from grpo_core.engines.servers.client import ServerClient
from grpo_core.engines.servers.model import TrainedModel
from grpo_core.engines.servers.weights import Sent, Weights
from grpo_core.errors import EngineError, NonFiniteError

SEED_BYTES = 7
"""Of a request's seed: servers take 64 bits with a sign."""


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
        api: ServerAPI,
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

    def keep(self, resources: ExitStack) -> None:
        """Take over what ends the server, if it is the run's own, and removes files."""
        self._resources = resources

    def close(self) -> None:
        """End the server, if it is the run's own."""
        self._resources.close()

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        """Yield (index of the request, completion) as each finishes; see `Engine`.

        Where the server cannot say a log-prob (see `ServerAPI.knows_logprobs`), it is NaN.

        Raises:
            UserError: a request does not fit; raised at the call.
            EngineError: the server is gone, refuses, or has other weights.
            NonFiniteError: the model's logits are NaN or infinite.
        """
        limit = LengthLimit(self._api.facts.max_model_len, "the server's max_model_len (engine.args.max_model_len)")
        check_fits(requests, sampling, self._vocab_size, limit)
        return self._generate(list(requests), sampling)

    def _generate(self, requests: list[Request], sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        if self._is_stale():
            assert self._processes.size == 1, "ranks call sync() together before they sample"
            self.sync(self.version)
        version = self.version
        stops = {request.stop: StopStrings(self._decode, request.stop) for request in requests}
        self._check_weights()

        async def complete_all(put: Callable[[tuple[int, Reply]], None]) -> None:
            async with self.client.session() as session:

                async def complete(index: int) -> None:
                    request = requests[index]
                    seed = hashed_key(request.key, SEED_BYTES)
                    reply = await self._api.complete(session, self._sent.name, request, sampling, self._eos_ids, seed)
                    put((index, reply))

                await gather_or_cancel(complete(index) for index in range(len(requests)))

        replies: Iterator[tuple[int, Reply]] = stream_from_thread(complete_all)
        for index, reply in replies:
            if self.version != version:
                raise RuntimeError(f"sync({self.version}) came while completions of version {version} were sampled.")
            yield index, self._completion(reply, stops[requests[index].stop], sampling)
        self._check_weights()

    def _check_weights(self) -> None:
        """Compare the version of the server's weights with that of those sent."""
        if self._sent.version:
            self._check_version(self._api.weight_version())

    def _check_version(self, version: str) -> None:
        if version != self._sent.version:
            raise EngineError(
                f"{self.client.name} has weights of version {version!r:.80} and not {self._sent.version!r}: it "
                "was restarted, or another run uses it. A run needs a server of its own."
            )

    def _completion(self, reply: Reply, stop: StopStrings, sampling: Sampling) -> Completion:
        token_ids, logprobs = self._tokens(reply)
        finish: FinishReason = "length" if reply.finish_reason == "length" else "stop"
        # Stop strings are matched here, too: what ends a completion must not depend on the engine.
        matcher, text = StopMatcher(stop), None
        for at, token in enumerate(token_ids):
            if token in self._eos_ids:
                break
            if stop.longest and (text := matcher.push(token)) is not None:
                token_ids, logprobs, finish = token_ids[: at + 1], logprobs[: at + 1], "stop"
                break
        if text is None:
            text = self._decode(token_ids[:-1] if token_ids[-1] in self._eos_ids else token_ids)
        if not self._api.knows_logprobs(sampling):
            logprobs = [math.nan] * len(token_ids)
        return Completion(tuple(token_ids), tuple(logprobs), text, finish, self.version)

    def _tokens(self, reply: Reply) -> tuple[list[int], list[float]]:
        """The tokens of a completion and their log-probs.

        Raises:
            EngineError: the server did not finish it, has other weights, or replied without tokens or log-probs.
            NonFiniteError: a log-prob is not finite.
        """
        name = self.client.name
        if reply.finish_reason not in ("stop", "length"):
            raise EngineError(f"{name} ended a completion for {reply.finish_reason!r:.80}, which is none of ours.")
        if reply.weight_version is not None and self._sent.version:
            self._check_version(reply.weight_version)
        if not reply.token_ids or len(reply.token_ids) != len(reply.logprobs):
            raise EngineError(
                f"{name} replied with {len(reply.token_ids)} token ids and {len(reply.logprobs)} log-probs; it must "
                f"be {self._api.product.name} {self._api.product.since} or later, which returns both."
            )
        finite = [value for value in reply.logprobs if value is not None and math.isfinite(value)]
        if len(finite) < len(reply.logprobs):
            raise NonFiniteError(f"{name} computed a log-prob that is not finite: the logits are NaN or infinite.")
        return reply.token_ids, finite
