"""Judges of this process: one thread asks all of them, within their limits, and keeps count."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grpo_sdk.endpoints.background import BackgroundLoop
from grpo_sdk.errors import UserError
from grpo_sdk.judges.backend import Admission, Backend, Reply
from grpo_sdk.judges.database import Bounds, SharedLimits, UnusableDatabaseError, VerdictCache
from grpo_sdk.judges.models import LocalModel
from grpo_sdk.judges.prompts import JudgeCall
from grpo_sdk.judges.usage import Usage
from grpo_sdk.killable.secrets import withhold
from grpo_sdk.plugins import variants
from grpo_sdk.plugins.folders import cache_folder
from grpo_sdk.task.calling import raised
from grpo_sdk.task.judging import PROTOCOL_VERSION, JudgedReward, JudgeQuestion


def key_of(judge: JudgedReward, question: JudgeQuestion, files: Sequence[object] = ()) -> bytes:
    """Hash of what decides a verdict: model, address, sampling, criterion, texts, and the version of the prompts.

    Args:
        judge: The judged reward.
        question: What it is asked.
        files: Fingerprint of the model's files, of a model that is in a folder.
    """
    content = [
        PROTOCOL_VERSION, judge.kind, judge.criterion, judge.scale, judge.model.address, judge.model.meaning(),
        question.as_json(), *files,
    ]  # fmt: skip
    return hashlib.blake2b(json.dumps(content).encode(), digest_size=24).digest()


_LOGGER = logging.getLogger(__name__)

VERDICT_ATTEMPTS = 3
"""Replies of which one must hold a verdict."""

CHARS_PER_TOKEN = 3
"""For the estimate of a prompt's tokens: English has 4 characters in one, other languages fewer."""

FAILURES_TO_PAUSE = 3
"""Questions in a row that must fail for good before others fail at once; at least the concurrency."""

PAUSE_S = 30.0
"""Time for which others then fail at once, before one is tried again."""

