import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from scoring_tasks import Sum

from grpo_sdk import Row, Task, TaskConfig
from grpo_sdk.errors import DataError
from grpo_sdk.task.rows import RowLoader
from grpo_sdk.task.watching import watching


class Loose(Row):
    note: Any


def rows_of(load: Callable[..., Any], config: TaskConfig | None = None, *, row: type[Row] = Sum) -> tuple[Any, ...]:
    task = Task("add", load, lambda row: "p", lambda text, row: text, (lambda answer: 1.0,), row=row)
    return RowLoader(task, "demo.add", config or TaskConfig()).load("demo.add")


def endless(config) -> Iterable[Sum]:
    return (Sum(id=str(number), a=number, b=0) for number in itertools.count())


def test_size_takes_the_first_rows_and_asks_for_no_more() -> None:
    assert [row.a for row in rows_of(endless, TaskConfig(size=2))] == [0, 1]


def test_rows_without_end_end_in_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("REPORT_S", 0.0), ("MANY_ROWS", 2), ("MAX_ROWS", 3)):
        monkeypatch.setattr(f"grpo_sdk.task.rows.{name}", value)
    reports: list[str] = []
    with (
        watching(lambda what, *counts: reports.append(what)),
        pytest.raises(DataError, match=r"load\(\) gave more than 3 rows.*\?size="),
    ):
        rows_of(endless)
    assert reports[1:] == ["rows of demo.add, 1 so far", "rows of demo.add, 2 so far; size=N takes the first N"]
    assert len(rows_of(endless, TaskConfig(size=3))) == 3


class Choosing(TaskConfig):
    themes: tuple[str, ...] = ()
    longest: int = 9


CHOICE = {"themes": ("mateIn7", "fork"), "longest": 3}


@pytest.mark.parametrize(("path", "options", "splits", "message"), [
    ("a.csv", {}, [], r"'demo\.add': a\.csv has no rows\."),
    ("{split}.csv", {}, [], r"'demo\.add': test\.csv has no rows\."),
    ("a.csv", {}, ["train"], r"a\.csv has 1 row: 1 train, 0 validation, 0 test\..* one file per split"),
    ("a.csv", {}, ["train", "train", "validation"], r"a\.csv has 3 rows: 2 train, 1 validation, 0 test\."),
    # Options that may leave no row are named.
    ("a.csv", CHOICE, [], r"a\.csv has no rows, or none with longest=3&themes=mateIn7,fork\."),
    ("a.csv", CHOICE, ["train"], r"a\.csv has 1 row with longest=3&themes=mateIn7,fork: 1 train, 0 validation, 0"),
])  # fmt: skip
def test_a_split_of_a_file_without_rows_counts_those_of_the_others(path, options, splits, message):
    def load(config) -> Iterable[Sum]:
        return [Sum(id=str(number), a=number, b=0) for number, split in enumerate(splits) if split == config.split]

    with pytest.raises(DataError, match=message):
        rows_of(load, Choosing(path=path, split="test", size=5, seed=1, **options))


def sum_with(**changes: Any) -> Sum:
    return Sum(**{"id": "x", "a": 1, "b": 2, **changes})


def refused(config) -> Iterable[Sum]:
    yield sum_with(a="one")


def late(config) -> Iterable[Sum]:
    yield sum_with()
    raise KeyError("b")


@pytest.mark.parametrize(("load", "row_class", "message"), [
    (lambda config: [], Sum, r"'demo\.add' has no rows for split 'train'; .*another split, .*\?path="),
    (lambda config: [Row(id="x")], Sum, r"load\(\) gave a Row, not a Sum"),
    (lambda config: None, Sum, r"load\(\) gave NoneType; it must give rows"),
    (lambda config: [sum_with(), sum_with()], Sum, "two rows have the id 'x'"),
    (lambda config: [sum_with(gold="\ud800")], Sum, "row 'x' cannot be written as JSON"),
    (lambda config: [Loose(id="x", note={1: 2})], Loose, "row 'x' changes when written as JSON"),
    (refused, Sum, r"'demo\.add': load\(\) made a row that is refused: a: .*\(given 'one'\)"),
    (late, Sum, r"^task 'demo\.add': load\(\) raised KeyError \(test_rows\.py:\d+\): "),
])  # fmt: skip
def test_rows_that_would_break_later_are_refused(load: Any, row_class: type[Row], message: str) -> None:
    with pytest.raises(DataError, match=message):
        rows_of(load, row=row_class)
