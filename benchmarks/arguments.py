"""What the command lines of the benchmarks share: help that fits the terminal, and bounds of arguments."""

from __future__ import annotations

import argparse
import math
import re
import shutil
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


class Help(argparse.HelpFormatter):
    """Wraps each paragraph and each indented line of a description, with what continues it."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(_wrapped(entry, width) for entry in _entries(text))


def _entries(text: str) -> list[list[str]]:
    """Paragraphs and indented lines, each with the lines that continue it; an empty one for each empty line."""
    entries: list[list[str]] = []
    for line in text.strip("\n").splitlines():
        before = entries[-1] if entries else []
        is_continued = before and (_indent(line) > _indent(before[0]) or not (_indent(line) or _indent(before[0])))
        if line.strip() and is_continued and before[0].strip():
            before.append(line)
        else:
            entries.append([line])
    return entries


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _wrapped(entry: list[str], width: int) -> str:
    """One entry in lines of at most `width`; what continues it starts where it did."""
    if all(len(line) <= width for line in entry):
        return "\n".join(entry)
    hanging = " " * (_indent(entry[1]) if len(entry) > 1 else 2 * _indent(entry[0]))
    first = re.sub(r"(?<=\S) {2,}", lambda gap: "\0" * len(gap[0]), entry[0])  # between columns
    joined = " ".join([first.rstrip(), *(line.strip() for line in entry[1:])])
    options = {"subsequent_indent": hanging, "break_long_words": False, "break_on_hyphens": False}
    return textwrap.fill(joined, width, **options).replace("\0", " ")  # type: ignore[arg-type] # of several types


def command_line(description: str | None) -> argparse.ArgumentParser:
    """A parser whose help shows a module's description in the width of the terminal."""
    return argparse.ArgumentParser(description=description, formatter_class=Help)


def say(text: str) -> None:
    """Print a sentence in the width of the terminal."""
    print(textwrap.fill(text, shutil.get_terminal_size().columns, break_long_words=False), flush=True)


def count(text: str) -> int:
    """A whole number, 1 or more."""
    if not re.fullmatch(r"0*[1-9]\d{0,5}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 999999")
    return int(text)


def natural(text: str) -> int:
    """A whole number, 0 or more."""
    return 0 if re.fullmatch("0+", text) else count(text)


def positive(text: str) -> float:
    """A number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def fraction(text: str) -> float:
    """A number from 0 to 1."""
    value = 0.0 if re.fullmatch(r"0+(\.0*)?", text) else positive(text)
    if value > 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 1")
    return value


def several(each: Callable[[str], T]) -> Callable[[str], list[T]]:
    """Values separated by commas."""
    return lambda text: [each(part.strip()) for part in text.split(",")]


def folder(text: str) -> Path:
    """A folder that exists."""
    if not (path := Path(text)).is_dir():
        raise argparse.ArgumentTypeError(f"{text} is not a folder")
    return path


def file(text: str) -> Path:
    """A file that exists."""
    if not (path := Path(text)).is_file():
        raise argparse.ArgumentTypeError(f"{text} is not a file")
    return path


def new_file(text: str) -> Path:
    """A file that can be written."""
    if not (path := Path(text)).parent.is_dir() or path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is not a file in a folder that exists")
    return path
