from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from grpo_core import Row, TaskConfig
from grpo_core.data import (
    MAX_LINE_BYTES,
    DatasetConfig,
    ProceduralConfig,
    procedural,
    read_records,
    read_rows,
    split_of,
    stable_id,
)
from grpo_core.data.records import parsed_json
from grpo_core.errors import DataError, ExhaustedError, UserError


class Sum(Row):
    a: int
    b: int


def make(random: Random, difficulty: int) -> Sum:
    most = 10**difficulty - 1
    return Sum(id="", a=random.randint(0, most), b=random.randint(0, most))


def content(row: Sum) -> str:
    return f"{min(row.a, row.b)}+{max(row.a, row.b)}"


def generate(config: ProceduralConfig) -> list[Sum]:
    return list(islice(procedural(config, make, content=content), config.size))


# Procedural rows


def test_rows_are_a_pure_function_of_the_options() -> None:
    config = ProceduralConfig(seed=3, size=40, min_difficulty=2)

    assert generate(config) == generate(config)
    assert generate(config) != generate(config.model_copy(update={"seed": 4}))


def test_known_rows_stay_what_they_are() -> None:
    # A change here changes every seeded run: it needs a new task version and a changelog entry.
    rows = generate(ProceduralConfig(seed=0, size=2, min_difficulty=2, max_difficulty=2))

    assert [(row.id, row.a, row.b) for row in rows] == [("118ed4cfa70d", 87, 88), ("9a1a479bbf01", 76, 7)]


def test_fewer_rows_are_the_first_of_more() -> None:
    assert generate(ProceduralConfig(size=10)) == generate(ProceduralConfig(size=50))[:10]


def test_rows_take_the_levels_in_turn() -> None:
    rows = generate(ProceduralConfig(size=6, min_difficulty=2, max_difficulty=4))

    assert [row.difficulty for row in rows] == [2.0, 3.0, 4.0, 2.0, 3.0, 4.0]


def test_ids_name_the_content() -> None:
    rows = generate(ProceduralConfig(size=50, min_difficulty=2))

    assert [row.id for row in rows] == [stable_id(content(row)) for row in rows]
    assert len({row.id for row in rows}) == 50


@settings(max_examples=25)
@given(st.integers(), st.integers(), st.permutations(["train", "validation", "test"]))
def test_splits_are_disjoint_whatever_the_seeds(one: int, two: int, splits: list[str]) -> None:
    here = generate(ProceduralConfig(seed=one, split=splits[0], size=20, max_difficulty=2))
    there = generate(ProceduralConfig(seed=two, split=splits[1], size=20, max_difficulty=2))

    assert not {content(row) for row in here} & {content(row) for row in there}


def test_the_default_content_leaves_out_id_and_difficulty() -> None:
    # The same problem at two difficulties is the same problem: it must not be trained on and tested with.
    def same(random: Random, difficulty: int) -> Sum:
        return Sum(id=str(difficulty), difficulty=float(difficulty), a=random.randint(0, 20), b=0)

    def problems(split: str) -> list[int]:
        config = ProceduralConfig(split=split, size=2, min_difficulty=1, max_difficulty=2)
        return [row.a for row in islice(procedural(config, same), 2)]

    assert not set(problems("train")) & set(problems("test"))
    assert len(set(problems("train"))) == 2


def test_splits_hold_eight_one_and_one_tenth() -> None:
    splits = [split_of(str(number)) for number in range(5000)]

    # Three standard deviations of a binomial share at n = 5000: 3·√(0.8·0.2/5000) = 0.017, 3·√(0.1·0.9/5000) = 0.013
    assert splits.count("train") / 5000 == pytest.approx(0.8, abs=0.017)
    assert splits.count("validation") / 5000 == pytest.approx(0.1, abs=0.013)


def test_a_space_with_too_few_problems_says_how_many_there_are() -> None:
    # One digit each, order ignored: 10·11/2 = 55 problems, of which those that hash to the split remain.
    exist = sum(split_of(f"{a}+{b}") == "train" for a in range(10) for b in range(a, 10))
    with pytest.raises(ExhaustedError) as caught:
        generate(ProceduralConfig(size=56, max_difficulty=1))

    assert caught.value.available == exist
    assert str(caught.value) == (
        f"only {exist} distinct rows of split 'train' exist at difficulty 1 to 1, and size is 56. "
        f"Give a smaller one: ?size={exist}."
    )


