"""The items that wait for a worker, and their outcomes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, MutableMapping, Sequence

from grpo_sdk.killable import worker as program
from grpo_sdk.killable.outcome import Outcome
from grpo_sdk.killable.process import Answer, Item
from grpo_sdk.killable.quarantine import Quarantine


class ItemQueue:
    """A queue of items that resolves and counts them, and remembers those that timed out or crashed.

    Args:
        quarantine: Payloads that timed out or crashed before.
        counts: Counts of `PoolStats` by name; they are increased here.
    """

    def __init__(self, quarantine: Quarantine, counts: MutableMapping[str, int]) -> None:
        self._quarantine, self._counts = quarantine, counts
        self._items: deque[Item] = deque()
        self._unresolved: dict[Item, None] = {}  # in the order they came

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: Item) -> None:
        """Queue an item, or answer it from the quarantine."""
        self._unresolved[item] = None
        if not self.answer_from_quarantine(item):
            self._items.append(item)

    def take(self) -> Item | None:
        """Remove the first item; None where it is cancelled or in quarantine."""
        item = self._items.popleft()
        # Looked up again: its twin may have been quarantined meanwhile.
        if not item.begin():
            self._unresolved.pop(item, None)
            return None
        return None if self.answer_from_quarantine(item) else item

    def put_back(self, items: Sequence[Item]) -> None:
        """Put items to the front, in their order."""
        self._items.extendleft(reversed(items))

    def answer_from_quarantine(self, item: Item) -> bool:
        """Resolve an item whose payload is in quarantine, or queue its fallback; whether it was."""
        outcome = self._quarantine.find(item.payload, item.timeout_s)
        if outcome is None:
            return False
        self._counts["quarantined"] += 1
        self._settle(item, outcome)
        return True

    def answered(self, item: Item, answer: Answer) -> None:
        """Resolve an item with a worker's answer."""
        self._counts["answered"] += 1
        if answer.kind & program.ERROR:
            self._resolve(item, Outcome("error", why=answer.value.decode("utf-8", "replace"), seconds=answer.seconds))
        else:
            self._resolve(item, Outcome("ok", answer.value, seconds=answer.seconds))

    def timed_out(self, item: Item, seconds: float) -> None:
        """Resolve an item that used up its time, or queue its fallback."""
        self._counts["timeouts"] += 1
        outcome = Outcome("timeout", why=f"no answer within {item.timeout_s:g} s", seconds=seconds)
        self._quarantine.admit(item.payload, item.timeout_s, outcome)
        self._settle(item, outcome)

    def crashed(self, item: Item, why: str, seconds: float) -> None:
        """Resolve an item that killed its worker for good."""
        self._counts["crashes"] += 1
        outcome = Outcome("crashed", why=why, seconds=seconds)
        self._quarantine.admit(item.payload, item.timeout_s, outcome)
        self._resolve(item, outcome)

    def unavailable(self, item: Item, why: str, seconds: float = 0.0) -> None:
        """Resolve an item of which nothing is known."""
        self._counts["unavailable"] += 1
        self._resolve(item, Outcome("unavailable", why=why, seconds=seconds))

    def give_up(self, why: str, items: Iterable[Item] = ()) -> None:
        """Resolve every queued item, and those given, as unavailable."""
        self._items.extend(items)
        while self._items:
            self.unavailable(self._items.popleft(), why)

    def give_up_rest(self, why: str) -> None:
        """Resolve every item that was added and has no outcome yet as unavailable, whoever has it."""
        for item in list(self._unresolved):
            self.unavailable(item, why)
        self._items.clear()

    def _resolve(self, item: Item, outcome: Outcome) -> None:
        self._unresolved.pop(item, None)
        item.resolve(outcome)

    def _settle(self, item: Item, outcome: Outcome) -> None:
        """Resolve an item, or queue its fallback if it timed out and has one."""
        if outcome.status != "timeout" or item.fallback is None:
            self._resolve(item, outcome)
            return
        item.payload, item.fallback, item.timeout, item.has_killed = item.fallback, None, outcome, False
        self._items.appendleft(item)
