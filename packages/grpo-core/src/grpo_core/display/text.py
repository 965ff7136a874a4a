"""Printing text, tables and JSON, with unprintable characters of untrusted text escaped."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

PIPE_WIDTH = 10_000
"""Columns of text in a pipe or file: a line stays one, to be searched with grep."""

MIN_CELL = 12
"""Columns that a cell of a table needs in a terminal; below, rows are shown as lines."""

TABLE_WIDTH = 120
"""Columns of a table in a pipe or file, unless the variable COLUMNS says another number; --json has whole values."""


def visible(text: str) -> str:
    """Escape every unprintable character, so that a completion cannot control the terminal."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def quoted(text: str, limit: int) -> str:
    """Return text in double quotes on one line; of a text longer than `limit`, the middle is left out."""
    if len(text) > limit:
        tail = limit // 3
        text = f"{text[: limit - tail - 1]}…{text[-tail:]}"
    return f'"{visible(text)}"'


def err() -> Console:
    """Return the console for everything except results: stderr."""
    return _console(stderr=True)


def print_out(*renderables: RenderableType) -> None:
    """Print results on stdout; in a pipe, tables have `TABLE_WIDTH` columns, and no line ends in spaces."""
    if sys.stdout.isatty():
        console = _console(stderr=False)
        console.print(*(_fitted(each, console) for each in renderables), sep="\n")
        return
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in rendered(*renderables).splitlines()))


def rendered(*renderables: RenderableType) -> str:
    """Return what `print_out` would print to a terminal, for a pager."""
    from rich.table import Table

    console = _console(stderr=False)
    columns = os.environ.get("COLUMNS", "")
    table_width = int(columns) if columns.isdigit() and 0 < len(columns) < 6 else TABLE_WIDTH
    with console.capture() as captured:
        for each in renderables:
            is_limited = isinstance(each, Table) and not sys.stdout.isatty()
            shown = _fitted(each, console) if sys.stdout.isatty() else each
            console.print(shown, width=table_width if is_limited else None)
    return captured.get()


def _fitted(renderable: RenderableType, console: Console) -> RenderableType:
    """A table that is too wide for a terminal, with each row as lines of `heading  cell`; anything else unchanged."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    if not isinstance(renderable, Table) or not renderable.show_header:
        return renderable
    first, *others = renderable.columns
    widths = [console.measure(cell).maximum for cell in first.cells]
    if max(widths, default=0) + len(others) * (MIN_CELL + 3) <= console.width:
        return renderable
    blocks: list[RenderableType] = []
    rows = zip(*(column.cells for column in renderable.columns), renderable.rows, strict=True)
    for number, (head, *cells, row) in enumerate(rows):
        inner = table("", "")
        inner.show_header = False
        for column, cell in zip(others, cells, strict=True):
            if cell not in ("", "-"):
                inner.add_row(column.header, cell)
        name = Text(head) if isinstance(head, str) else head
        blocks += [*([""] if number else []), name, Padding(inner, (0, 0, 0, 2), style=row.style or "none")]
    return Group(*blocks)


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    # isatty of the stream itself: rich also respects FORCE_COLOR, which does not imply a width.
    width = None if stream.isatty() else PIPE_WIDTH
    return Console(file=stream, highlight=False, markup=False, emoji=False, width=width)


def print_json(data: Any) -> None:
    """Print data as JSON on stdout, with unprintable characters escaped."""
    import json

    import orjson

    text = orjson.dumps(data, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS, default=str).decode()
    # Only strings can contain such a character, and there \u… denotes it; orjson escapes those below 0x20.
    lines = (
        line if line.isprintable() else "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in line)
        for line in text.split("\n")
    )
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def table(*columns: str) -> Table:
    """Create a table with a heading and without borders."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 3, 0, 0))
    for index, column in enumerate(columns):
        table.add_column(column, no_wrap=index == 0, overflow="fold")
    return table
