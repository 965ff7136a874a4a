"""Printing text, tables and JSON, with unprintable characters of untrusted text escaped."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from grpo_sdk.task.row import Message

PIPE_WIDTH = 10_000
"""Columns of text in a pipe or file: a line stays one, to be searched with grep."""

MIN_CELL = 12
"""Columns that a cell of a table needs; with fewer, rows are shown as lines."""

MAX_WORD = 40
"""Longest word, such as a setting with its value, that a cell of a table keeps on one line."""

WHOLE_SHARE = 0.8
"""Share of the cells of a column whose words are kept whole; for the others, rows do not become lines."""

MAX_LABEL_SHARE = 2
"""Where rows are lines: a heading that takes more than one in so many columns stands above its cell."""

MAX_SHOWN_CHARS = 80
"""Longest value shown in an error message."""

GAP = 3
"""Spaces between the columns of a table."""

TABLE_WIDTH = 120
"""Columns of a table in a pipe or file, or more to keep its words whole, unless the variable COLUMNS says a number."""


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
    """Print results on stdout; in a pipe, tables have `TABLE_WIDTH` columns or more, and no line ends in spaces."""
    text = rendered(*renderables)
    if not sys.stdout.isatty():
        text = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
    sys.stdout.write(text)
    sys.stdout.flush()  # a pipe would keep it until the command ends, as `grpo serve` may never


def line_width() -> int | None:
    """Columns within which lines of text on stdout are folded: those of a terminal, or None in a pipe."""
    return _console(stderr=False).width if sys.stdout.isatty() else None


def rendered(*renderables: RenderableType) -> str:
    """Return what `print_out` would print to a terminal, for a pager."""
    from rich.table import Table

    console = _console(stderr=False)
    columns = os.environ.get("COLUMNS", "")
    is_set = columns.isdigit() and 0 < len(columns) < 6
    with console.capture() as captured:
        for each in renderables:
            if sys.stdout.isatty():
                console.print(fitted(each, console, console.width))
            elif isinstance(each, Table):
                width = int(columns) if is_set else TABLE_WIDTH
                console.print(fitted(each, console, width, may_be_lines=is_set), width=width if is_set else None)
            else:
                console.print(each)
    return captured.get()


def fitted(renderable: RenderableType, console: Console, width: int, *, may_be_lines: bool = True) -> RenderableType:
    """A table that fits a width without broken words; else each row as lines of `heading  cell`.

    Args:
        renderable: The table; anything else, and a table without a heading, is returned unchanged.
        console: Console that measures the cells.
        width: Columns.
        may_be_lines: Whether rows may become lines; otherwise a table that does not fit is wider.
    """
    from rich.table import Table

    if not isinstance(renderable, Table) or not renderable.show_header:
        return renderable
    least: list[int] = []
    most: list[int] = []
    for column in renderable.columns:
        measures = [console.measure(cell) for cell in (column.header, *column.cells)]
        most.append(max(measure.maximum for measure in measures))
        words = sorted(measure.minimum for measure in measures)
        word = min(words[round(WHOLE_SHARE * (len(words) - 1))], MAX_WORD)
        least.append(most[-1] if column.no_wrap else min(most[-1], max(word, MIN_CELL)))
    room = width - GAP * (len(least) - 1)
    if sum(most) <= room:
        return renderable
    if sum(least) <= room:
        widths = _shared(room, least, most)
    elif may_be_lines:
        return _as_lines(renderable, width)
    else:
        widths = [max(low, min(high, MAX_WORD)) for low, high in zip(least, most, strict=True)]
    for column, columns in zip(renderable.columns, widths, strict=True):
        column.width = columns
    return renderable


def spoken(messages: Sequence[Message]) -> Table:
    """Who said what, each message beside its role, with line breaks; untrusted text is escaped."""
    from grpo_sdk.task.row import labelled  # pydantic, which `grpo --help` does without

    listing = table("", "")
    for label, text in labelled(messages):
        shown = f'"{text}"' if label else text
        listing.add_row(visible(label), "\n".join(visible(line) for line in shown.split("\n")))
    return listing


def _shared(room: int, least: list[int], most: list[int]) -> list[int]:
    """Share columns of a terminal among those of a table: each gets its least, the rest goes to the narrowest first."""
    widths = [*least]
    for _ in range(room - sum(least)):
        growing = [index for index, columns in enumerate(widths) if columns < most[index]]
        widths[min(growing, key=lambda index: widths[index])] += 1
    return widths


def _as_lines(renderable: Table, width: int) -> RenderableType:
    """The rows of a table as blocks of lines `heading  cell`; a cell is below a heading that leaves it no room."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    _, *others = renderable.columns
    blocks: list[RenderableType] = []
    rows = zip(*(column.cells for column in renderable.columns), renderable.rows, strict=True)
    for number, (head, *cells, row) in enumerate(rows):
        parts: list[RenderableType] = []
        for column, cell in zip(others, cells, strict=True):
            if cell in ("", "-"):
                continue
            if not column.header:
                parts.append(Text(cell) if isinstance(cell, str) else cell)
                continue
            if len(str(column.header)) + GAP > width // MAX_LABEL_SHARE:
                parts += [str(column.header), Padding(cell, (0, 0, 0, 2))]
                continue
            pairs = parts[-1] if parts else None
            if not isinstance(pairs, Table):
                pairs = table("", "")
                parts.append(pairs)
            pairs.add_row(column.header, cell)
        name = Text(head) if isinstance(head, str) else head
        blocks += [*([""] if number else []), name, Padding(Group(*parts), (0, 0, 0, 2), style=row.style or "none")]
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


def table(*columns: str, rows: Iterable[Iterable[str]] = ()) -> Table:
    """Create a table without borders, and without a heading where all columns are called "".

    Args:
        *columns: Headings.
        rows: Cells of rows, whose unprintable characters are escaped.
    """
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0), show_header=any(columns))
    for index, column in enumerate(columns):
        table.add_column(column, no_wrap=index == 0, overflow="fold")
    for cells in rows:
        table.add_row(*map(visible, cells))
    return table


def format_value(value: Any) -> str:
    """Format a value as a user would write it, bounded in length."""
    match value:
        case None:
            text = "null"
        case bool():
            text = "true" if value else "false"
        case list() | tuple():
            text = f"[{', '.join(format_value(each) for each in value[:MAX_SHOWN_CHARS])}]"
        case Mapping():
            text = "{" + ", ".join(f"{name}: {format_value(each)}" for name, each in value.items()) + "}"
        case int() if value.bit_length() > 256:  # str() refuses huge numbers
            text = "(a huge number)"
        case str():
            text = value[: MAX_SHOWN_CHARS + 1] if value.isprintable() and value else repr(value[: MAX_SHOWN_CHARS + 1])
        case _:
            text = str(value)
    return text if len(text) <= MAX_SHOWN_CHARS else text[: MAX_SHOWN_CHARS - 1] + "…"
