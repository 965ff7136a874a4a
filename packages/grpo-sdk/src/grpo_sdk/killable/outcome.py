from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "error", "timeout", "crashed", "unavailable"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one payload.

    Attributes:
        status: `ok`, or `error` (the handler raised), `timeout` (killed at its deadline), `crashed` (it killed its
            worker twice), `unavailable` (no worker could be started, the machine was too busy to tell, or the
            pool was closed).
        value: What the handler returned; empty unless `ok`, or `timeout` with a fallback that it answered.
        why: One line; empty when `ok`.
        seconds: How long the handler ran; 0 where it did not run.
    """

    status: Status
    value: bytes = b""
    why: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class PoolStats:
    """Counts of a pool so far.

    Attributes:
        answered: Payloads the handler answered, by returning or by raising.
        timeouts: Payloads killed at their deadline.
        crashes: Payloads that killed their worker twice.
        quarantined: Payloads answered without running, because the same bytes timed out or crashed before.
        unavailable: Payloads that found no worker, or whose worker found no processor.
        restarts: Workers that were replaced.
    """

    answered: int = 0
    timeouts: int = 0
    crashes: int = 0
    quarantined: int = 0
    unavailable: int = 0
    restarts: int = 0
