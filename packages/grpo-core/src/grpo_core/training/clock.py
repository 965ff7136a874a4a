"""The time that a run has taken, counted on across resumes."""

from __future__ import annotations

import time

from grpo_core.policy.ranks import Ranks


class RunClock:
    """Seconds of training, counted on across resumes.

    Args:
        ranks: The processes of the run; the first one's clock decides for all.
        max_minutes: The run's time limit; None is none.
        follows_time: Whether the learning rate's schedule follows the time limit.
    """

    def __init__(self, ranks: Ranks, max_minutes: float | None, *, follows_time: bool = False) -> None:
        self._ranks, self._follows_time = ranks, follows_time
        self._limit_s = None if max_minutes is None else 60 * max_minutes
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """Time so far, by this process's clock."""
        return time.monotonic() - self._started

    @property
    def seconds_left(self) -> float | None:
        """Time until the limit; None without one."""
        return None if self._limit_s is None else max(0.0, self._limit_s - self.seconds)

    def agreed_seconds(self) -> float:
        """Time so far by the first rank's clock, asked for by every rank at once; 0 where nothing depends on it."""
        if self._limit_s is None:
            return 0.0
        return float(self._ranks.from_main(repr(self.seconds).encode()))

    def time_share(self) -> float:
        """Share of the time limit that has passed, asked for by every rank at once; 0 unless the rate follows it."""
        if not self._follows_time or self._limit_s is None:
            return 0.0
        return self.agreed_seconds() / self._limit_s

    def resume(self, seconds: float) -> None:
        """Count on from the time that a checkpoint names."""
        self._started = time.monotonic() - seconds
