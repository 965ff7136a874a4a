"""Help that fits into narrow terminals."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable

import click

MAX_WIDTH = 80
"""Columns of a help text in a wide terminal, as click has them."""

MIN_WIDTH = 30
"""Columns that a help text takes in any terminal."""

TERM_SHARE = 0.4
"""Largest part of a line for the names of options and commands; a longer one has a line of its own."""

EXAMPLE = "  "
"""How the lines of an example begin."""


class HelpFormatter(click.HelpFormatter):
    """Formatter for terminals of any width: click's writes at least 50 columns, and never folds examples.

    Args:
        indent_increment: Columns of each level.
        width: Columns of a line; None is the terminal's.
        max_width: Most columns of a line, where `width` is None.
    """

    def __init__(self, indent_increment: int = 2, width: int | None = None, max_width: int | None = None) -> None:
        if width is None:
            width = max(MIN_WIDTH, min(shutil.get_terminal_size().columns, max_width or MAX_WIDTH) - 2)
        super().__init__(indent_increment, width, max_width)

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write names with their descriptions, which begin in the same column."""
        rows = list(rows)
        widest = min(col_max, int(self.width * TERM_SHARE))
        column = self.current_indent + min(widest, max((len(name) for name, _ in rows), default=0)) + col_spacing
        for name, description in rows:
            lines = _fold_name(name, self.width - self.current_indent)
            lines = [f"{'':{self.current_indent}}{line}" for line in lines]
            texts = textwrap.wrap(description, self.width - column)
            if texts and len(lines[-1]) <= column - col_spacing:
                lines[-1] = f"{lines[-1]:{column}}{texts.pop(0)}"
            lines += [f"{'':{column}}{text}" for text in texts]
            self.write("".join(f"{line}\n" for line in lines))

    def write_text(self, text: str) -> None:
        """Write paragraphs; the commands of a block of examples are folded as a shell reads them."""
        head, mark, block = text.partition("\b\n")
        if not mark:
            super().write_text(text)
            return
        if head.strip():
            super().write_text(head.rstrip())
            self.write_paragraph()
        block, gap, rest = block.partition("\n\n")
        for line in block.rstrip().split("\n"):
            for folded in _fold_example(line, self.width - self.current_indent):
                self.write(f"{'':{self.current_indent}}{folded}".rstrip() + "\n")
        if gap and rest.strip():
            self.write_paragraph()
            self.write_text(rest)


def _fold_name(name: str, width: int) -> list[str]:
    """Fold the name of an option between its values, `[one|two]`."""
    return [line.replace("| ", "|") for line in textwrap.wrap(name.replace("|", "| "), width)]


def _fold_example(line: str, width: int) -> list[str]:
    """Fold a command between its words; each line but the last ends in the backslash that joins it to the next."""
    if len(line) <= width or not line.startswith(EXAMPLE):
        return [line]
    lines = textwrap.wrap(
        line.strip(),
        width - len(" \\"),
        initial_indent=EXAMPLE,
        subsequent_indent=EXAMPLE * 2,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [*(f"{each} \\" for each in lines[:-1]), lines[-1]]
