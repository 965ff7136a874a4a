"""Records of files and of the hub: JSONL, CSV, parquet, each with the place that it comes from."""

from __future__ import annotations

import codecs
import csv
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from grpo_core.errors import DataError, RowError, near_match
from grpo_core.hub.cache import has_datasets_of
from grpo_core.hub.network import offline_reason
from grpo_core.paths import kind_of, user_path
from grpo_core.task.row import Split

MAX_LINE_BYTES = 16 * 2**20
"""A longer line is refused: a dataset is hostile until parsed."""

NOT_UTF_8 = "not UTF-8 text; save the file as UTF-8."

_LONG_INTEGER = re.compile(rb"[0-9]{19}")

_KEY_END = re.compile(rb'"[ \t]*:')


def read_records(source: str, *, split: Split = "train") -> Iterator[tuple[str, dict[str, Any]]]:
    """Read records from a JSONL, CSV or parquet file, or `hub:owner/name[/config]`.

    Args:
        source: Path, or name at the hub.
        split: Split to read from the hub; a file is read whole.

    Yields:
        (where, record): the file and line (or row), and the record.

    Raises:
        DataError: nothing is there, or a line cannot be read: what was looked for and how to give a local file.
    """
    if source.startswith("hub:"):
        yield from _hub_records(source.removeprefix("hub:"), split)
        return
    path = user_path(source, "path")
    kind = kind_of(path)
    if kind and kind != "a file":
        raise DataError(f"{source}: it is {kind}; rows are read from a file, several times and by several processes.")
    if not kind:
        siblings = [str(path.parent / name) for name in _names_in(path.parent)]
        raise DataError(f"no file {source} (looked in {path.parent.resolve()}).{near_match(str(path), siblings)}")
    readers = {".jsonl": _jsonl_records, ".csv": _csv_records, ".parquet": _parquet_records}
    if path.suffix not in readers:
        raise DataError(f"{source}: cannot read {path.suffix or 'a file without a suffix'}; use {', '.join(readers)}.")
    yield from readers[path.suffix](path)


def _names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # no such folder: there is nothing near to suggest
        return []


def _jsonl_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with path.open("rb") as lines:
        for number in count(1):
            line = lines.readline(MAX_LINE_BYTES + 1)
            if not line:
                return
            where = f"{path}:{number}"
            if len(line) > MAX_LINE_BYTES:
                raise RowError(f"{where}: a line of more than {MAX_LINE_BYTES} bytes.")
            line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
            if not line.strip():
                continue
            try:
                record = parsed_json(line)
            except orjson.JSONDecodeError as error:
                raise RowError(f"{where}: {json_problem(line, error)}") from None
            try:
                repeated = _repeated_key(line, record)
            except RecursionError:
                raise RowError(f"{where}: nested too deeply.") from None
            if repeated:
                raise RowError(f"{where}: the key {repeated!r} is given twice.")
            if not isinstance(record, dict):
                raise RowError(f"{where}: a {type(record).__name__} where an object {{…}} is wanted.")
            yield where, record


def parsed_json(line: bytes) -> Any:
    """The value of a line of JSON, whose integers are exact, however long.

    Raises:
        orjson.JSONDecodeError: it is no JSON.
    """
    value = orjson.loads(line)
    if _LONG_INTEGER.search(line) is None:
        return value
    with suppress(ValueError, RecursionError):  # more digits than Python reads
        return json.loads(line)  # orjson makes a float of an integer beyond 64 bits
    return value


def json_problem(line: bytes, error: orjson.JSONDecodeError) -> str:
    """Why a line is not read as JSON: text in another encoding is told from a mistake."""
    try:
        line.decode()
    except UnicodeDecodeError:
        return NOT_UTF_8
    return f"not JSON: {error}"


def _repeated_key(line: bytes, record: Any) -> str:
    """A key that an object of a JSON line repeats, of which orjson keeps the last; empty where none does.

    Every key is followed by a colon, so a line with no more `":` than keys repeats none, and most lines are that: the
    slower reader, which sees the pairs, reads only the others.
    """
    if len(_KEY_END.findall(line)) <= _count_keys(record):
        return ""
    repeated: list[str] = []

    def see(pairs: list[tuple[str, Any]]) -> None:
        repeated.extend(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)

    json.loads(line, object_pairs_hook=see)
    return repeated[0] if repeated else ""


def _count_keys(value: Any) -> int:
    total, values = 0, [value]
    for item in values:  # grows while it is walked
        if isinstance(item, dict):
            total += len(item)
            values += item.values()
        elif isinstance(item, list):
            values += item
    return total


def _refuse_repeated_columns(path: Path, names: Sequence[str]) -> None:
    if repeated := next((name for name, count in Counter(names).items() if count > 1), None):
        raise DataError(f"{path}: the column {repeated!r} is named twice.")


def _csv_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))  # as much as a line of JSON; by default 128 KiB
    with path.open(encoding="utf-8-sig", newline="") as text:
        reader = csv.DictReader(text)
        try:
            names = reader.fieldnames or ()
            _refuse_repeated_columns(path, names)
            if separator := next((mark for mark in ";\t|" if len(names) == 1 and mark in names[0]), ""):
                raise DataError(
                    f"{path}: the separator looks like {separator!r}; save the file with commas, or as .jsonl."
                )
            for record in reader:
                where = f"{path}:{reader.line_num}"
                if None in record or None in record.values():
                    raise RowError(f"{where}: {len(names)} columns are named, this line has another number.")
                yield where, dict(record)
        except UnicodeDecodeError:
            raise DataError(f"{path}: {NOT_UTF_8}") from None  # it is decoded ahead of the line that is read
        except csv.Error as error:
            raise DataError(f"{path}:{reader.reader.line_num}: {error}") from None


def _parquet_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    import pyarrow
    import pyarrow.parquet

    floats = (pyarrow.float16(), pyarrow.float32())
    try:
        number = 0
        file = pyarrow.parquet.ParquetFile(path)
        _refuse_repeated_columns(path, file.schema_arrow.names)
        narrow = {field.name: field.type.to_pandas_dtype() for field in file.schema_arrow if field.type in floats}
        for batch in file.iter_batches(batch_size=1024):
            for record in batch.to_pylist():
                for name, kind in narrow.items():  # 0.1, and not 0.10000000149011612
                    if record[name] is not None:
                        record[name] = float(str(kind(record[name])))
                yield f"{path} row {number}", record
                number += 1
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: {error}") from None


def _hub_records(name: str, split: Split) -> Iterator[tuple[str, dict[str, Any]]]:
    owner_and_name, config = "/".join(name.split("/")[:2]), "/".join(name.split("/")[2:]) or None

    def unavailable(reason: str) -> DataError:
        return DataError(
            f"dataset {owner_and_name!r}{f' (config {config!r})' if config else ''}, split {split!r}, "
            f"could not be loaded: {reason}. "
            "Without a network, give a local file: ?path=rows.jsonl (.csv, .parquet; {split} names one per split)."
        )

    offline = offline_reason()  # which also tells `datasets`: it would try five times
    if offline and "datasets" not in sys.modules and not has_datasets_of(name.split("/")[0]):
        raise unavailable(f"it is not in the cache, and the hub is not used: {offline}")
    import datasets

    try:
        loaded = datasets.load_dataset(owner_and_name, config, split=split)
    except Exception as error:  # datasets raises a different class for each kind of network, name and split trouble
        text = (str(error) or "no reason given").splitlines()[0]
        raise unavailable(f"{type(error).__name__}: {text}") from None
    for number, record in enumerate(loaded):
        yield f"{owner_and_name} row {number}", dict(record)