def test_a_level_that_runs_out_leaves_the_others_going() -> None:
    rows = generate(ProceduralConfig(size=200, min_difficulty=1, max_difficulty=2))

    assert len({content(row) for row in rows}) == 200


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_difficulty": 4}, "min_difficulty 4 is above max_difficulty 3"),
        ({"path": "rows.jsonl"}, "this task generates its rows and reads no file"),
        ({"size": 0}, "greater than or equal to 1"),
    ],
)
def test_procedural_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ProceduralConfig(**options)


# Rows from files


class Question(Row):
    text: str


RECORDS = [{"question": f"Q{number}", "answer": str(number)} for number in range(30)]


def question(record: Any) -> Question:
    return Question(id=stable_id(record["question"]), gold=record["answer"], text=record["question"])


def write_jsonl(path: Path, records: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def rows_of(path: str, **options: Any) -> Iterator[Question]:
    return read_rows(DatasetConfig(path=path, **options), question, needs=("question", "answer"))


def write_csv(path: Path, records: list[dict[str, Any]]) -> str:
    path.write_text("question,answer\n" + "".join(f"{r['question']},{r['answer']}\n" for r in records))
    return str(path)


def write_parquet(path: Path, records: list[dict[str, Any]]) -> str:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), path)
    return str(path)


WRITERS = {"jsonl": write_jsonl, "csv": write_csv, "parquet": write_parquet}


@pytest.mark.parametrize("suffix", WRITERS)
def test_every_format_gives_the_same_rows(tmp_path: Path, suffix: str) -> None:
    path = WRITERS[suffix](tmp_path / f"rows.{suffix}", RECORDS)

    assert list(rows_of(path)) == [question(r) for r in RECORDS if split_of(stable_id(r["question"])) == "train"]


def test_the_splits_of_one_file_share_no_row_and_lose_none(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "rows.jsonl", RECORDS)
    parts = [{row.id for row in rows_of(path, split=split)} for split in ("train", "validation", "test")]

    assert sum(map(len, parts)) == len(set.union(*parts)) == 30


def test_rows_of_one_content_stay_in_one_split(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "rows.jsonl", RECORDS)
    config = DatasetConfig(path=path)
    rows = list(read_rows(config, question, needs=("question",), content=lambda row: "the same"))

    assert len(rows) == (30 if split_of("the same") == "train" else 0)


def test_a_path_with_split_in_it_names_one_file_per_split(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "my-train.jsonl", RECORDS[:4])
    write_jsonl(tmp_path / "my-test.jsonl", RECORDS[4:])

    assert len(list(rows_of(f"{tmp_path}/my-{{split}}.jsonl"))) == 4
    assert len(list(rows_of(f"{tmp_path}/my-{{split}}.jsonl", split="test"))) == 26


def test_fields_say_which_column_is_which(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", [{"problem": "Q", "solution": "4"}])
    rows = list(rows_of(f"{tmp_path}/{{split}}.jsonl", fields="question:problem, answer:solution"))

    assert [(row.text, row.gold) for row in rows] == [("Q", "4")]


@pytest.mark.parametrize("fields", ["question", "question:a:b", ":problem", "question:", ""])
def test_a_field_mapping_that_is_none_is_explained(fields: str) -> None:
    with pytest.raises(ValueError, match="fields are ours:theirs, separated by commas"):
        DatasetConfig(fields=fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            "question:problem,answer:solution,qestion:problem",
            "task reads no field 'qestion'. Did you mean 'question'",
        ),
        (
            "qestion:problem,answer:solution",
            "Say where it is with ?fields=question:COLUMN in place of ?fields=qestion:problem.",
        ),
        ("question:problem,answer:solutoin", "no field 'solutoin'. Did you mean 'solution'?"),
        (
            "question:problem,answer:solution,note:notes",
            "no field 'notes' for ?fields=note:notes. It has: problem",
        ),
    ],
)
def test_a_field_that_nobody_has_or_reads_is_refused(tmp_path: Path, fields: str, message: str) -> None:
    write_jsonl(tmp_path / "train.jsonl", [{"problem": "Q", "solution": "4"}])
    with pytest.raises(DataError, match=re.escape(message)):
        list(rows_of(f"{tmp_path}/{{split}}.jsonl", fields=fields))


