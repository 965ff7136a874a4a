"""Progress of a plugin's own commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from grpo_sdk.display.libraries import hide_bars
from grpo_sdk.display.progress import Waiting
from grpo_sdk.display.text import err


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
