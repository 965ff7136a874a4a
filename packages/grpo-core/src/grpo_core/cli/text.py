"""Text for people: consoles, and untrusted text made harmless."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

PIPE_WIDTH = 10_000
"""Columns of an output that is no terminal: one row stays one line, to be searched with grep."""


def visible(text: str) -> str:
    """Text with every unprintable character escaped, so that a completion cannot steer the terminal."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def quoted(text: str, limit: int) -> str:
    """Text in double quotes on one line, at most `limit` characters of it, the middle left out."""
    if len(text) > limit:
        tail = limit // 3
        text = f"{text[: limit - tail - 1]}…{text[-tail:]}"
    return f'"{visible(text)}"'


def err() -> Console:
    """The console of everything that is no result: stderr."""
    return _console(stderr=True)


def print_out(*renderables: RenderableType) -> None:
    """Print results on stdout; in a pipe, a row is one line without trailing spaces or control codes."""
    if sys.stdout.isatty():
        _console(stderr=False).print(*renderables, sep="\n")
        return
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in rendered(*renderables).splitlines()))


def rendered(*renderables: RenderableType) -> str:
    """What `print_out` would print, for a pager: as wide as stdout, with its colours."""
    console = _console(stderr=False)
    with console.capture() as captured:
        console.print(*renderables, sep="\n")
    return captured.get()


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    # isatty of the stream itself: rich also counts FORCE_COLOR, which says nothing about a width.
    width = None if stream.isatty() else PIPE_WIDTH
    return Console(file=stream, highlight=False, markup=False, emoji=False, width=width)


def print_json(data: Any) -> None:
    """Print data as JSON, alone on stdout, everything unprintable in it escaped."""
    import json

    import orjson

    text = orjson.dumps(data, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS, default=str).decode()
    # Only strings can hold such a character, and there \u… is the same character; orjson escapes those below 0x20.
    lines = (
        line if line.isprintable() else "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in line)
        for line in text.split("\n")
    )
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def table(*columns: str) -> Table:
    """A plain table: a heading, no borders."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 3, 0, 0))
    for index, column in enumerate(columns):
        made.add_column(column, no_wrap=index == 0, overflow="fold")
    return made
