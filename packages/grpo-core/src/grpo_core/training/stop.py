"""When a run ends before its last planned step: by request, by its time limit, or by patience."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

from grpo_core.config import TrainerConfig
from grpo_core.training.clock import RunClock
from grpo_core.training.world import World

HANGUP = getattr(signal, "SIGHUP", None)
"""A lost terminal; None on Windows, which has no such signal."""


@contextmanager
def stop_on_signal(stop: threading.Event, say: Callable[[str], None], *, may_insist: bool = True) -> Iterator[None]:
    """Set `stop` on the first SIGINT, SIGTERM or SIGHUP within the block; a second one raises KeyboardInterrupt.

    SIGHUP only ever asks: a terminal that closes sends it twice, from the shell and from the kernel. Where it is
    ignored, as under nohup, it stays so. Outside the main thread nothing is installed, because Python delivers signals
    there only.

    Args:
        stop: Asked between completions; the run then ends, saved.
        say: Told what happens, in a thread of its own: a signal may fall into the middle of what is being printed.
        may_insist: Whether a second signal ends the block at once. Not in one of several ranks: its launcher passes on
            the Ctrl-C that the terminal sent it already.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    message = "stopping: the run is saved first" + ("; once more to stop at once" if may_insist else "")
    speaker = threading.Thread(target=say, args=(message,), daemon=True)

    def ask(number: int, frame: FrameType | None) -> None:
        if speaker.ident is None:
            stop.set()
            speaker.start()
        elif may_insist and number != HANGUP:
            raise KeyboardInterrupt

    asking = [signal.SIGINT, signal.SIGTERM]
    if HANGUP is not None and signal.getsignal(HANGUP) is not signal.SIG_IGN:
        asking.append(HANGUP)
    previous = {each: signal.signal(each, ask) for each in asking}
    try:
        yield
    finally:
        for each, handler in previous.items():
            signal.signal(each, handler)
        if speaker.ident is not None:
            speaker.join()


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


class StopSwitch:
    """Decides after each step whether a run goes on; every rank asks at the same moments and gets the same answer.

    Args:
        config: The limits.
        world: The processes of the run.
        clock: Of the run.
        warn: Receives the reason.
        has_limits: Whether the time limit and patience end the run; not where somebody asked for exactly some steps.

    Attributes:
        is_over: Whether a limit has ended the run, as planned.
    """

    def __init__(
        self,
        config: TrainerConfig,
        world: World,
        clock: RunClock,
        warn: Callable[[str], None],
        *,
        has_limits: bool = True,
    ) -> None:
        self._config, self._world, self._clock, self._warn = config, world, clock, warn
        self._has_limits = has_limits
        self._event = threading.Event()
        self._last_step: int | None = None
        self.is_over = False

    def listen(self) -> AbstractContextManager[None]:
        """Take signals as requests to stop, within a block."""
        return stop_on_signal(self._event, self._warn, may_insist=self._world.size == 1)

    def count_from(self, step: int) -> None:
        """Take the step that `trainer.stop_after` counts from."""
        after = self._config.stop_after
        self._last_step = None if after is None else step + after

    @property
    def requested(self) -> bool:
        """Whether this process was asked to stop."""
        return self._event.is_set()

    def request(self) -> None:
        """Ask for a stop."""
        self._event.set()

    def agreed(self) -> bool:
        """Whether any rank was asked to stop: all stop together."""
        if self._world.any(self.requested):
            self.request()
        return self.requested

    def due(self, step: int, planned: int | None, waited: int) -> bool:
        """Whether the run ends after this step, which is not its last.

        Args:
            step: Steps done.
            planned: Steps planned; None where only time ends the run, which then needs no explanation.
            waited: Interval evaluations since the best one.
        """
        if self._last_step is not None and step >= self._last_step:
            self._warn(f"stopping after step {step}: trainer.stop_after")
            self.request()
        elif self._has_limits:
            why = reason_to_end(self._config, seconds=self._clock.agreed_seconds(), waited=waited)
            if why and planned is not None:
                self._warn(f"ended after step {step} of {planned}: {why}")
            self.is_over = bool(why)
        return self.is_over or self.agreed()
