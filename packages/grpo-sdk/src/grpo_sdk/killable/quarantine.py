from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass

from grpo_sdk.killable.outcome import Outcome, Status

CAPACITY = 4096
"""Inputs remembered; some 200 bytes each."""


@dataclass(frozen=True, slots=True)
class _Entry:
    status: Status
    why: str
    timeout_s: float


class Quarantine:
    """Remembers payloads that timed out or crashed, so that the same bytes cost a deadline only once.

    The least recently used is forgotten first. A payload that timed out is tried again when it is given more time.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()

    def admit(self, payload: bytes, timeout_s: float, outcome: Outcome) -> None:
        """Remember what `payload` did."""
        self._entries[_digest(payload)] = _Entry(outcome.status, outcome.why, timeout_s)
        if len(self._entries) > CAPACITY:
            self._entries.popitem(last=False)

    def find(self, payload: bytes, timeout_s: float) -> Outcome | None:
        """The outcome of a remembered payload, or None."""
        if not self._entries:
            return None
        key = _digest(payload)
        entry = self._entries.get(key)
        if entry is None or (entry.status == "timeout" and timeout_s > entry.timeout_s):
            return None
        self._entries.move_to_end(key)
        return Outcome(entry.status, why=f"quarantined, as for the same input before: {entry.why}")


def _digest(payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=16).digest()
