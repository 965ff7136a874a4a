from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from grpo_core import Row, Task, TaskConfig, reward
from grpo_core.errors import DataError
from grpo_core.task.rows import RowLoader
from grpo_core.task.watching import watching


class Sum(Row):
    a: int
    b: int


@reward()
def exact(answer, row):
    return 1.0


def rows_of(load: Callable[..., Any], config: TaskConfig | None = None, *, row: type[Row] = Sum) -> tuple[Any, ...]:
    task = Task("add", load, lambda row: "p", lambda text, row: text, (exact,), row=row)
    return RowLoader(task, "demo.add", config or TaskConfig()).load("demo.add")


def endless(config) -> Iterable[Sum]:
    return (Sum(id=str(number), a=number, b=0) for number in itertools.count())


def test_size_takes_the_first_rows_and_asks_for_no_more() -> None:
    assert [row.a for row in rows_of(endless, TaskConfig(size=2))] == [0, 1]


def test_rows_without_end_end_in_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("REPORT_S", 0.0), ("MANY_ROWS", 2), ("MOST_ROWS", 3)):
        monkeypatch.setattr(f"grpo_core.task.rows.{name}", value)
    reports: list[str] = []
    with (
        watching(lambda what, *counts: reports.append(what)),
        pytest.raises(DataError, match=r"load\(\) gave more than 3 rows\. If it does not end, give the size .*\?size="),
    ):
        rows_of(endless)
    assert reports[1:] == ["rows of demo.add, 1 so far", "rows of demo.add, 2 so far; size=N takes the first N"]
    assert len(rows_of(endless, TaskConfig(size=3))) == 3


def test_rows_that_take_long_are_reported_while_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo_core.task.rows.REPORT_S", 0.0)

    def load(config) -> Iterable[Sum]:
        return [Sum(id=str(number), a=number, b=0) for number in range(3)]

    reports: list[tuple[str, int, int]] = []
    with watching(lambda *report: reports.append(report)):
        rows_of(load)
        rows_of(load, TaskConfig(size=2))
    rows_of(load)
    unknown = [(f"rows of demo.add, {number} so far", 0, 0) for number in range(3)]
    assert reports == [*unknown, ("rows of demo.add", 0, 2), ("rows of demo.add", 1, 2)]


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ([], "task 'demo.add': rows.jsonl has no rows."),
        (["train"], "rows.jsonl has 1 row: 1 train, 0 validation, 0 test. Give more rows, or one file per split with"),
        (["train", "train", "validation"], "rows.jsonl has 3 rows: 2 train, 1 validation, 0 test. Give more"),
    ],
)
def test_a_split_of_a_file_without_rows_counts_those_of_the_others(splits: list[str], message: str) -> None:
    def load(config) -> Iterable[Sum]:
        return [Sum(id=str(number), a=number, b=0) for number, split in enumerate(splits) if split == config.split]

    with pytest.raises(DataError) as caught:
        rows_of(load, TaskConfig(path="rows.jsonl", split="test", size=1))
    assert message in str(caught.value)


def test_an_empty_file_of_one_split_is_named() -> None:
    with pytest.raises(DataError, match=r"task 'demo\.add': test\.jsonl has no rows\."):
        rows_of(lambda config: [], TaskConfig(path="{split}.jsonl", split="test"))


class Choosing(TaskConfig):
    themes: tuple[str, ...] = ()
    longest: int = 9


@pytest.mark.parametrize(
    ("path", "splits", "message"),
    [
        ("a.csv", [], "task 'demo.add': a.csv has no rows, or none with longest=3&themes=mateIn7,fork."),
        ("{split}.csv", [], "task 'demo.add': test.csv has no rows, or none with longest=3&themes=mateIn7,fork."),
        ("a.csv", ["train"], "a.csv has 1 row with longest=3&themes=mateIn7,fork: 1 train, 0 validation, 0 test."),
    ],
)
def test_options_that_may_leave_no_row_of_a_file_are_named(path: str, splits: list[str], message: str) -> None:
    def load(config) -> Iterable[Sum]:
        return [Sum(id=str(number), a=number, b=0) for number, split in enumerate(splits) if split == config.split]

    config = Choosing(path=path, split="test", size=5, seed=1, themes=("mateIn7", "fork"), longest=3)
    with pytest.raises(DataError) as caught:
        rows_of(load, config)
    assert message in str(caught.value)


def sum_with(**changes: Any) -> Sum:
    return Sum(**{"id": "x", "a": 1, "b": 2, **changes})


class Loose(Row):
    note: Any


@pytest.mark.parametrize(
    ("rows", "row_class", "message"),
    [
        (
            [],
            Sum,
            "task 'demo.add' has no rows for split 'train'; try another split, or give a local file with ?path=.",
        ),
        ([Row(id="x")], Sum, "load() gave a Row, not a Sum"),
        (None, Sum, "load() gave NoneType; it must give rows"),
        ([sum_with(), sum_with()], Sum, "two rows have the id 'x'"),
        ([sum_with(gold="\ud800")], Sum, "row 'x' cannot be written as JSON"),
        ([Loose(id="x", note=math.nan)], Loose, "row 'x' changes when written as JSON"),
        ([Loose(id="x", note={1: 2})], Loose, "row 'x' changes when written as JSON"),
        ([Loose(id="x", note=object())], Loose, "row 'x' cannot be written as JSON"),
    ],
)
def test_rows_that_would_break_later_are_refused(rows: Any, row_class: type[Row], message: str) -> None:
    with pytest.raises(DataError) as caught:
        rows_of(lambda config: rows, row=row_class)

    assert message in str(caught.value)


def test_a_row_that_pydantic_refuses_names_task_and_field() -> None:
    def bad(config) -> Iterable[Sum]:
        yield Sum(id="x", a="one", b=2)

    with pytest.raises(DataError, match=r"task 'demo\.add': load\(\) made a row that is refused: a: .*\(given 'one'\)"):
        rows_of(bad)


def test_what_load_raises_is_told_in_one_line() -> None:
    def early(config) -> Iterable[Sum]:
        raise RuntimeError("boom")

    def late(config) -> Iterable[Sum]:
        yield sum_with()
        raise KeyError("b")

    for load, what in ((early, "RuntimeError"), (late, "KeyError")):
        with pytest.raises(DataError, match=rf"^task 'demo.add': load\(\) raised {what} \(test_rows.py:\d+\): "):
            rows_of(load)
