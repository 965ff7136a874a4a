"""Loading the rows of `chess.policy` and `chess.environment` from files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from grpo_sdk.data import DatasetConfig, read_records, read_rows
from grpo_tasks_chess.data import rookworld
from grpo_tasks_chess.data.output import Kind
from grpo_tasks_chess.records import PositionRow, is_text, position_key

RowType = TypeVar("RowType", bound=PositionRow)

_LOGGER = logging.getLogger(__name__)


def rows_of(config: DatasetConfig, kind: Kind, make: Callable[[Mapping[str, Any]], RowType]) -> Iterator[RowType]:
    """Yield the rows of `config.path`, each position or move once, split by the hash of the position.

    There are two kinds of files: records with fields, as `grpo chess make-…-data` writes them, where an invalid row is
    an error; and RookWorld's lines, both kinds mixed, whose known mistakes are corrected (see `data.rookworld`) and
    whose remaining invalid rows are skipped.

    Raises:
        DataError: no file, or an invalid record; names file, line and field.
    """
    assert config.path is not None
    source = config.path.replace("{split}", config.split)
    if _holds_lines(source):
        is_presplit = "{split}" in config.path
        return _each_once(_rows_of_lines(source, kind, None if is_presplit else config.split, make), source)
    rows = read_rows(config, make, needs=("fen",), content=lambda row: position_key(row.fen))
    return _each_once(rows, source)


def _each_once(rows: Iterator[RowType], source: str) -> Iterator[RowType]:
    """Yield the first row of each position or move; say so where a later one contradicts it."""
    answers: dict[str, int] = {}
    has_warned = False
    for row in rows:
        answer = hash(tuple(sorted((row.gold or "").split())))  # in any order of the moves
        if row.id not in answers:
            answers[row.id] = answer
            yield row
        elif answers[row.id] != answer and not has_warned:
            _LOGGER.warning("%s: %s comes again with other labels. The first ones are kept.", source, row.fen)
            has_warned = True


def packaged(name: str) -> str:
    """Return the path of a labelled set of the package."""
    return str(Path(__file__).with_name("positions") / name)


def _holds_lines(source: str) -> bool:
    if source.endswith(".txt"):
        return True
    first = next(iter(read_records(source)), None)
    return first is not None and is_text(first[1])


def _rows_of_lines(
    source: str, kind: Kind, split: rookworld.Split | None, make: Callable[[Mapping[str, Any]], RowType]
) -> Iterator[RowType]:
    report = rookworld.Report()
    has_warned = False
    for where, record in rookworld.records(source, kind, split, report=report):
        try:
            row = make(record)
        except ValueError as problem:
            _LOGGER.info("%s: skipped: %s", where, problem)
            continue
        if report.labels.are_inverted and not has_warned:
            _LOGGER.warning("%s: %s.", source, report.labels)
            has_warned = True
        yield row
