"""Reading the logs of a run, which another process may be writing, or was killed or cut off while writing."""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

import orjson

from grpo_sdk.errors import DamagedFileWarning, DataError

TRAIN_LOG = Path("logs") / "train_log.jsonl"
"""Training log of a run: one line per logged step."""

MAX_LINE_BYTES = 64 * 2**20
"""Longest line that is read: a completion of 10^6 tokens with a number for each has about 50 MB."""

TAIL_BYTES = 1 << 16
"""First amount read from the end of a file: about twenty lines of a training log."""

MAX_NAMED = 20
"""Damaged lines of a log that are named; of more, the number is told."""

T = TypeVar("T")


def json_object(line: bytes) -> dict[str, Any]:
    """Parse a line of a JSONL file.

    Raises:
        ValueError: it is no JSON object.
    """
    value = orjson.loads(line)
    if not isinstance(value, dict):
        raise ValueError(f"{type(value).__name__} in place of an object")
    return value


def with_step(line: bytes) -> dict[str, Any]:
    """Parse a line of a log whose lines are of steps.

    Raises:
        ValueError: it is no JSON object, or has no step.
    """
    value = json_object(line)
    if not isinstance(value.get("step"), int):
        raise ValueError("it has no step")
    return value


def read_lines(path: Path, parse: Callable[[bytes], T], problems: list[str] | None = None) -> Iterator[tuple[int, T]]:
    """Read the lines of a log one by one, in constant memory; a log that is not there has none.

    A damaged line is named and left out, and ends nothing: the lines after it are read. A last line without a newline
    is being written, or was when the run was killed: it is skipped.

    Args:
        path: The log.
        parse: Returns the content of a line; raises a ValueError with the reason where it is damaged.
        problems: Receives each damaged line with file, line and reason; None warns of it.

    Yields:
        Position of the line in the file, in bytes, and its content.

    Raises:
        DataError: the file cannot be read.
    """
    start = number = n_damaged = 0
    try:
        with path.open("rb") as file:
            while line := file.readline(MAX_LINE_BYTES + 1):
                rest, number = line, number + 1
                while len(rest) > MAX_LINE_BYTES and not rest.endswith(b"\n"):
                    rest = file.readline(MAX_LINE_BYTES + 1)
                if not rest.endswith(b"\n"):
                    break
                try:
                    if rest is not line:
                        raise ValueError(f"longer than {MAX_LINE_BYTES} bytes")
                    value = parse(line)
                except ValueError as error:
                    n_damaged += 1
                    if n_damaged <= MAX_NAMED:
                        tell_damage(f"{path}:{number}: damaged and left out: {error}", problems)
                else:
                    yield start, value
                start = file.tell()
    except FileNotFoundError:
        return
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}.") from None
    if n_damaged > MAX_NAMED:
        tell_damage(f"{path}: {n_damaged - MAX_NAMED} more damaged lines are left out", problems)


def tell_damage(message: str, problems: list[str] | None = None) -> None:
    """Add a message to `problems`, or warn where that is None; the command line prints equal warnings once."""
    if problems is None:
        warnings.warn(message, DamagedFileWarning, stacklevel=3)
    else:
        problems.append(message)


def read_jsonl(path: Path, problems: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """Read the objects of a JSONL file, as `read_lines` does."""
    for _, value in read_lines(path, json_object, problems):
        yield value


def ends_whole(path: Path) -> bool:
    """Whether the last line of a file is complete, as it is unless it is being written, or was in a process killed."""
    with path.open("rb") as file:
        if not file.seek(0, os.SEEK_END):
            return True
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def read_last(path: Path, problems: list[str] | None = None) -> dict[str, Any]:
    """Read the last complete object of a JSONL file without reading the others; empty if there is none.

    Where the last line is damaged, all are read, to name it.

    Args:
        path: The file.
        problems: As for `read_lines`.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            window, end = TAIL_BYTES, file.seek(0, os.SEEK_END)
            while True:
                start = max(0, end - window)
                file.seek(start)
                lines = file.read(end - start).split(b"\n")
                # The text after the last newline is unfinished; that before the first may be cut off.
                whole = [line for line in lines[0 if start == 0 else 1 : -1] if line]
                if whole or start == 0 or window > MAX_LINE_BYTES:
                    return json_object(whole[-1]) if whole else {}
                window *= 16
    except FileNotFoundError:
        return {}
    except ValueError:
        return next(iter(deque(read_jsonl(path, problems), maxlen=1)), {})
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}.") from None


def open_log(path: Path, buffering: int = 0) -> IO[bytes]:
    """Open a log to append whole lines; an incomplete last line of a killed process is removed.

    Args:
        path: The log.
        buffering: As for `open`; by default every write goes to the file.

    Raises:
        OSError: it cannot be opened.
    """
    file = path.open("ab+", buffering=buffering)
    end = file.seek(0, os.SEEK_END)
    kept = end
    while kept:
        start = max(0, kept - TAIL_BYTES)
        file.seek(start)
        newline = file.read(kept - start).rfind(b"\n")
        if newline >= 0:
            kept = start + newline + 1
            break
        kept = start
    if kept < end:
        file.truncate(kept)
    return file
