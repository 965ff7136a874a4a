"""Sources of rows: files, the hub, and procedural generators with disjoint splits."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count
from random import Random
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from grpo_sdk.data.records import MAX_LINE_BYTES, has_splits, read_records
from grpo_sdk.errors import DataError, ExhaustedError, near_match
from grpo_sdk.task.row import Row, Split, TaskConfig, first_problem

__all__ = [
    "MAX_GENERATED",
    "MAX_LINE_BYTES",
    "CommaSeparated",
    "DataError",
    "DatasetConfig",
    "ExhaustedError",
    "ProceduralConfig",
    "Record",
    "procedural",
    "read_records",
    "read_rows",
    "split_of",
    "stable_id",
]

T = TypeVar("T")
RowType = TypeVar("RowType", bound=Row)


def _split(value: Any) -> Any:
    return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else value


CommaSeparated = Annotated[tuple[T, ...], BeforeValidator(_split)]
"""Several values; as text they are separated by commas."""

_SPLIT_OF_TENTH: tuple[Split, ...] = ("train",) * 8 + ("validation", "test")
_MAX_ATTEMPTS = 2_000
"""Draws per procedural row before its space counts as exhausted; a split holds a tenth of it at least."""


class DatasetConfig(TaskConfig):
    """Options of a task whose rows come from a file or the hub.

    Attributes:
        fields: Field -> column of the file: `?fields=question:problem,answer:solution`.
    """

    fields: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _read_fields(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("fields"), str):
            pairs = [pair.split(":") for pair in data["fields"].split(",")]
            if any(len(pair) != 2 or not all(pair) for pair in pairs):
                raise ValueError("fields are ours:theirs, separated by commas, as in fields=question:problem")
            names = [ours.strip() for ours, _ in pairs]
            if repeated := next((name for name in names if names.count(name) > 1), ""):
                raise ValueError(f"fields names {repeated!r} twice")
            return {**data, "fields": {ours.strip(): theirs.strip() for ours, theirs in pairs}}
        return data


MAX_GENERATED = 10**6
"""Most rows that a task generates: they are made at the start of a run, and held in memory."""


class ProceduralConfig(TaskConfig):
    """Options of a task that generates its rows.

    Attributes:
        size: Rows generated.
        min_difficulty: Easiest level; rows take the levels in turn.
        max_difficulty: Hardest level.
    """

    size: int | None = Field(default=1000, ge=1, le=MAX_GENERATED)
    min_difficulty: int = 1
    max_difficulty: int = 3

    @field_validator("path")
    @classmethod
    def _no_path(cls, value: str | None) -> str | None:
        if value is not None:
            raise ValueError("this task generates its rows and reads no file")
        return value

    @model_validator(mode="after")
    def _levels_in_order(self) -> ProceduralConfig:
        if self.min_difficulty > self.max_difficulty:
            raise ValueError(f"min_difficulty {self.min_difficulty} is above max_difficulty {self.max_difficulty}")
        return self


def split_of(content: str) -> Split:
    """The split that a row with this content belongs to, by hash: 80% train, 10% validation, 10% test.

    Args:
        content: What makes the problem, without its number or its source, so that equal problems share a split.
    """
    digest = hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=8, person=b"grpo-split").digest()
    return _SPLIT_OF_TENTH[int.from_bytes(digest, "big") % 10]


def stable_id(content: str) -> str:
    """A short id of a row's content, the same in every process: 12 hex digits.

    Args:
        content: What makes the problem.
    """
    return hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def procedural(
    config: ProceduralConfig, make: Callable[[Random, int], RowType], *, content: Callable[[RowType], str] | None = None
) -> Iterator[RowType]:
    """Generate distinct rows; row i is a pure function of (seed, i, difficulty range) and of the split.

    A row belongs to the split that its content hashes to, so splits are disjoint for every seed.

    Args:
        config: Seed, split, size and difficulty range.
        make: `(random, difficulty)` -> a row, whose `id` is replaced by a hash of its content.
        content: What makes two rows the same problem; by default every field but `id` and `difficulty`.

    Raises:
        ExhaustedError: the space of problems holds fewer distinct rows than asked for.
    """
    describe = content or (lambda row: row.model_dump_json(exclude={"id", "difficulty"}))
    levels = config.max_difficulty - config.min_difficulty + 1
    seen: set[str] = set()
    exhausted: set[int] = set()
    for index in count():
        difficulty = config.min_difficulty + index % levels
        if difficulty in exhausted:
            continue
        for attempt in range(_MAX_ATTEMPTS):
            row = make(Random(f"{config.seed}/{index}/{difficulty}/{attempt}"), difficulty)
            key = describe(row)
            if key not in seen and split_of(key) == config.split:
                seen.add(key)
                yield row.model_copy(update={"id": stable_id(key), "difficulty": float(difficulty)})
                break
        else:
            exhausted.add(difficulty)  # a small level runs out before the others: they go on
            if len(exhausted) == levels:
                hint = f", and size is {config.size}. Give a smaller one: ?size={len(seen)}" if config.size else ""
                raise ExhaustedError(
                    f"only {len(seen)} distinct rows of split {config.split!r} exist at difficulty "
                    f"{config.min_difficulty} to {config.max_difficulty}{hint}.",
                    len(seen),
                )


def read_rows(
    config: DatasetConfig,
    make: Callable[[Record], RowType],
    *,
    needs: Iterable[str],
    hub: str | None = None,
    content: Callable[[RowType], str] | None = None,
) -> Iterator[RowType]:
    """Read rows from `config.path`, else from the hub.

    A path with `{split}` in it names the files of a split, and a saved `DatasetDict` has its splits. The rows of any
    other path are split by hash.

    Args:
        config: Path, split and field mapping.
        make: A record with our field names -> a row; may raise ValueError for a bad value.
        needs: Fields that every record must have.
        hub: `owner/name` or `owner/name/config`, used when there is no path.
        content: What makes two rows the same problem; by default the row's `id`.

    Raises:
        DataError: no file, no network, or a record that does not fit: file, line, field.
    """
    needed = tuple(needs)
    source = config.path or (f"hub:{hub}" if hub else None)
    if source is None:
        raise DataError("this task has no data of its own: give a local file with ?path=rows.jsonl.")
    presplit = has_splits(source)
    unread = set(config.fields) - set(needed)  # until a record shows that the task reads them, too
    for where, columns in read_records(source.replace("{split}", config.split), split=config.split):
        record = _mapped(where, columns, config.fields, needed, unread)
        try:
            row = make(record)
        except ValidationError as error:
            raise DataError(f"{where}: {first_problem(error)}") from None
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
            # What int(record["n"]) or record["text"].strip() raises for a value of the wrong kind.
            reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            raise DataError(f"{where}: {reason}") from None
        if unread := unread - record.read if not record.is_read_whole else set():
            name = min(unread)
            raise DataError(
                f"?fields={name}:{config.fields[name]}: this task reads no field {name!r}."
                f"{near_match(name, needed)} It reads: {', '.join(sorted({*needed, *record.read}))}."
            )
        if presplit or split_of(content(row) if content else row.id) == config.split:
            yield row


def _mapped(
    where: str, columns: Mapping[str, Any], fields: Mapping[str, str], needed: Sequence[str], unread: Collection[str]
) -> Record:
    """The columns of a record under the names of the task's fields.

    Args:
        where: File and line, for messages.
        columns: The record as it was read.
        fields: Field -> its column.
        needed: Fields that the record must have.
        unread: Fields of `fields` of which it is not known yet whether the task reads them.

    Raises:
        DataError: a column is missing.
    """

    def missing(column: str, purpose: str = "") -> str:
        return (
            f"{where}: no field {column!r}{purpose}.{near_match(column, columns)} It has: "
            f"{', '.join(repr(each) if ',' in str(each) else str(each) for each in columns)}."
        )

    for name in needed:
        column = fields.get(name, name)
        if column not in columns:
            given = next((other for other in fields if other not in needed and near_match(other, [name])), None)
            meant = f" in place of ?fields={given}:{fields[given]}" if given is not None else ""
            raise DataError(f"{missing(column)} Say where it is with ?fields={name}:COLUMN{meant}.")
    record = Record(where, columns)
    for name, column in fields.items():
        if column in columns:
            record[name] = columns[column]
        elif name in unread:
            raise DataError(missing(column, f" for ?fields={name}:{column}"))
    return record


class Record(dict[str, Any]):
    """A record that remembers which of its fields were read.

    Args:
        fields: Names and values.

    Attributes:
        where: File and line (or row).
        read: Names of the fields that were read.
        is_read_whole: Whether all fields were read at once, as by `Model(**record)`.
        guessed: Column -> why it is not known what was written in it, where a library has guessed its type.
    """

    def __init__(self, where: str, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.where = where
        self.read: set[str] = set()
        self.is_read_whole = False
        self.guessed: Mapping[str, str] = getattr(fields, "guessed", {})

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """As of a dict."""
        self.read.add(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        self.read.add(str(name))
        return super().__contains__(name)

    def keys(self) -> Any:
        """As of a dict."""
        self.is_read_whole = True
        return super().keys()

    def items(self) -> Any:
        """As of a dict."""
        self.is_read_whole = True
        return super().items()

    def __iter__(self) -> Iterator[str]:
        self.is_read_whole = True
        return super().__iter__()
