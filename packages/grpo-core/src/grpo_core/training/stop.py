"""The time that a run takes, and its end before the last planned step: by request, by its limit, or by patience."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING

from grpo_core.config import TrainerConfig
from grpo_sdk.launched import announced_saving

if TYPE_CHECKING:  # it brings torch, and `reason_to_end` is asked before torch is imported
    from grpo_core.policy.ranks import Ranks


@contextmanager
def stop_on_signal(
    request: Callable[[], None], say: Callable[[str], None], *, what: str = "the run", may_insist: bool = True
) -> Iterator[None]:
    """Call `request` on the first SIGINT, SIGTERM or SIGHUP within the block; a second one raises KeyboardInterrupt.

    SIGHUP only ever asks: a terminal that closes sends it twice, from the shell and from the kernel. Where it is
    ignored, as under nohup, it stays so. Outside the main thread nothing is installed, because Python delivers signals
    there only.

    A signal may fall into anything, another signal's handler too. So a handler takes no lock, neither to print nor to
    start a thread or set an event.

    Args:
        request: Asks for the stop; the run then ends, saved. It must take no lock.
        say: Receives the message for the user, in a thread of its own.
        what: What is saved, for the message.
        may_insist: Whether a second signal ends the block at once. Not in one of several ranks: its launcher passes on
            the Ctrl-C that the terminal sent it already.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    message = f"stopping: {what} is saved first" + ("; press Ctrl-C again to stop at once" if may_insist else "")
    messages: SimpleQueue[str | None] = SimpleQueue()  # its `put` is made for signal handlers
    speaker = threading.Thread(target=_say_first, args=(messages, say), daemon=True)
    speaker.start()
    is_requested = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal is_requested
        if not is_requested:
            is_requested = True
            request()
            messages.put(message)
        elif may_insist and number != signal.SIGHUP:
            raise KeyboardInterrupt

    signals = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    previous = {number: signal.signal(number, ask) for number in signals}
    try:
        yield
    finally:
        may_insist = False  # the block ends already
        for number, handler in previous.items():
            signal.signal(number, handler)
        messages.put(None)
        speaker.join()


def _say_first(messages: SimpleQueue[str | None], say: Callable[[str], None]) -> None:
    message = messages.get()
    if message is not None:
        say(message)


def reason_to_end(config: TrainerConfig, *, seconds: float, waited: int) -> str:
    """Why a run is over before its planned steps are done; an empty string while it is not.

    Args:
        config: Its limits.
        seconds: Time that it has taken, over all its processes.
        waited: Interval evaluations since the best one.
    """
    if config.max_minutes is not None and seconds >= 60 * config.max_minutes:
        return f"trainer.max_minutes={config.max_minutes:g} have passed"
    if config.early_stop_patience is not None and waited >= config.early_stop_patience:
        return f"no better held-out rate in {waited} evaluations"
    return ""


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


class StopSwitch:
    """Decides after each step whether a run goes on; every rank asks at the same moments and gets the same answer.

    Args:
        config: The limits.
        ranks: The processes of the run.
        clock: Clock of the run.
        notify: Receives the reason of a stop.
        has_limits: Whether the time limit and patience end the run; not where somebody asked for exactly some steps.

    Attributes:
        is_over: Whether a limit has ended the run, as planned.
        requested: Whether this process was asked to stop.
    """

    def __init__(
        self,
        config: TrainerConfig,
        ranks: Ranks,
        clock: RunClock,
        notify: Callable[[str], None],
        *,
        has_limits: bool = True,
    ) -> None:
        self._config, self._ranks, self._clock, self._notify = config, ranks, clock, notify
        self._has_limits = has_limits
        self.requested = False  # no threading.Event: a signal handler may take no lock
        self._last_step: int | None = None
        self.is_over = False

    @contextmanager
    def listen(self) -> Iterator[None]:
        """Take signals as requests to stop, within a block."""
        saves = announced_saving(lambda: self.requested)
        with stop_on_signal(self.request, self._notify, may_insist=self._ranks.size == 1), saves:
            yield

    def count_from(self, step: int) -> None:
        """Take the step that `trainer.stop_after` counts from."""
        after = self._config.stop_after
        self._last_step = None if after is None else step + after

    def request(self) -> None:
        """Ask for a stop."""
        self.requested = True

    def agreed(self) -> bool:
        """Whether any rank was asked to stop: all stop together, also where one is asked during the exchange."""
        is_agreed = self._ranks.any(self.requested)
        if is_agreed and not self.requested:
            self._notify("stopping: another process of the run was told to; the run is saved first")
            self.request()
        return is_agreed

    def due(self, step: int, planned: int | None, waited: int) -> bool:
        """Whether the run ends after this step, which is not its last.

        Args:
            step: Steps done.
            planned: Steps planned; None where only time ends the run, which then needs no explanation.
            waited: Interval evaluations since the best one.
        """
        if self._last_step is not None and step >= self._last_step:
            self._notify(f"stopping after step {step}: trainer.stop_after")
            self.request()
        elif self._has_limits:
            why = reason_to_end(self._config, seconds=self._clock.agreed_seconds(), waited=waited)
            if why and planned is not None:
                self._notify(f"ended after step {step} of {planned}: {why}")
            self.is_over = bool(why)
        return self.is_over or self.agreed()
