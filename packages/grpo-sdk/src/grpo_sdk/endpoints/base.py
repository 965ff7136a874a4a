"""Requests, sampling settings and the protocol of engines. No torch here: an endpoint needs none."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from grpo_sdk.endpoints.completion import Completion
from grpo_sdk.errors import UserError


class StopRequested(Exception):
    """The user asked the run to stop while an engine was sampling; nothing half-done is used."""


class SampleKey(NamedTuple):
    """Key of the random numbers of one completion, which do not depend on the rest of the batch.

    Attributes:
        seed: Seed of the run.
        step: Optimizer step (or evaluation round).
        prompt_id: The row's id.
        sample: Index within the group.
    """

    seed: int
    step: int
    prompt_id: str
    sample: int


@dataclass(frozen=True, slots=True)
class Request:
    """One completion to sample.

    Attributes:
        prompt_ids: Tokens to continue; requests with equal prompts share one prefill.
        key: Key of the random numbers of the completion.
        stop: Strings that end the completion, matched on decoded text; the text keeps the string.
        max_completion_length: Tokens at most; None or more than the sampling's own limit means that limit.
        conversation: Name under which the engine may keep what it has read, until `sync` or until the memory is needed,
            so that a later request of that name whose prompt begins with this prompt and completion costs its new
            tokens only. None: nothing is kept.
    """

    prompt_ids: tuple[int, ...]
    key: SampleKey
    stop: tuple[str, ...] = ()
    max_completion_length: int | None = None
    conversation: str | None = None

    def __post_init__(self) -> None:
        if not self.prompt_ids:
            raise UserError(
                "a request has an empty prompt: there is nothing to continue. Give at least one token (BOS)."
            )
        if isinstance(self.stop, str):
            raise UserError(f"stop={self.stop!r} must be a tuple of strings, e.g. ({self.stop!r},).")
        if not all(self.stop):
            raise UserError("an empty stop string would end every completion at once; leave it out.")
        if self.max_completion_length is not None:
            _at_least_one("a request's max_completion_length", self.max_completion_length)

    def limit(self, sampling: Sampling) -> int:
        """Tokens this completion may have under `sampling`."""
        if self.max_completion_length is None:
            return sampling.max_completion_length
        return min(self.max_completion_length, sampling.max_completion_length)


@dataclass(frozen=True, slots=True)
class Sampling:
    """Settings of sampling, applied in the order temperature, top-k, top-p, min-p (that of `transformers`).

    Attributes:
        temperature: Divides the logits; 0 is greedy, whose log-probs are those of temperature 1.
        top_k: Keeps the k likeliest tokens and ties with the last of them; 0 keeps all.
        top_p: Keeps the smallest set of likeliest tokens with at least this mass; 1 keeps all.
        min_p: Keeps tokens at least this many times as likely as the likeliest; 0 keeps all.
        max_completion_length: Tokens at most, the end-of-sequence token included.
        certainty: Whether an engine that can measures the certainty of each token.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    max_completion_length: int = 256
    certainty: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise UserError(f"temperature={self.temperature} must be 0 (greedy) or a finite number above it.")
        if self.top_k < 0:
            raise UserError(f"top_k={self.top_k} must be 0 (off) or a number of tokens above it.")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top_p={self.top_p} must be above 0 and at most 1 (off).")
        if not 0 <= self.min_p <= 1:
            raise UserError(f"min_p={self.min_p} must be between 0 (off) and 1 (only the likeliest token).")
        _at_least_one("max_completion_length", self.max_completion_length)

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken and nothing is random."""
        return self.temperature == 0

    @property
    def filtered(self) -> bool:
        """Whether any token may be cut before drawing."""
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0


class Processes(Protocol):
    """The processes of a run, for an engine that they share."""

    @property
    def size(self) -> int:
        """Number of processes."""
        ...

    @property
    def is_main(self) -> bool:
        """Whether this is the first one."""
        ...

    def together(self, work: Callable[[], bytes]) -> list[bytes]:
        """The results of all; an `EngineError` or `UserError` of one is raised by all."""
        ...

    def lead(self, work: Callable[[], str]) -> str:
        """The result of work that only the first one does; what it raises is raised by all, as by `together`."""
        ...


class OneProcess:
    """A run of one process."""

    size, is_main = 1, True

    def together(self, work: Callable[[], bytes]) -> list[bytes]:
        """Do the work."""
        return [work()]

    def lead(self, work: Callable[[], str]) -> str:
        """Do the work."""
        return work()


ONE_PROCESS = OneProcess()


@runtime_checkable
class Engine(Protocol):
    """Samples completions for requests."""

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        """Yield (index of the request, completion) as each finishes, in any order."""
        ...

    def sync(self, version: int) -> None:
        """Take the trainer's current weights and stamp what follows with their `version`."""
        ...


class Arrivals(Protocol):
    """Requests that come while others are being sampled."""

    def take(self, *, wait: bool) -> list[tuple[int, Request]] | None:
        """Those that have come since the last call, each with a number of the caller's; called where one iterates.

        Args:
            wait: Whether to wait until there is one.

        Returns:
            None once no more will come.
        """
        ...


class AtOnce:
    """Arrivals that are all there, numbered from 0.

    Args:
        requests: All of them.
        numbers: Numbers in their place.
    """

    def __init__(self, requests: Sequence[Request], numbers: Sequence[int] | None = None) -> None:
        self._all = list(zip(range(len(requests)) if numbers is None else numbers, requests, strict=True))
        self._are_taken = False

    def take(self, *, wait: bool) -> list[tuple[int, Request]] | None:
        """All, once."""
        before, self._are_taken = self._are_taken, True
        return None if before else self._all


@runtime_checkable
class TakesArrivals(Protocol):
    """An engine that lets a request join those being sampled."""

    def generate_arriving(self, arrivals: Arrivals, sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        """Yield (number of the request, completion) as each finishes, until no more come and all are finished.

        `arrivals` are asked without waiting between two tokens, and with it where there is nothing to sample.
        """
        ...


def rest(engine: Engine) -> None:
    """Let an engine give back memory that the trainer needs between two phases of sampling, if it has `rest()`."""
    give_back = getattr(engine, "rest", None)
    if give_back is not None:
        give_back()


def free_memory(engine: Engine) -> bool:
    """Let an engine give back what it keeps to be faster, by `free_memory()`; False if it keeps nothing."""
    give_back = getattr(engine, "free_memory", None)
    return give_back is not None and give_back()


def _at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise UserError(f"{name}={value} would sample nothing: it must be at least 1 token.")
