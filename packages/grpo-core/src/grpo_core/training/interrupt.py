"""Ending a run on request: the first signal asks, the second insists."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

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
