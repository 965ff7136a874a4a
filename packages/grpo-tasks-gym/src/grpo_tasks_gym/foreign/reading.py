"""Reads a library's task in a process of its own, which has limits of time and memory and a fixed PYTHONHASHSEED."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import orjson
from pydantic import TypeAdapter

from grpo_sdk import KillablePool, Outcome, UserError, inside_worker
from grpo_sdk.data import DataError
from grpo_tasks_gym.foreign.source import Description, checked, opened

MEMORY_MIB = 8192
"""Address space that reading may take; data sets are mapped into it."""

PIECE_BYTES = 8 << 20
"""Rows are sent in pieces of about this size."""


@dataclasses.dataclass(frozen=True)
class Contents:
    """A library's task, read.

    Attributes:
        description: What is known of it.
        records: Its rows; see `source.Record`.
    """

    description: Description
    records: tuple[dict[str, Any], ...]


_DESCRIPTION = TypeAdapter(Description)


def describe(job: str, timeout_s: float, stamp: str = "") -> Description:
    """What is known of a library's task; a process that scores looks itself, since its code is there already."""
    if inside_worker():
        return opened(job).describe()
    return contents(job, timeout_s, stamp).description


@lru_cache(maxsize=8)
def contents(job: str, timeout_s: float, stamp: str = "") -> Contents:
    """The library's task, read in a process of its own, and once as long as its files are the same.

    Args:
        job: What is read, as `opened` describes it.
        timeout_s: Limit of reading.
        stamp: Changes with its files.

    Raises:
        DataError: it cannot be read; says why.
    """
    records: list[dict[str, Any]] = []
    with KillablePool(
        "grpo_tasks_gym.foreign.reading:make",
        workers=1,
        memory_mib=MEMORY_MIB,
        name="read-rows",
        has_spare=False,
        environment={"PYTHONHASHSEED": "0"},
    ) as pool:
        while True:
            request = orjson.dumps({"job": job, "start": len(records)})
            answer = orjson.loads(_value(pool.submit(request, timeout_s).result(), timeout_s))
            if "error" in answer:
                raise DataError(answer["error"])
            records += answer["records"]
            if answer["is_last"]:
                return Contents(_DESCRIPTION.validate_python(answer["description"]), tuple(records))


def _value(outcome: Outcome, timeout_s: float) -> bytes:
    match outcome.status:
        case "ok":
            return outcome.value
        case "timeout":
            raise DataError(f"reading its rows took longer than {timeout_s:g} s; allow more: ?load_timeout_s=600.")
        case "crashed":
            raise DataError(f"its code ended the process that reads its rows ({outcome.why}).")
        case "error":
            raise DataError(f"its code failed: {outcome.why.rstrip('.')}.")
    raise DataError(f"its rows could not be read: {outcome.why.rstrip('.')}.")


def make() -> Callable[[bytes], bytes]:
    """The handler of the process: {job, start} -> description and rows from there on."""
    reading: dict[str, Iterator[dict[str, Any]]] = {}

    def read(payload: bytes) -> bytes:
        request = orjson.loads(payload)
        job, start = request["job"], request["start"]
        try:
            task = opened(job)
            description = task.describe()
            if not start:
                reading[job] = checked(task.records(), orjson.loads(job)["limit"])
            records, is_last = _piece(reading[job])
        except UserError as error:
            return orjson.dumps({"error": str(error)})
        facts = dataclasses.asdict(description)
        return orjson.dumps({"description": facts, "records": records, "is_last": is_last})

    return read


def _piece(records: Iterator[dict[str, Any]]) -> tuple[list[dict[str, Any]], bool]:
    piece: list[dict[str, Any]] = []
    size = 0
    for record in records:
        piece.append(record)
        size += len(orjson.dumps(record))
        if size > PIECE_BYTES:
            return piece, False
    return piece, True
