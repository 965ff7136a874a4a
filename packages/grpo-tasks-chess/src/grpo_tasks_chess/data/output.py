from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import orjson

from grpo_sdk import UserError
from grpo_tasks_chess import formats

Format = Literal["jsonl", "parquet", "text"]
Kind = Literal["policy", "environment"]

SUFFIXES: Mapping[str, Format] = {".jsonl": "jsonl", ".parquet": "parquet", ".txt": "text"}

META_SUFFIX = ".meta.json"

_PARQUET_ROWS = 10_000
"""Rows per row group: a few megabytes, so that memory does not grow with the file."""


def format_of(path: Path, option: str | None) -> Format:
    """Return the format of a file by the option, else by its suffix.

    Raises:
        UserError: they contradict each other, or neither determines the format.
    """
    by_suffix = SUFFIXES.get(path.suffix)
    if option is None and by_suffix is None:
        raise UserError(f"{path}: the suffix says no format. Use {', '.join(SUFFIXES)}, or --format.")
    if option is not None and by_suffix not in (None, option):
        raise UserError(f"{path}: the suffix says {by_suffix}, --format says {option}.")
    return next(form for form in SUFFIXES.values() if form == (option or by_suffix))


def meta_path(path: Path) -> Path:
    """Return the path of a file's settings and summary: `OUT.meta.json`."""
    return path.with_name(path.name + META_SUFFIX)


def write(
    path: Path, records: Iterable[Mapping[str, Any]], form: Format, kind: Kind, meta: Mapping[str, Any]
) -> dict[str, Any]:
    """Write a file atomically, after its `.meta.json`, so that a reader sees both or no file.

    Args:
        path: File to write.
        records: Rows of the file.
        form: Format of the file.
        kind: Kind of the rows.
        meta: Settings and summary.

    Returns:
        `meta` with the SHA-256 of the file, as written to `.meta.json`.
    """
    unfinished = path.with_name(f".{path.name}.tmp")
    try:
        if form == "parquet":
            _write_parquet(unfinished, records, kind)
        else:
            with unfinished.open("wb") as file:
                for record in records:
                    file.write(orjson.dumps(record) if form == "jsonl" else line_of(record).encode())
                    file.write(b"\n")
        with unfinished.open("rb") as file:
            complete = {**meta, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
            os.fsync(file.fileno())
        meta_path(path).write_bytes(orjson.dumps(complete, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return complete


def read_meta(path: Path) -> dict[str, Any] | None:
    """Read the `.meta.json` of a file; None if there is no readable one."""
    try:
        meta = orjson.loads(meta_path(path).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    return meta if isinstance(meta, dict) else None


def line_of(record: Mapping[str, Any]) -> str:
    """Return a record as a line of RookWorld's text."""
    if "moves" in record:
        answer = formats.PolicyAnswer(tuple(record["moves"]), tuple(record["evaluations"]), record["best"])
        return formats.write_policy_line(record["fen"], answer)
    transition = formats.Transition(record["fen"], record["move"], tuple(record["history"]))
    outcome = formats.EnvironmentAnswer(record["next_fen"], record["reward"], record["terminated"], record["truncated"])
    return formats.write_environment_line(transition, outcome)


def environment_record(transition: formats.Transition, outcome: formats.EnvironmentAnswer) -> dict[str, Any]:
    """Return a move and its outcome as a record."""
    return {
        "fen": transition.fen,
        "move": transition.move,
        "history": list(transition.history),
        "next_fen": outcome.fen,
        "reward": outcome.reward,
        "terminated": outcome.terminated,
        "truncated": outcome.truncated,
    }


def _write_parquet(path: Path, records: Iterable[Mapping[str, Any]], kind: Kind) -> None:
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    words = arrow.list_(arrow.string())
    columns = {
        "policy": {"moves": words, "evaluations": arrow.list_(arrow.float64()), "best": arrow.string()},
        "environment": {
            "kind": arrow.string(),
            "move": arrow.string(),
            "history": words,
            "next_fen": arrow.string(),
            "reward": arrow.float64(),
            "terminated": arrow.bool_(),
            "truncated": arrow.bool_(),
        },
    }
    schema = arrow.schema({"index": arrow.int64(), "fen": arrow.string(), **columns[kind]})
    with parquet.ParquetWriter(path, schema) as writer:
        rows = iter(records)
        while batch := list(islice(rows, _PARQUET_ROWS)):
            writer.write_table(arrow.Table.from_pylist(batch, schema))


def listed(counts: Mapping[str, int]) -> str:
    """Return counts by name as text."""
    return ", ".join(f"{name} {count}" for name, count in counts.items())
