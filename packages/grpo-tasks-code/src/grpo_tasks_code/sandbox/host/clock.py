"""How long a program has been waited for, and how much of its time is left on a busy machine."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from grpo_tasks_code.sandbox.arguments import patience_s
from grpo_tasks_code.sandbox.execution import Status
from grpo_tasks_code.sandbox.host.scheduling import Scheduling, delay_of_this_thread_s

RECHECK_S = 0.05
"""Most that a program gets which waits for a processor when its time is over, until the kernel counts the wait."""


class Clock:
    """Seconds that a program has been waited for, without those in which the waiting thread itself could not run."""

    def __init__(self) -> None:
        self._before_s = 0.0
        self._since: float | None = None
        self._delay_s = delay_of_this_thread_s()

    @property
    def is_running(self) -> bool:
        """Whether the clock runs."""
        return self._since is not None

    @property
    def spent_s(self) -> float:
        """Seconds so far."""
        if self._since is None:
            return self._before_s
        late_s = delay_of_this_thread_s() - self._delay_s
        return self._before_s + max(0.0, time.monotonic() - self._since - late_s)

    def start(self) -> None:
        """Start, or go on."""
        self._since, self._delay_s = time.monotonic(), delay_of_this_thread_s()

    def start_at(self, moment: float) -> None:
        """Start at a past moment of the monotonic clock, not before the clock was made."""
        self._since = moment

    def stop(self) -> None:
        """Stop; `start` goes on from here."""
        self._before_s, self._since = self.spent_s, None


class TimeLimit:
    """The time of one program. Seconds in which other processes had the processor are given back, up to a point.

    Args:
        limit_s: Seconds, by the clock and on the processor.

    Attributes:
        clock: Runs while the program is waited for.
        is_starved: Whether the machine was too busy for the program to use its time.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self.is_starved = False
        self.renew()

    def renew(self) -> None:
        """Give the program its whole time again."""
        self.clock, self._allowed_s = Clock(), self._limit_s

    @property
    def left_s(self) -> float:
        """Seconds until `extend` has to decide."""
        return self._allowed_s - self.clock.spent_s

    def extend(self, scheduling: Callable[[], Scheduling], cpu_before_s: float) -> Status | None:
        """Give back the time that other processes took; the status to end the program with where none is left.

        Args:
            scheduling: What the kernel counts for the program's process.
            cpu_before_s: Processor seconds that the process had spent before the program began.
        """
        spent_s, limit_s = self.clock.spent_s, self._limit_s
        counted = scheduling()
        cpu_s = counted.cpu_s - cpu_before_s
        left_s = limit_s - max(0.0, cpu_s, spent_s - counted.delay_s)
        if left_s <= 0 and counted.is_ready and cpu_s < limit_s:
            # It waits for a processor, and the kernel counts a wait when it is over. The moment is random: a program
            # that sleeps, and is awake whenever it is looked at, would otherwise never run out of time.
            left_s = random.uniform(RECHECK_S / 10, RECHECK_S)
        if left_s <= 0:
            return "timeout"
        if spent_s < patience_s(limit_s):
            self._allowed_s = min(spent_s + left_s, patience_s(limit_s))
            return None
        self.is_starved = True
        return "sandbox_error"
