"""Progress of commands: a live line in a terminal, a plain line now and then in a pipe."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from rich.text import Text

from grpo_sdk.callbacks import Callback, Finding, ResolvedDefault
from grpo_sdk.display import lines
from grpo_sdk.display.libraries import hide_bars
from grpo_sdk.display.text import err, visible
from grpo_sdk.task.watching import watching

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

REDRAW_S = 0.1
"""Shortest time between redraws; each costs about a millisecond."""

REPORT_FIRST_S = 2.0
"""Time after which work that is not done gets its first progress line in a pipe."""

REPORT_EVERY_S = 15.0
"""Time between progress lines in a pipe."""

TICK_S = 1.0
"""Time between repetitions of the newest progress."""

MIN_BAR_WIDTH, MAX_BAR_WIDTH = 8, 24
"""Columns of the progress bar."""


class LiveConsole(Protocol):
    """A console that shows the live line by itself, as the output of a notebook's cell does."""

    is_terminal: bool
    is_dumb_terminal: bool
    width: int

    def print(self, text: Text, *, soft_wrap: bool = False) -> None: ...  # noqa: D102 - as a rich console

    def start(self) -> None: ...  # noqa: D102 - as a rich live display

    def update(self, text: Text, *, refresh: bool = True) -> None: ...  # noqa: D102

    def stop(self) -> None: ...  # noqa: D102


class Waiting(Callback):
    """Shows progress and warnings of a command.

    A context manager that removes the live line however the work ends.

    Args:
        console: Console to print to: stderr, since stdout is for results; or the output of a notebook's cell.
        quiet: Show warnings only.
        clock: Monotonic clock, in seconds.
    """

    def __init__(
        self,
        console: Console | LiveConsole,
        *,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console, self.quiet, self._clock = console, quiet, clock
        self._is_live = console.is_terminal and not console.is_dumb_terminal and not quiet
        self._live: Live | LiveConsole | None = None
        self._drawn = float("-inf")
        self._reported: float | None = None
        self._activity = ("", 0, 0.0)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._open.enter_context(watching(self.on_progress))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()
        self.clear()

    def on_progress(self, what: str, done: int, total: int) -> None:
        """Draw the progress; in a pipe, print it after `REPORT_FIRST_S`, then every `REPORT_EVERY_S`.

        Args:
            what: What is done.
            done: Parts of it that are done.
            total: All of its parts; 0 where that is unknown.
        """
        segments = [visible(what), f"{done}/{total}" if total else "…", self._time_left(what, done, total)]
        if self._is_live:
            self.draw("working", segments, done / total if total else None, last=done >= total)
        elif self._reported is None:
            self._reported = self._clock() - REPORT_EVERY_S + REPORT_FIRST_S
        elif self._clock() - self._reported >= REPORT_EVERY_S and (done < total or not total):
            self._reported = self._clock()
            self.say("working", segments)

    @contextmanager
    def ticking(self, what: str) -> Iterator[Callable[[str, int, int], None]]:
        """Repeat the newest progress every second, so that a long piece of work is not silent.

        Args:
            what: What is done until progress is reported.

        Yields:
            Function that reports progress, like `on_progress`.
        """
        newest, ended = [(what, 0, 0)], threading.Event()

        def report(what: str, done: int, total: int) -> None:
            newest[0] = (what, done, total)

        def repeat() -> None:
            while not ended.is_set():
                self.on_progress(*newest[0])
                ended.wait(TICK_S)

        thread = threading.Thread(target=repeat, name="progress", daemon=True)
        thread.start()
        try:
            yield report
        finally:
            ended.set()
            thread.join()

    def _time_left(self, what: str, done: int, total: int) -> str:
        """The remaining time by the work done since an activity was first reported; empty where it is unknown."""
        activity = what.partition(",")[0]
        if activity != self._activity[0] or done < self._activity[1]:
            self._activity = (activity, done, self._clock())
        _, begin, since = self._activity
        if not begin < done < total:
            return ""
        return f"ETA {lines.duration((self._clock() - since) / (done - begin) * (total - done))}"

    def on_choices(self, choices: Sequence[ResolvedDefault]) -> None:
        """Print the chosen values with their reasons."""
        for index, reason in enumerate(lines.reasons(choices)):
            self.say("why" if index == 0 else "", [reason])

    def on_warning(self, message: str) -> None:
        """Print the warning, also when quiet."""
        self._print("warning", [visible(message)], "yellow")

    def on_diagnosis(self, finding: Finding) -> None:
        """Print what was found, why it matters and what to try, also when quiet."""
        self.on_warning(finding.headline)
        for part in (f"why: {finding.why}", f"try: {finding.fix}"):
            self._print("", [visible(part)])

    def say(self, label: str, segments: Sequence[str], style: str = "bold cyan", gap: str = lines.GAP) -> None:
        """Print a permanent line above the live one."""
        if not self.quiet:
            self._print(label, segments, style, gap)

    def _print(self, label: str, segments: Sequence[str], style: str = "", gap: str = lines.GAP) -> None:
        text = Text(lines.fold(label, segments, self.console.width if self.console.is_terminal else None, gap))
        text.stylize(style, 0, len(label))
        self.console.print(text, soft_wrap=True)

    def draw(self, label: str, segments: Sequence[str], share: float | None, *, last: bool = False) -> None:
        """Replace the live line, at most every `REDRAW_S` unless `last`."""
        now = self._clock()
        if now - self._drawn < REDRAW_S and not last:
            return
        self._drawn = now
        bar = 0 if share is None else len(lines.STEP_GAP) + MIN_BAR_WIDTH
        line = lines.crop(label, segments, self.console.width - bar, lines.STEP_GAP)
        text = Text(line, no_wrap=True, overflow="ellipsis")
        text.stylize("bold cyan", 0, len(label))
        room = self.console.width - len(text) - len(lines.STEP_GAP)
        if share is not None and room >= MIN_BAR_WIDTH:
            width = min(room, MAX_BAR_WIDTH)
            filled = round(width * min(1.0, share))
            text.append(lines.STEP_GAP).append("━" * filled, "green").append("━" * (width - filled), "bright_black")
        if self._live is None:
            self._live = self._new_live()
            self._live.start()
        self._live.update(text, refresh=True)

    def _new_live(self) -> Live | LiveConsole:
        from rich.console import Console
        from rich.live import Live

        if not isinstance(self.console, Console):
            return self.console

        # stdout is not redirected: code that redirects it meanwhile could not restore it in order.
        return Live(console=self.console, auto_refresh=False, transient=True, redirect_stdout=False)

    def clear(self) -> None:
        """Remove the live line."""
        if self._live is not None:
            self._live.stop()
            self._live = None


@contextmanager
def show_progress(what: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Show on stderr what a plugin's command does, in place of the bars of libraries; nothing where it takes a moment.

    A live line in a terminal; in a pipe a line after two seconds, and every 15 seconds from then on.

    Args:
        what: What is done, as in "loading the model".
        quiet: Show nothing.

    Yields:
        Function that reports how many parts are done, and how many there are (0 where that is unknown).

    Examples:
        >>> from grpo_sdk import show_progress
        >>> with show_progress("rating the players") as report:
        ...     report(1, 3)
    """
    hide_bars()
    if quiet:
        yield lambda done, total: None
        return
    with Waiting(err()) as waiting, waiting.ticking(what) as report:
        yield lambda done, total: report(what, done, total)
