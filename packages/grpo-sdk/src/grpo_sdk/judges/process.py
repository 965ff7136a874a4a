"""Judges that are models of this machine: each is loaded once, in one killable process, which answers batches."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from grpo_sdk.errors import InfrastructureError
from grpo_sdk.judges.backend import Admission, Reply
from grpo_sdk.judges.models import ClassifierModel, LocalModel
from grpo_sdk.judges.prompts import JudgeCall
from grpo_sdk.killable import KillablePool, Outcome
from grpo_sdk.plugins.models import model_source

LOAD_S = 900.0
"""Limit of loading a model: a large one comes from a slow disk."""

GATHER_S = 0.01
"""Time for which a batch that is not full waits for others."""


class ProcessBackend:
    """Asks a model in a process of its own, several calls at once.

    Args:
        model: The model.
        target: "module:factory" of the process's handler.
        args: The factory's arguments.
    """

    def __init__(self, model: LocalModel, target: str, args: tuple[Any, ...]) -> None:
        self._model = model
        self._pool = KillablePool(
            target, args=args, workers=1, memory_mib=None, name="judge", start_timeout_s=LOAD_S, has_spare=False
        )
        self._waiting: list[tuple[JudgeCall, asyncio.Future[Reply]]] = []
        self._batches: set[asyncio.Task[None]] = set()

    async def ask(self, call: JudgeCall, admit: Admission) -> Reply:
        """Ask the model together with others; see `Backend.ask`."""
        async with admit():
            loop = asyncio.get_running_loop()
            reply: asyncio.Future[Reply] = loop.create_future()
            self._waiting.append((call, reply))
            if len(self._waiting) >= self._model.batch_size:
                self._send()
            elif len(self._waiting) == 1:
                loop.call_later(GATHER_S, self._send)
            return await reply

    def close(self) -> None:
        """End the process."""
        self._pool.close()

    def _send(self) -> None:
        batch = [(call, reply) for call, reply in self._waiting if not reply.done()]
        self._waiting.clear()
        if batch:
            task = asyncio.ensure_future(self._answer(batch))
            self._batches.add(task)
            task.add_done_callback(self._batches.discard)

    async def _answer(self, batch: list[tuple[JudgeCall, asyncio.Future[Reply]]]) -> None:
        payload = json.dumps([_payload(call) for call, _ in batch]).encode()
        try:
            outcome = await asyncio.wrap_future(self._pool.submit(payload, self._model.timeout_s))
            replies = self._replies(outcome, len(batch))
        except InfrastructureError as error:  # the pool is closed
            replies = [Reply(error=str(error))] * len(batch)
        except Exception as error:  # those who wait would wait for ever
            replies = [Reply(error=f"{self._model.address}: {' '.join(str(error).split())}")] * len(batch)
        for (_, future), reply in zip(batch, replies, strict=True):
            if not future.done():
                future.set_result(reply)

    def _replies(self, outcome: Outcome, count: int) -> list[Reply]:
        if outcome.status == "ok":
            replies = [Reply(**content) for content in json.loads(outcome.value)]
            if len(replies) != count:
                raise ValueError(f"{len(replies)} replies to {count} calls")
            return replies
        is_refused = outcome.status == "unavailable"  # it cannot be loaded, and the reason is in the message
        return [Reply(error=f"{self._model.address}: {outcome.why}", is_refused=is_refused)] * count


def open_local(model: LocalModel) -> ProcessBackend:
    """The backend of a `LocalModel`.

    Raises:
        UserError: there is no such model.
    """
    model_source(model.model)
    target = "grpo_core.evaluation.model_judges:make_language_model"
    return ProcessBackend(model, target, (model.model, model.device, model.temperature, model.max_tokens))


def open_classifier(model: ClassifierModel) -> ProcessBackend:
    """The backend of a classifier.

    Raises:
        UserError: there is no such model.
    """
    model_source(model.model)
    target = "grpo_core.evaluation.model_judges:make_classifier"
    return ProcessBackend(model, target, (model.model, model.device, model.label))


def _payload(call: JudgeCall) -> dict[str, Any]:
    if call.judge.kind != "classifier":
        return {"messages": list(call.messages)}
    prompt = call.question.prompt if call.judge.criterion == "pair" else None
    return {"prompt": prompt, "text": call.question.texts[0]}
