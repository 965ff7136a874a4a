"""Reading the JSONL logs of a run, which another process may be writing or may have been killed while writing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import orjson

from grpo_core.errors import DataError

TRAIN_LOG = Path("logs") / "train_log.jsonl"
"""Training log of a run: one line per logged step."""

MAX_LINE_BYTES = 64 * 2**20
"""Longest line that is read: a completion of 10^6 tokens with a number for each has about 50 MB."""

TAIL_BYTES = 1 << 16
"""First amount read from the end of a file: about twenty lines of a training log."""


def read_jsonl(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read the objects of a JSONL file one by one, in constant memory.

    A last line without a newline is being written, or was when the run was killed: it is skipped.

    Args:
        path: File to read.

    Yields:
        Line number from 1, and the object.

    Raises:
        DataError: the file cannot be read, or a line is too long or not a JSON object; names file and line.
    """
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                if not line.endswith(b"\n"):
                    if len(line) > MAX_LINE_BYTES:
                        raise DataError(f"{path}: line {number} is longer than {MAX_LINE_BYTES} bytes: not our log.")
                    return
                yield number, _parsed(line, f"{path}: line {number}")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}.") from None


def read_until_corrupt(path: Path, problems: list[str]) -> Iterator[dict[str, Any]]:
    """Read the objects of a JSONL file up to the first that cannot be read; nothing if there is no such file.

    Args:
        path: The file.
        problems: Receives the reason why reading ended early, with file and line.
    """
    try:
        for _, line in read_jsonl(path) if path.is_file() else ():
            yield line
    except DataError as error:
        problems.append(str(error))


def ends_whole(path: Path) -> bool:
    """Whether the last line of a file is complete, as it is unless it is being written, or was in a process killed."""
    with path.open("rb") as file:
        if not file.seek(0, os.SEEK_END):
            return True
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def read_last(path: Path) -> dict[str, Any] | None:
    """Read the last complete object of a JSONL file without reading the others; None if there is none.

    Raises:
        DataError: the file cannot be read, or that line is corrupt; names the file.
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
                    return _parsed(whole[-1], f"{path}: the last line") if whole else None
                window *= 16
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}.") from None


def last_logged(run_dir: Path) -> dict[str, Any]:
    """Read the last line of a run's training log: its step and metrics; empty before the first step.

    Raises:
        DataError: it is corrupt; names the file.
    """
    log = run_dir / TRAIN_LOG
    return (read_last(log) if log.is_file() else None) or {}


def open_log(path: Path) -> IO[bytes]:
    """Open a JSONL file to append whole lines, unbuffered; an incomplete last line of a killed process is removed.

    Raises:
        OSError: it cannot be opened.
    """
    file = path.open("ab+", buffering=0)
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


def _parsed(line: bytes, where: str) -> dict[str, Any]:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise DataError(f"{where} is corrupt: {error.msg}. Delete the line, or restore the file.") from None
    if not isinstance(value, dict):
        raise DataError(f"{where} is corrupt: {type(value).__name__} in place of an object. Delete the line.")
    return value
