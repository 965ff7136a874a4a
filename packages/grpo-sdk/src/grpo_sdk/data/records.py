"""Records of files, saved datasets and the hub, each with the place that it comes from."""

from __future__ import annotations

import codecs
import csv
import glob
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from os.path import isfile
from pathlib import Path
from typing import Any

import orjson

from grpo_sdk.distributions import missing
from grpo_sdk.errors import DataError, RowError, first_line, near_match
from grpo_sdk.hub.cache import has_datasets_of
from grpo_sdk.hub.data_files import data_files
from grpo_sdk.hub.network import offline_reason
from grpo_sdk.paths import kind_of, user_path
from grpo_sdk.task.row import Split

MAX_LINE_BYTES = 16 * 2**20
"""A longer line is refused: a dataset is hostile until parsed."""

_SAVED_SPLITS = "dataset_dict.json"
"""File by which the folder of a `DatasetDict` is known."""

MAX_NAMES = 8
"""Names in a folder that an error lists."""

NOT_UTF_8 = "not UTF-8 text; save the file as UTF-8."

_CONVERTED = re.compile(r"arrow\.json|halffloat|\bfloat\b")
"""In the names of Arrow types whose values pyarrow does not give as they were written."""


def read_records(source: str, *, split: Split = "train") -> Iterator[tuple[str, dict[str, Any]]]:
    """Read records from JSONL, CSV or parquet files, a saved dataset, or `hub:owner/name[/config]`.

    Args:
        source: Path, name at the hub, or a pattern (`rows-*.jsonl`), whose files are read in the order of their
            names. A folder is what `save_to_disk` of `datasets` wrote.
        split: Split to read from the hub or from a saved `DatasetDict`; anything else is read whole.

    Yields:
        (where, record): the file and line (or row), and the record.

    Raises:
        DataError: nothing is there, or a line cannot be read: what was looked for and how to give a local file.
    """
    if source.startswith("hub:"):
        yield from _hub_records(source.removeprefix("hub:"), split)
        return
    path = user_path(source, "path")
    kind, files = kind_of(path), [path]
    if kind == "a folder":
        files = _saved_files(path, split)
    elif kind and kind != "a file":
        raise DataError(f"{source}: it is {kind}; rows are read from a file, several times and by several processes.")
    elif not kind and glob.has_magic(source):
        files = [file for file in map(Path, sorted(glob.glob(str(path), recursive=True))) if file.is_file()]
    elif not kind:
        siblings = glob.glob(str(Path(glob.escape(str(path.parent)), "*")))
        raise DataError(f"no file {source} (looked in {path.parent.resolve()}).{near_match(str(path), siblings)}")
    if unread := [file for file in files if file.suffix not in _READERS]:
        suffix = unread[0].suffix or "a file without a suffix"
        raise DataError(f"{unread[0]}: cannot read {suffix}; use {', '.join(_READERS)}.")
    if not files:
        raise DataError(f"{source}: no rows, found no file (looked in {path.parent.resolve()}).")
    for file in files:
        yield from _READERS[file.suffix](file)


def has_splits(source: str) -> bool:
    """Whether the rows of a source have a split: those of the hub, of a file per split, of a saved `DatasetDict`."""
    # `isfile`, because a name may be too long for `Path.is_file`.
    return source.startswith("hub:") or "{split}" in source or isfile(user_path(source, "path") / _SAVED_SPLITS)


def _saved_files(folder: Path, split: Split) -> list[Path]:
    """The files of a dataset that `save_to_disk` wrote."""
    saved = folder / split if (folder / _SAVED_SPLITS).is_file() else folder
    try:
        state = orjson.loads((saved / "state.json").read_bytes())
        return [saved / Path(file["filename"]).name for file in state["_data_files"]]
    except (OSError, ValueError, LookupError, TypeError) as error:
        names = ", ".join(sorted(path.name for path in folder.iterdir())[:MAX_NAMES]) or "no files"
        reason = f"{saved} is not what save_to_disk writes ({error})"
        raise DataError(f"{reason}. {folder} has {names}; name those to read, as in {folder}/*.parquet.") from None


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
            except ValueError as error:
                raise RowError(f"{where}: {error}") from None
            if not isinstance(record, dict):
                raise RowError(f"{where}: a {type(record).__name__} where an object {{…}} is wanted.")
            yield where, record


def parsed_json(line: bytes) -> Any:
    """The value of a line of JSON, whose integers are exact, however long.

    Raises:
        ValueError: it is no JSON, or an object in it repeats a key; says why.
    """
    try:
        text = line.decode()
        orjson.loads(line)  # stricter than json: no NaN, no half of a surrogate pair
        return json.loads(text, object_pairs_hook=_object)
    except UnicodeDecodeError:
        raise ValueError(NOT_UTF_8) from None
    except orjson.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from None
    except RecursionError:
        raise ValueError("nested too deeply.") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError(f"the key {_repeated(name for name, _ in pairs)!r} is given twice.")
    return fields