def test_a_column_whose_name_has_a_comma_is_listed_as_one(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text('"question, please",answer\nQ,4\n')
    with pytest.raises(DataError, match=re.escape("It has: 'question, please', answer.")):
        list(rows_of(f"{tmp_path}/{{split}}.csv"))


def test_a_field_that_a_task_may_read_is_taken(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", [{"question": "Q", "answer": "4", "level": 2.0}])
    config = DatasetConfig(path=f"{tmp_path}/{{split}}.jsonl", fields="difficulty:level")

    def get(record: Mapping[str, Any]) -> Row:
        return Row(id="1", difficulty=record.get("difficulty"))

    def whole(record: Mapping[str, Any]) -> Row:
        return Row(**{"id": "1", **{name: value for name, value in record.items() if name == "difficulty"}})

    for make in (get, whole):
        assert [row.difficulty for row in read_rows(config, make, needs=("question",))] == [2.0]


def test_a_field_that_is_mapped_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="fields names 'question' twice"):
        DatasetConfig(fields="question:a,question:b")


def test_text_that_looks_like_keys_repeats_none(tmp_path: Path) -> None:
    record = {"question": 'say "a": or "a":, "a" :', "answer": {"question": 1}, "list": [{"a": 1}, {"a": 2}]}
    (tmp_path / "r.jsonl").write_bytes(orjson.dumps(record) + b"\n")
    assert [found for _, found in read_records(f"{tmp_path}/r.jsonl")] == [record]


@given(st.recursive(st.text() | st.integers(-9, 9), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_no_record_without_repeated_keys_is_refused(value: Any) -> None:
    line = orjson.dumps({"x": value})
    assert parsed_json(line) == {"x": value}
    with pytest.raises(ValueError, match="the key 'x' is given twice"):
        parsed_json(line[:-1] + b', "x" :1}')


def test_repeated_columns_of_a_parquet_file_are_refused(tmp_path: Path) -> None:
    table = pyarrow.Table.from_arrays([pyarrow.array([1]), pyarrow.array([2])], names=["a", "a"])
    pyarrow.parquet.write_table(table, tmp_path / "r.parquet")
    with pytest.raises(DataError, match="the column 'a' is named twice"):
        list(read_records(f"{tmp_path}/r.parquet"))


def test_what_is_no_file_is_called_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "rows.jsonl")
    (tmp_path / "rows.csv").mkdir()
    for source, message in {
        f"{tmp_path}/rows.jsonl": "it is a pipe; rows are read from a file",
        f"{tmp_path}/rows.csv": "rows.csv is not what save_to_disk writes",
        "/dev/null": "it is a device",
        "-": "standard input and output are not used here",
        f"{tmp_path}/{'a' * 300}.csv": "out of reach (File name too long)",
    }.items():
        with pytest.raises(UserError, match=re.escape(message)):
            list(read_records(source))
    monkeypatch.setenv("HOME", str(tmp_path))
    write_jsonl(tmp_path / "mine.jsonl", [{"a": 1}])
    assert [record for _, record in read_records("~/mine.jsonl")] == [{"a": 1}]


def test_files_of_a_pattern_are_read_in_the_order_of_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("b/rows-2.jsonl", "b/rows-1.jsonl", "a/rows-1.jsonl", "rows[1].jsonl"):
        Path(name).parent.mkdir(exist_ok=True)
        write_jsonl(Path(name), [{"a": name}, {"a": ""}])
    write_parquet(Path("b/rows-3.parquet"), [{"a": 7}])

    def places(source: str) -> list[str]:
        return [where for where, _ in read_records(source)]

    assert places("b/*.jsonl") == ["b/rows-1.jsonl:1", "b/rows-1.jsonl:2", "b/rows-2.jsonl:1", "b/rows-2.jsonl:2"]
    assert places("**/rows-1.jsonl")[::2] == ["a/rows-1.jsonl:1", "b/rows-1.jsonl:1"]
    assert places("b/rows-[13].*") == ["b/rows-1.jsonl:1", "b/rows-1.jsonl:2", "b/rows-3.parquet row 0"]
    assert places("rows[1].jsonl") == ["rows[1].jsonl:1", "rows[1].jsonl:2"]  # a file of that name


def test_a_pattern_without_files_says_what_was_looked_for(tmp_path: Path) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    for pattern in ("*-2.jsonl", "folder*"):
        with pytest.raises(DataError, match=rf"{re.escape(pattern)}: no rows, found no file \(looked in {tmp_path}\)"):
            list(read_records(f"{tmp_path}/{pattern}"))
    (tmp_path / "notes.md").write_text("")
    with pytest.raises(DataError, match=r"notes\.md: cannot read \.md; use \.jsonl"):
        list(read_records(f"{tmp_path}/*"))


def test_patterns_have_files_of_each_split(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for part in range(2):
            write_jsonl(tmp_path / f"{split}-{part}.jsonl", [{"question": f"{split} {part}", "answer": "1"}])
    rows = {
        split: [row.text for row in rows_of(f"{tmp_path}/{{split}}-*.jsonl", split=split)]
        for split in ("train", "test")
    }
    assert rows == {"train": ["train 0", "train 1"], "test": ["test 0", "test 1"]}


def test_a_saved_dataset_is_read_with_its_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.chdir(tmp_path)
    features = datasets.Features({"question": datasets.Value("string"), "part": datasets.Value("float32")})
    train = datasets.Dataset.from_dict({"question": ["a", "b", "c"], "part": [0.1, None, 3.0]}, features=features)
    train.save_to_disk("one", num_shards=2)
    datasets.DatasetDict({"train": train, "test": train.select([2])}).save_to_disk("all")

    assert list(read_records("one")) == [
        ("one/data-00000-of-00002.arrow row 0", {"question": "a", "part": 0.1}),
        ("one/data-00000-of-00002.arrow row 1", {"question": "b", "part": None}),
        ("one/data-00001-of-00002.arrow row 0", {"question": "c", "part": 3.0}),
    ]

    def make(record: Mapping[str, Any]) -> Row:
        return Row(id=record["question"])

    def ids(path: str, split: str) -> list[str]:
        return [row.id for row in read_rows(DatasetConfig(path=path, split=split), make, needs=("question",))]

    assert (ids("all", "train"), ids("all", "test"), ids("all/{split}", "test")) == (["a", "b", "c"], ["c"], ["c"])
    assert {split for split in ("train", "validation", "test") for _ in ids("one", split)} == {
        split_of(name) for name in "abc"
    }
    with pytest.raises(DataError, match=r"all/validation is not .* save_to_disk .*has dataset_dict\.json, test"):
        ids("all", "validation")


def test_a_folder_that_is_no_saved_dataset_is_refused(tmp_path: Path) -> None:
    def read() -> None:
        list(read_records(f"{tmp_path}/saved"))

    (tmp_path / "saved").mkdir()
    for state, message in {
        "": "save_to_disk",
        '{"_data_files": []}': "no rows, found no file",
        '{"_data_files": [{"filename": "../other.arrow"}]}': "saved/other.arrow",  # nothing outside of the folder
    }.items():
        (tmp_path / "saved" / "state.json").write_text(state)
        write_jsonl(tmp_path / "other.arrow", [{"a": 1}])
        with pytest.raises(DataError, match=message):
            read()
    with pytest.raises(DataError, match=r"name those to read, as in .*/\*\.parquet"):
        list(read_records(str(tmp_path)))


def test_json_columns_hold_what_was_written_and_not_its_json(tmp_path: Path) -> None:
    kind = pyarrow.json_(pyarrow.string())
    texts = ['"Rome"', "7", "123456789012345678901234567890", None]
    values = ["Rome", 7, 123456789012345678901234567890, None]
    column = pyarrow.ExtensionArray.from_storage(kind, pyarrow.array(texts))
    items = pyarrow.ListArray.from_arrays(pyarrow.array([0, 1, 2, 3, 4]), column)
    table = pyarrow.table(
        {
            "plain": column,
            "items": items,
            "parts": pyarrow.StructArray.from_arrays([items, column], ["items", "value"]),
            "named": pyarrow.MapArray.from_arrays(
                pyarrow.array([0, 1, 2, 3, 4]), pyarrow.array(["a", "b", "c", "d"]), column
            ),
            "text": pyarrow.array(texts),
            "narrow": pyarrow.array([[0.1], None, [], [0.25, None]], pyarrow.list_(pyarrow.float32())),
        }
    )
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")
    with pyarrow.ipc.new_stream(str(tmp_path / "rows.arrow"), table.schema) as stream:
        stream.write_table(table)

    for name in ("rows.parquet", "rows.arrow"):
        records = [record for _, record in read_records(f"{tmp_path}/{name}")]
        assert [record["plain"] for record in records] == values
        assert [record["items"] for record in records] == [[value] for value in values]
        assert [record["parts"] for record in records] == [{"items": [value], "value": value} for value in values]
        assert [dict(record["named"]) for record in records] == [
            {name: value} for name, value in zip("abcd", values, strict=True)
        ]
        assert [record["text"] for record in records] == texts
        assert [record["narrow"] for record in records] == [[0.1], None, [], [0.25, None]]


def test_a_column_that_is_said_to_be_json_and_is_not_names_its_row(tmp_path: Path) -> None:
    column = pyarrow.ExtensionArray.from_storage(pyarrow.json_(pyarrow.string()), pyarrow.array(["1", "Rome"]))
    pyarrow.parquet.write_table(pyarrow.table({"gold": column}), tmp_path / "rows.parquet")
    with pytest.raises(DataError, match=r"rows\.parquet row 1: column 'gold': not JSON"):
        list(read_records(f"{tmp_path}/rows.parquet"))


def test_blank_lines_and_a_byte_order_mark_are_no_rows(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b'\xef\xbb\xbf\n{"a": 1}\n\n   \n{"a": 2}')
    (tmp_path / "marked.jsonl").write_bytes(b'\xef\xbb\xbf{"a": 1}\n')
    (tmp_path / "rows.csv").write_bytes(b"\xef\xbb\xbfa\n1\n2\n")

    assert [record for _, record in read_records(f"{tmp_path}/rows.jsonl")] == [{"a": 1}, {"a": 2}]
    assert [record for _, record in read_records(f"{tmp_path}/marked.jsonl")] == [{"a": 1}]
    assert [record for _, record in read_records(f"{tmp_path}/rows.csv")] == [{"a": "1"}, {"a": "2"}]


def test_integers_of_any_length_are_exact(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"gold": 265252859812191058636308480000000, "text": "1234567890123456789", "part": 0.5}\n')

    [(_, record)] = read_records(str(path))
    assert record == {"gold": 265252859812191058636308480000000, "text": "1234567890123456789", "part": 0.5}


def test_records_say_where_they_stand(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('\n{"a": 1}\n')
    (tmp_path / "rows.csv").write_text('a\n"two\nlines"\n')
    write_parquet(tmp_path / "rows.parquet", [{"a": 1}])

    assert [where.removeprefix(f"{tmp_path}/") for where, _ in read_records(f"{tmp_path}/rows.jsonl")] == [
        "rows.jsonl:2"
    ]
    assert [where.removeprefix(f"{tmp_path}/") for where, _ in read_records(f"{tmp_path}/rows.csv")] == ["rows.csv:3"]
    assert [where.removeprefix(f"{tmp_path}/") for where, _ in read_records(f"{tmp_path}/rows.parquet")] == [
        "rows.parquet row 0"
    ]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("r.jsonl", b'{"question": "Q", "answer": "1"}\n{"question": "Q"', "r.jsonl:2: not JSON"),
        ("r.jsonl", b"[1, 2]\n", "r.jsonl:1: a list where an object {…} is wanted"),
        ("r.jsonl", b'{"question": NaN}\n', "r.jsonl:1: not JSON"),
        ("r.jsonl", b'{"question": "\xff"}\n', "r.jsonl:1: not UTF-8 text; save the file as UTF-8"),
        (
            "r.jsonl",
            b'{"question": "Q", "anser": "1"}\n',
            "r.jsonl:1: no field 'answer'. Did you mean 'anser'? It has: "
            "question, anser. Say where it is with ?fields=answer:COLUMN.",
        ),
        ("r.jsonl", b'{"question": "Q", "answer": 1}\n', "r.jsonl:1: gold: Input should be a valid string (given 1)"),
        ("r.jsonl", b'{"question": null, "answer": "1"}\n', "r.jsonl:1: AttributeError: 'NoneType' object has no"),
        ("r.csv", b"question,answer\nQ,1\nQ\n", "r.csv:3: 2 columns are named, this line has another number"),
        ("r.csv", b"question,answer\nQ,1,2\n", "r.csv:2: 2 columns are named"),
        ("r.csv", b"question,answer\n" + b"Q" * (MAX_LINE_BYTES + 1) + b",1\n", "r.csv:2: field larger than"),
        ("r.csv", b"question,answer\n\xff,1\n", "r.csv: not UTF-8 text; save the file as UTF-8"),
        ("r.csv", b"question;answer\nQ, R;1\n", "r.csv: the separator looks like ';'; save the file with commas"),
        ("r.csv", b"question\tanswer\nQ\t1\n", "r.csv: the separator looks like '\\t'; save"),
        ("r.parquet", b"PAR1 is not enough", "r.parquet: "),
        ("r.parquet", b"", "r.parquet: "),
        (
            "r.jsonl",
            b'{"question": "Q", "answer": "1", "answer": "2"}\n',
            "r.jsonl:1: the key 'answer' is given",
        ),
        (
            "r.jsonl",
            b'{"question": "Q", "answer": "1", "x": [{"a" : 1, "a":2}]}\n',
            "r.jsonl:1: the key 'a' is",
        ),
        ("r.csv", b"question,answer,answer\nQ,1,2\n", "r.csv: the column 'answer' is named twice."),
        ("r.txt", b"", "r.txt: cannot read .txt; use .jsonl, .csv, .parquet"),
        ("rows", b"", "rows: cannot read a file without a suffix"),
    ],
)
def test_what_cannot_be_read_names_file_line_and_field(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError) as caught:
        list(rows_of(f"{tmp_path}/{name}"))

    assert message in str(caught.value)


def test_what_a_task_says_about_a_record_keeps_its_words(tmp_path: Path) -> None:
    def refuse(record: Any) -> Question:
        raise ValueError("no final answer after ####")

    path = write_jsonl(tmp_path / "rows.jsonl", RECORDS)
    with pytest.raises(DataError, match=r"rows\.jsonl:1: no final answer after ####$"):
        list(read_rows(DatasetConfig(path=path), refuse, needs=()))


def test_a_line_without_end_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with path.open("wb") as file:
        file.truncate(MAX_LINE_BYTES + 1)  # sparse: 16 MiB of zeros that take no space

    with pytest.raises(DataError, match=r"rows\.jsonl:1: a line of more than 16777216 bytes"):
        list(read_records(str(path)))


def test_a_missing_file_says_where_it_was_looked_for_and_what_is_near(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", RECORDS)
    with pytest.raises(DataError) as caught:
        list(rows_of(f"{tmp_path}/tain.jsonl"))

    assert str(caught.value) == (
        f"no file {tmp_path}/tain.jsonl (looked in {tmp_path}). Did you mean '{tmp_path}/train.jsonl'?"
    )


def test_a_missing_folder_has_nothing_near(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no file .*/no/rows\.jsonl \(looked in .*/no\)\.$"):
        list(rows_of(f"{tmp_path}/no/rows.jsonl"))


def test_a_task_without_data_of_its_own_asks_for_a_file() -> None:
    with pytest.raises(DataError, match=r"give a local file with \?path=rows\.jsonl"):
        list(read_rows(DatasetConfig(), question, needs=()))


def test_without_a_network_the_hub_says_how_to_give_a_local_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import datasets.config
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    hubs = {
        "nobody/nothing/main": "dataset 'nobody/nothing' (config 'main'), split",
        "nobody/nothing": "'nobody/nothing', split",
    }
    for hub, named in hubs.items():
        with pytest.raises(DataError) as caught:
            list(read_rows(DatasetConfig(split="test"), question, needs=(), hub=hub))

        message = str(caught.value)
        assert f"{named} 'test', could not be loaded" in message and "no reason given" not in message
        assert "give a local file: ?path=rows.jsonl" in message and "\n" not in message


def test_more_rows_than_memory_holds_are_refused() -> None:
    with pytest.raises(ValidationError, match="less than or equal to 1000000"):
        ProceduralConfig(size=10**12)
    with pytest.raises(ValidationError, match="less than or equal to 10000000"):
        TaskConfig(size=10**12)


@pytest.mark.parametrize("name", ["", "owner/", "/name"])
def test_a_name_at_the_hub_has_no_empty_part(name: str) -> None:
    with pytest.raises(DataError, match="give hub:OWNER/NAME"):
        next(iter(read_records(f"hub:{name}")))
