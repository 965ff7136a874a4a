"""The items of a pool: those that wait for a worker, their outcomes, and a memory of those that went wrong."""

from __future__ import annotations

import hashlib
from collections import OrderedDict, deque
from collections.abc import Callable, MutableMapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from grpo_sdk.killable.outcome import Outcome, Status

CAPACITY = 4096
"""Payloads in quarantine; some 200 bytes each."""

_COUNTS: dict[Status, str] = {
    "ok": "answered",
    "error": "answered",
    "timeout": "timeouts",
    "crashed": "crashes",
    "unavailable": "unavailable",
}


@dataclass(slots=True, eq=False)
class Item:
    """One payload on its way through the pool.

    Attributes:
        payload: What the handler gets.
        timeout_s: How long the handler may run.
        future: Receives `convert(outcome)`.
        convert: Turns the outcome into what the caller wants; runs in the pool's thread.
        fallback: Makes the payload that the handler gets once this one has timed out.
        timeout: The outcome of `payload` while its fallback is on its way.
        is_repeatable: Whether it is tried again where its worker has died.
        has_killed: Whether a worker has died on it.
        losses: Workers that were lost with it, and not because of it.
    """

    payload: bytes
    timeout_s: float
    future: Future[Any]
    convert: Callable[[Outcome], Any]
    fallback: Callable[[], bytes] | None = None
    timeout: Outcome | None = None
    is_repeatable: bool = True
    has_killed: bool = False
    losses: int = 0

    def begin(self) -> bool:
        """Claim the future; False when its caller has cancelled it."""
        return self.future.running() or self.future.set_running_or_notify_cancel()


class Quarantine:
    """Remembers payloads that timed out or crashed, so that the same bytes cost a deadline only once.

    The least recently used is forgotten first. A payload that timed out is tried again when it is given more time.
    """

    def __init__(self) -> None:
        self.entries: OrderedDict[bytes, tuple[Outcome, float]] = OrderedDict()

    def admit(self, item: Item, outcome: Outcome) -> None:
        """Remember what an item did."""
        self.entries[_digest(item.payload)] = outcome, item.timeout_s
        if len(self.entries) > CAPACITY:
            self.entries.popitem(last=False)

    def find(self, item: Item) -> Outcome | None:
        """The outcome of an item whose payload is remembered, or None."""
        key = _digest(item.payload)
        outcome, timeout_s = self.entries.get(key, (None, 0.0))
        if outcome is None or (outcome.status == "timeout" and item.timeout_s > timeout_s):
            return None
        self.entries.move_to_end(key)
        return Outcome(outcome.status, why=f"quarantined, as for the same input before: {outcome.why}")


def _digest(payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=16).digest()


class ItemQueue:
    """A queue of items that resolves and counts them.

    Args:
        quarantine: Payloads that timed out or crashed before.
        counts: Counts of `PoolStats` by name; they are increased here.

    Attributes:
        waiting: Items that no worker has, the next one first.
    """

    def __init__(self, quarantine: Quarantine, counts: MutableMapping[str, int]) -> None:
        self._quarantine, self._counts = quarantine, counts
        self.waiting: deque[Item] = deque()
        self._unresolved: dict[Item, None] = {}  # in the order they came

    def add(self, item: Item) -> None:
        """Queue an item, or answer it from the quarantine."""
        self._unresolved[item] = None
        if not (self._quarantine.entries and self.answer_from_quarantine(item)):
            self.waiting.append(item)

    def take(self) -> Item | None:
        """Remove the first item; None where it is cancelled or in quarantine."""
        item = self.waiting.popleft()
        if not item.begin():
            del self._unresolved[item]
            return None
        # Looked up again: its twin may have been quarantined meanwhile.
        return None if self._quarantine.entries and self.answer_from_quarantine(item) else item

    def put_back(self, items: Sequence[Item]) -> None:
        """Put items to the front, in their order."""
        self.waiting.extendleft(reversed(items))

    def answer_from_quarantine(self, item: Item) -> bool:
        """Resolve an item whose payload is in quarantine, or queue its fallback; whether it was."""
        outcome = self._quarantine.find(item)
        if outcome is None:
            return False
        self._counts["quarantined"] += 1
        self._settle(item, outcome)
        return True

    def finish(self, item: Item, outcome: Outcome) -> None:
        """Count an outcome and resolve its item; remember what timed out or crashed."""
        self._counts[_COUNTS[outcome.status]] += 1
        if outcome.status in ("timeout", "crashed"):
            self._quarantine.admit(item, outcome)
        self._settle(item, outcome)

    def give_up(self, why: str) -> None:
        """Resolve every queued item as unavailable."""
        while self.waiting:
            self.finish(self.waiting.popleft(), Outcome("unavailable", why=why))

    def give_up_all(self, why: str) -> None:
        """Resolve every item that has no outcome yet as unavailable, whoever has it."""
        self.waiting.clear()
        for item in list(self._unresolved):
            self.finish(item, Outcome("unavailable", why=why))

    def _settle(self, item: Item, outcome: Outcome) -> None:
        """Resolve an item, or queue its fallback if it timed out and has one."""
        if outcome.status == "timeout" and item.fallback is not None:
            item.payload, item.fallback, item.timeout, item.has_killed = item.fallback(), None, outcome, False
            self.waiting.appendleft(item)
            return
        del self._unresolved[item]
        if not item.begin():
            return
        if item.timeout is not None:
            outcome = replace(item.timeout, value=outcome.value)
        try:
            converted = item.convert(outcome)
        except BaseException as error:  # the caller's function: its bug is the caller's, not the pool's
            item.future.set_exception(error)
        else:
            item.future.set_result(converted)
