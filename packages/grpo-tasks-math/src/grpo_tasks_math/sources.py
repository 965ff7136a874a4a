"""Rows of published datasets, from a local file or the hub; a part of the train split serves as validation split."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from grpo_sdk import Row
from grpo_sdk.data import DatasetConfig, read_rows, split_of

RowType = TypeVar("RowType", bound=Row)


def published_rows(
    config: DatasetConfig,
    make: Callable[[Mapping[str, Any]], RowType],
    *,
    needs: Sequence[str] = (),
    hub: Mapping[str, Sequence[str]],
    content: Callable[[RowType], str],
) -> Iterator[RowType]:
    """Read `config.path`, else the hub; duplicates of a problem are dropped.

    Args:
        config: Path, split and field mapping.
        make: Function of a record that returns a row; raises ValueError for a bad value.
        needs: Fields that every record must have.
        hub: `train` and `test` -> the datasets that hold them, as `owner/name[/config]`. Published sets have no
            validation split: a tenth of train, by hash of the content, is used for it.
        content: Function of a row that returns its content, equal for the same problem.

    Raises:
        DataError: no file, no network, or a record that does not fit: file, line, field.
    """
    part = "test" if config.split == "test" else "train"
    sources = [config.model_copy(update={"path": f"hub:{name}", "split": part}) for name in hub[part]]
    is_shared = config.path is None and part == "train"
    seen: set[str] = set()
    for source in sources if config.path is None else [config]:
        for row in read_rows(source, make, needs=needs, content=content):
            key = content(row)
            is_wanted = not is_shared or (split_of(key) == "validation") == (config.split == "validation")
            if is_wanted and key not in seen:
                seen.add(key)
                yield row