def _repeated(names: Iterable[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)


def _refuse_repeated_columns(path: Path, names: Sequence[str]) -> None:
    if (repeated := _repeated(names)) is not None:
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


def _arrow_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    import pyarrow
    import pyarrow.parquet

    try:
        if path.suffix == ".arrow":
            batches = pyarrow.ipc.open_stream(pyarrow.memory_map(str(path)))
            schema = batches.schema
        else:
            file = pyarrow.parquet.ParquetFile(path)
            schema, batches = file.schema_arrow, file.iter_batches(batch_size=1024)
        _refuse_repeated_columns(path, schema.names)
        yield from _batch_records(str(path), schema, batches)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: {error}") from None


def _batch_records(place: str, schema: Any, batches: Iterable[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    converters = {field.name: _converter(field.type) for field in schema if _CONVERTED.search(str(field.type))}
    numbers = count()
    for batch in batches:
        for record in batch.to_pylist():
            where = f"{place} row {next(numbers)}"
            for name, convert in converters.items():
                try:
                    record[name] = convert(record[name])
                except ValueError as error:
                    raise RowError(f"{where}: column {name!r}: {error}") from None
            yield where, record


def _converter(kind: Any) -> Callable[[Any], Any]:
    """What makes of a value of an Arrow type, as pyarrow gives it, the one that was written."""
    from pyarrow import types

    if getattr(kind, "extension_name", "") == "arrow.json":
        return lambda text: None if text is None else parsed_json(text.encode())
    if types.is_float16(kind) or types.is_float32(kind):
        narrow = kind.to_pandas_dtype()
        return lambda number: number and float(str(narrow(number)))  # 0.1, and not 0.10000000149011612
    if types.is_struct(kind):
        parts = {part.name: _converter(part.type) for part in kind}
        return lambda record: record and {name: convert(record[name]) for name, convert in parts.items()}
    if types.is_map(kind):
        item = _converter(kind.item_type)
        return lambda pairs: pairs and [(key, item(value)) for key, value in pairs]
    if hasattr(kind, "value_field"):
        item = _converter(kind.value_type)
        return lambda items: items and list(map(item, items))
    return lambda value: value


_READERS: Mapping[str, Callable[[Path], Iterator[tuple[str, dict[str, Any]]]]] = {
    ".jsonl": _jsonl_records,
    ".csv": _csv_records,
    ".parquet": _arrow_records,
    ".arrow": _arrow_records,
}


def _hub_records(name: str, split: Split) -> Iterator[tuple[str, dict[str, Any]]]:
    repository, config = "/".join(name.split("/")[:2]), "/".join(name.split("/")[2:]) or None

    def unavailable(reason: str) -> DataError:
        return DataError(
            f"dataset {repository!r}{f' (config {config!r})' if config else ''}, split {split!r}, "
            f"could not be loaded: {reason}. "
            "Without a network, give a local file: ?path=rows.jsonl (.csv, .parquet; {split} names one per split)."
        )

    if not all(name.split("/")):
        raise DataError(f"hub:{name}: give hub:OWNER/NAME, or hub:OWNER/NAME/CONFIG.")
    offline = offline_reason()  # which also tells `datasets`: it would try five times
    if offline and "datasets" not in sys.modules and not has_datasets_of(name.split("/")[0]):
        raise unavailable(f"it is not in the cache, and the hub is not used: {offline}")
    files: dict[str, Path] = {}
    try:
        files = data_files(repository, config, split) or {}
        if not files or not all(map(_is_read, files.values())):
            import datasets

            loaded, files = datasets.load_dataset(repository, config, split=split), {}
    except ModuleNotFoundError as error:
        if absent := next((path for path in files.values() if not path.is_file()), None):
            raise unavailable(f"{absent} is not there") from None
        if missing(error):
            raise
        raise unavailable(f"no cached files, or only for {error.name} to read: pip install {error.name}") from None
    except Exception as error:  # datasets raises a different class for each kind of network, name and split trouble
        raise unavailable(f"{type(error).__name__}: {first_line(error)}") from None
    for address, path in files.items():
        for where, record in _READERS.get(path.suffix, _jsonl_records)(path):
            yield where.replace(str(path), f"{repository} {Path(address).name}", 1), record
    if not files:
        guessed = _guessed_columns(repository, loaded)
        for where, record in _batch_records(repository, loaded.data.schema, loaded.data.to_batches(1024)):
            yield where, GuessedRecord(record, guessed)


def _is_read(path: Path) -> bool:
    """Whether a file can be read here; what is called .json is lines, or a list that `datasets` reads."""
    if path.suffix != ".json" or not path.is_file():
        return path.suffix in _READERS and path.is_file()
    with path.open("rb") as file:
        return file.read(1024).lstrip(codecs.BOM_UTF8 + b" \n\r\t").startswith(b"{")


class GuessedRecord(dict[str, Any]):
    """A record of a file that is not here, but only what `datasets` has made of it.

    Args:
        fields: Names and values.
        guessed: Column -> why it is not known what was written in it.

    Attributes:
        guessed: As given.
    """

    def __init__(self, fields: Mapping[str, Any], guessed: Mapping[str, str]) -> None:
        super().__init__(fields)
        self.guessed = guessed


def _guessed_columns(repository: str, loaded: Any) -> dict[str, str]:
    """Column -> why it is not known what was written in it: of CSV each, as parts of one are guessed by themselves."""
    builder = loaded.info.builder_name
    if builder not in ("csv", "json"):  # a parquet file says what its columns are
        return {}
    cure = f"hf download {repository} --repo-type dataset, where the hub can be reached; or ?path=rows.jsonl"
    return {
        each.name: f"column {each.name!r}: `datasets` has guessed {each.type}, what was written is not known: {cure}"
        for each in loaded.data.schema
        if builder == "csv" or not _is_known(each.type)
    }


def _is_known(kind: Any) -> bool:
    """Whether values of an Arrow type are what was written in JSON: text, whole numbers, true and false."""
    from pyarrow import types

    if kind.num_fields:
        return all(_is_known(kind.field(index).type) for index in range(kind.num_fields))
    known = ("string", "large_string", "null", "extension<arrow.json>")
    return types.is_integer(kind) or types.is_boolean(kind) or str(kind) in known