_MAX_EXCERPT_CHARS = 120


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judge's verdict.

    Attributes:
        value: In [0, 1]; None where there is none.
        why: The judge's reason, or why there is no verdict.
        is_refused: Whether the user must change something before there can be any, e.g. a key.
        is_too_long: Whether the texts do not fit the model.
    """

    value: float | None
    why: str = ""
    is_refused: bool = False
    is_too_long: bool = False


class _BoundReachedError(Exception):
    """The bound on requests or cost."""


class JudgeService:
    """Asks one model; made by `service_for`. Every method but `submit` belongs to the thread of the judges.

    Args:
        model: The model, with its limits.
        folder: Folder of the cache and of the limits' file.
    """

    def __init__(self, model: Any, folder: Path) -> None:
        for variable in model.secrets:
            withhold(variable)  # from the environment of workers
        self.model, self.usage = model, Usage()
        self._open = variants.resolve("judge", model.backend)
        self._backend: Backend | None = None
        bounds = Bounds(model.concurrency, model.requests_per_minute, model.tokens_per_minute, model.timeout_s)
        self._limits = SharedLimits(folder / "limits.sqlite", model.address, bounds)
        self._cache = VerdictCache(folder / "verdicts.sqlite") if model.cache else None
        self._files = model.files() if isinstance(model, LocalModel) else ()
        self._running: dict[bytes, tuple[asyncio.Task[Verdict], list[int]]] = {}
        self._reserved = 0.0
        self._failures, self._paused_until, self._last_error = 0, 0.0, ""
        self._has_answered, self._has_warned = False, False

    def submit(self, judge: JudgedReward, question: JudgeQuestion) -> Future[Verdict]:
        """Ask; cancelling the future takes the request back. Never raises for what a model or an endpoint does."""
        return _background.submit(self._verdict(judge, question))

    def close(self) -> None:
        """Close files and the backend."""
        if self._backend is not None:
            self._backend.close()
        self._limits.close()
        if self._cache is not None:
            self._cache.close()

    async def _verdict(self, judge: JudgedReward, question: JudgeQuestion) -> Verdict:
        """The verdict, shared with whoever asks the same at the same time."""
        if self._cache is None:
            return await self._counted(judge, question, b"")
        key = key_of(judge, question, self._files)
        while (taken_back := self._running.get(key)) is not None and taken_back[0].cancelling():
            await asyncio.wait([taken_back[0]])
        if key not in self._running:
            task = asyncio.ensure_future(self._counted(judge, question, key))
            self._running[key] = (task, [0])
            task.add_done_callback(lambda _: self._running.pop(key, None))
        else:
            self.usage.cached += 1
            self.usage.verdicts += 1
        task, waiting = self._running[key]
        waiting[0] += 1
        try:
            return await asyncio.shield(task)
        finally:
            waiting[0] -= 1
            if waiting[0] == 0 and not task.done():
                task.cancel()

    async def _counted(self, judge: JudgedReward, question: JudgeQuestion, key: bytes) -> Verdict:
        verdict = await self._decide(judge, question, key)
        if verdict.value is None:
            self.usage.abstained += 1
            return replace(verdict, why=f"judge {judge.name}: {verdict.why}")
        self.usage.verdicts += 1
        return verdict

    async def _decide(self, judge: JudgedReward, question: JudgeQuestion, key: bytes) -> Verdict:
        try:
            if self._cache is not None and (known := self._cache.get(key)) is not None:
                self.usage.cached += 1
                return Verdict(*known)
            if time.monotonic() < self._paused_until:
                return Verdict(None, f"{self._last_error} (not tried: {self._failures} questions in a row failed)")
            verdict = await self._ask(judge, question)
            self._keep(key, verdict)
        except _BoundReachedError as error:
            return Verdict(None, str(error))
        except UserError as error:  # the backend cannot be made
            return Verdict(None, str(error).rstrip("."), is_refused=True)
        except UnusableDatabaseError as error:
            folder = f"the judges' folder {cache_folder() / 'judges'} cannot be used: {error}"
            return Verdict(None, f"{folder}. GRPO_CACHE_DIR names another one", is_refused=True)
        return verdict

    def _keep(self, key: bytes, verdict: Verdict) -> None:
        """Put a verdict into the cache; a cache that fails costs a later request, and no verdict."""
        if self._cache is None or verdict.value is None:
            return
        try:
            self._cache.put(key, verdict.value, verdict.why)
        except UnusableDatabaseError as error:
            if not self._has_warned:
                self._has_warned = True
                _LOGGER.warning("%s: verdicts cannot be kept for later: %s", self.model.address, error)

    async def _ask(self, judge: JudgedReward, question: JudgeQuestion) -> Verdict:
        ending = ""
        for _ in range(VERDICT_ATTEMPTS):
            call = JudgeCall.new(judge, question)
            reply = await self._reply(call)
            if reply.is_too_long:
                self._failures, self._has_answered = 0, True
                return Verdict(None, reply.error, is_too_long=True)
            if reply.error:
                self._failures += 1
                self._last_error = reply.error
                if self._failures >= max(self.model.concurrency, FAILURES_TO_PAUSE):
                    self._paused_until = time.monotonic() + PAUSE_S
                return Verdict(None, reply.error, is_refused=reply.is_refused and not self._has_answered)
            self._failures, self._has_answered = 0, True
            value = call.verdict(reply.text) if reply.value is None else reply.value
            if value is not None and 0 <= value <= 1:
                return Verdict(value, reply.text.encode("utf-8", "replace").decode())
            self.usage.unreadable += 1
            ending = " ".join(reply.text[-_MAX_EXCERPT_CHARS:].split())
        return Verdict(
            None, f"{self.model.address}: no verdict in {VERDICT_ATTEMPTS} replies: the last ends {ending!r}"
        )

    async def _reply(self, call: JudgeCall) -> Reply:
        chars = sum(len(message["content"]) for message in call.messages)
        prompt_tokens = chars // CHARS_PER_TOKEN
        numbers: list[int] = []

        @asynccontextmanager
        async def admit() -> AsyncIterator[None]:
            async with self._limits.admitted(prompt_tokens + self.model.max_tokens) as number:
                reserved = self._reserve(prompt_tokens)
                numbers.append(number)
                try:
                    yield
                finally:
                    self._reserved -= reserved

        started = time.perf_counter()
        reply = await self._guarded(call, admit)
        self.usage.seconds += time.perf_counter() - started
        if not reply.error:
            read = prompt_tokens if reply.input_tokens is None else reply.input_tokens
            written = len(reply.text) // CHARS_PER_TOKEN if reply.output_tokens is None else reply.output_tokens
            self.usage.input_tokens += read
            self.usage.output_tokens += written
            self.usage.cost += self._price(read, written)
            if numbers:
                self._limits.end(numbers[-1], read + written)
        return reply

    async def _guarded(self, call: JudgeCall, admit: Admission) -> Reply:
        """The backend's reply; what it raises is the error of the reply, for a plugin's bug ends no training."""
        try:
            if self._backend is None:
                self._backend = self._open(self.model)
            reply = await self._backend.ask(call, admit)
            if not isinstance(reply, Reply):
                raise TypeError(f"ask() gave a {type(reply).__name__} and no Reply")
            return reply if reply.value is None else replace(reply, value=float(reply.value))
        except (UserError, _BoundReachedError, UnusableDatabaseError):
            raise
        except Exception as error:
            return Reply(error=f"{self.model.address}: backend {self.model.backend!r} {raised(error)}")

    def _reserve(self, prompt_tokens: int) -> float:
        """Count a request that is about to be sent, with the most that it may cost."""
        model = self.model
        most = self._price(prompt_tokens, model.max_tokens)
        if model.max_requests is not None and self.usage.requests >= model.max_requests:
            raise _BoundReachedError(f"{model.address}: max_requests={model.max_requests} is reached")
        if model.max_cost is not None and self.usage.cost + self._reserved + most > model.max_cost:
            spent = f"{self.usage.cost:.4g} spent by {self.usage.requests} requests"
            why = f"max_cost={model.max_cost:g} would be exceeded ({spent}; one more may cost {most:.4g})"
            raise _BoundReachedError(f"{model.address}: {why}")
        self.usage.requests += 1
        self._reserved += most
        return most

    def _price(self, read: int, written: int) -> float:
        model = self.model
        return (read * (model.input_price or 0.0) + written * (model.output_price or 0.0)) / 1e6


_lock = threading.Lock()
_services: dict[str, JudgeService] = {}


def _close_services() -> None:
    for service in list(_services.values()):
        service.close()


_background = BackgroundLoop("judges", on_stop=_close_services)


def service_for(model: Any) -> JudgeService:
    """The service of a model; equal models have the same one in a process.

    Raises:
        UserError: there is no such backend.
    """
    with _lock:
        name = repr(model)
        if name not in _services:
            _services[name] = JudgeService(model, cache_folder() / "judges")
        return _services[name]


def usages() -> dict[str, Usage]:
    """What each model that judged in this process has cost so far, by its address."""
    by_address: dict[str, Usage] = {}
    for service in list(_services.values()):
        known = by_address.get(service.model.address, Usage())
        by_address[service.model.address] = Usage.total((known, service.usage))
    return by_address


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()
    _services.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
