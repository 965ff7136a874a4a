import json
import os
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import datasets
import orjson
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scoring_tasks import Sum

from grpo_sdk import Row, TaskConfig
from grpo_sdk.data import DatasetConfig, ProceduralConfig, procedural, read_records, read_rows, split_of, stable_id
from grpo_sdk.data.records import MAX_LINE_BYTES, parsed_json
from grpo_sdk.errors import DataError, ExhaustedError, UserError

SPLITS = ("train", "validation", "test")


def make(random: Random, difficulty: int) -> Sum:
    most = 10**difficulty - 1
    return Sum(id="", a=random.randint(0, most), b=random.randint(0, most))


def content(row: Sum) -> str:
    return f"{min(row.a, row.b)}+{max(row.a, row.b)}"


def generate(**options: Any) -> list[Sum]:
    config = ProceduralConfig(**options)
    return list(islice(procedural(config, make, content=content), config.size))


# Procedural rows


def test_rows_are_a_pure_function_of_the_options() -> None:
    rows = generate(seed=3, size=40, min_difficulty=2)
    assert rows == generate(seed=3, size=40, min_difficulty=2) != generate(seed=4, size=40, min_difficulty=2)
    assert rows[:10] == generate(seed=3, size=10, min_difficulty=2)
    assert [row.difficulty for row in rows[:4]] == [2.0, 3.0, 2.0, 3.0]
    assert [row.id for row in rows] == [stable_id(content(row)) for row in rows]
    assert len({row.id for row in rows}) == 40


def test_known_rows_stay_what_they_are() -> None:
    # A change here changes every seeded run: it needs a new task version and a changelog entry.
    rows = generate(seed=0, size=2, min_difficulty=2, max_difficulty=2)
    assert [(row.id, row.a, row.b) for row in rows] == [("118ed4cfa70d", 87, 88), ("9a1a479bbf01", 76, 7)]


@settings(max_examples=25)
@given(st.integers(), st.integers(), st.permutations(SPLITS))
def test_splits_are_disjoint_whatever_the_seeds(one: int, two: int, splits: list[str]) -> None:
    here = generate(seed=one, split=splits[0], size=10, max_difficulty=2)
    there = generate(seed=two, split=splits[1], size=10, max_difficulty=2)
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
    message = rf"only {exist} .*split 'train' exist at difficulty 1 to 1, and size is 56\. .*\?size={exist}"
    with pytest.raises(ExhaustedError, match=message) as caught:
        generate(size=56, max_difficulty=1)
    assert caught.value.available == exist
    rows = generate(size=200, min_difficulty=1, max_difficulty=2)  # the other level goes on
    assert len({content(row) for row in rows}) == 200


@pytest.mark.parametrize(("config", "options", "message"), [
    (ProceduralConfig, {"min_difficulty": 4}, "min_difficulty 4 is above max_difficulty 3"),
    (ProceduralConfig, {"path": "rows.jsonl"}, "this task generates its rows and reads no file"),
    (ProceduralConfig, {"size": 10**12}, "less than or equal to 1000000"),
    (TaskConfig, {"size": 10**12}, "less than or equal to 10000000"),
    (DatasetConfig, {"fields": "question:a:b"}, "fields are ours:theirs, separated by commas"),
    (DatasetConfig, {"fields": "question:a,question:b"}, "fields names 'question' twice"),
])  # fmt: skip
def test_options_are_checked(config: Callable[..., TaskConfig], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config(**options)


# Rows from files


class Question(Row):
    text: str


RECORDS = [{"question": f"Q{number}", "answer": str(number)} for number in range(30)]


def question(record: Any) -> Question:
    return Question(id=stable_id(record["question"]), gold=record["answer"], text=record["question"])


def write_jsonl(path: Path, records: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def write_csv(path: Path, records: list[dict[str, Any]]) -> str:
    path.write_text("question,answer\n" + "".join(f"{r['question']},{r['answer']}\n" for r in records))
    return str(path)


def write_parquet(path: Path, records: list[dict[str, Any]]) -> str:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), path)
    return str(path)


def rows_of(path: str | Path, **options: Any) -> Iterator[Question]:
    return read_rows(DatasetConfig(path=str(path), **options), question, needs=("question", "answer"))


def records_of(path: str | Path) -> list[Any]:
    return [record for _, record in read_records(str(path))]


@pytest.mark.parametrize("write", [write_jsonl, write_csv, write_parquet])
def test_the_splits_of_one_file_share_no_row_and_lose_none(tmp_path: Path, write: Callable[..., str]) -> None:
    path = write(tmp_path / f"rows.{write.__name__.removeprefix('write_')}", RECORDS)
    parts = {split: list(rows_of(path, split=split)) for split in SPLITS}
    for split, rows in parts.items():
        assert rows == [question(record) for record in RECORDS if split_of(stable_id(record["question"])) == split]
    assert sum(map(len, parts.values())) == 30


def test_rows_of_one_content_stay_in_one_split(tmp_path: Path) -> None:
    config = DatasetConfig(path=write_jsonl(tmp_path / "rows.jsonl", RECORDS))
    rows = list(read_rows(config, question, needs=("question",), content=lambda row: "the same"))
    assert len(rows) == (30 if split_of("the same") == "train" else 0)


def test_a_path_with_split_in_it_names_the_files_of_each_split(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for part in range(2):
            write_jsonl(tmp_path / f"{split}-{part}.jsonl", [{"question": f"{split} {part}", "answer": "1"}])
    for path, count in (("{split}-0.jsonl", 1), ("{split}-*.jsonl", 2)):
        for split in ("train", "test"):
            rows = rows_of(tmp_path / path, split=split)
            assert [row.text for row in rows] == [f"{split} {part}" for part in range(count)]


def test_fields_say_which_column_is_which(tmp_path: Path) -> None:
    path = tmp_path / "{split}.jsonl"
    write_jsonl(tmp_path / "train.jsonl", [{"problem": "Q", "solution": "4", "level": 2.0}])
    (row,) = rows_of(path, fields="question:problem, answer:solution")
    assert (row.text, row.gold) == ("Q", "4")

    def get(record: Mapping[str, Any]) -> Row:
        return Row(id="1", difficulty=record.get("difficulty"))

    def whole(record: Mapping[str, Any]) -> Row:
        return Row(**{"id": "1", **{name: value for name, value in record.items() if name == "difficulty"}})

    config = DatasetConfig(path=str(path), fields="question:problem,difficulty:level")  # a field that is not needed
    for make in (get, whole):
        assert [row.difficulty for row in read_rows(config, make, needs=("question",))] == [2.0]


@pytest.mark.parametrize(("fields", "message"), [
    ("question:problem,answer:solution,qestion:problem", "reads no field 'qestion'.*mean 'question'"),
    ("qestion:problem,answer:solution", r"\?fields=question:COLUMN in place of \?fields=qestion:problem"),
    ("question:problem,answer:solutoin", "no field 'solutoin'.*mean 'solution'"),
    ("question:problem,answer:solution,note:notes", r"no field 'notes' for \?fields=note:notes.*has: problem"),
])  # fmt: skip
def test_a_field_that_nobody_has_or_reads_is_refused(tmp_path: Path, fields: str, message: str) -> None:
    write_jsonl(tmp_path / "train.jsonl", [{"problem": "Q", "solution": "4"}])
    with pytest.raises(DataError, match=message):
        list(rows_of(tmp_path / "{split}.jsonl", fields=fields))


@settings(max_examples=40)
@given(st.recursive(st.text() | st.integers(-9, 9), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_no_record_without_repeated_keys_is_refused(value: Any) -> None:
    line = orjson.dumps({"x": value, "text": 'say "a": or "a":, "a" :', "list": [{"a": 1}, {"a": 2}]})
    assert parsed_json(line) == orjson.loads(line)
    with pytest.raises(ValueError, match="the key 'x' is given twice"):
        parsed_json(line[:-1] + b', "x" :1}')


@pytest.mark.parametrize(("source", "message"), [
    ("{}/rows.jsonl", "it is a pipe; rows are read from a file"),
    ("{}", r"name those to read, as in .*/\*\.parquet"),
    ("{}/" + "a" * 300 + ".csv", r"out of reach \(File name too long\)"),
    ("{}/tain.jsonl", r"no file .*/tain\.jsonl \(looked in .*\)\. Did you mean '.*/train\.jsonl'\?"),
    ("{}/*-2.jsonl", r"\*-2\.jsonl: no rows, found no file \(looked in "),
    ("{}/*.md", r"notes\.md: cannot read \.md; use \.jsonl"),
    ("{}/zeros.jsonl", r"zeros\.jsonl:1: a line of more than 16777216 bytes"),
    ("{}/twice.parquet", "the column 'a' is named twice"),
    ("{}/comma.csv", "It has: 'question, please', answer"),
    ("-", "standard input and output are not used here"),
    ("hub:", "give hub:OWNER/NAME"),
])  # fmt: skip
def test_what_is_no_file_of_rows_is_called_what_it_is(tmp_path: Path, source: str, message: str) -> None:
    os.mkfifo(tmp_path / "rows.jsonl")
    (tmp_path / "notes.md").write_text("")
    (tmp_path / "comma.csv").write_text('"question, please",answer\nQ,4\n')
    write_jsonl(tmp_path / "train.jsonl", RECORDS)
    with (tmp_path / "zeros.jsonl").open("wb") as file:
        file.truncate(MAX_LINE_BYTES + 1)  # sparse: 16 MiB of zeros that take no space
    table = pyarrow.Table.from_arrays([pyarrow.array([1]), pyarrow.array([2])], names=["a", "a"])
    pyarrow.parquet.write_table(table, tmp_path / "twice.parquet")
    with pytest.raises(UserError, match=message):
        list(rows_of(source.format(tmp_path)))


def test_files_of_a_pattern_are_read_in_the_order_of_their_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
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
    assert len(places("~/b/rows-1.jsonl")) == 2


def test_a_saved_dataset_is_read_with_its_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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

    def ids(path: str, split: str) -> list[str]:
        config = DatasetConfig(path=path, split=split)
        return [row.id for row in read_rows(config, lambda record: Row(id=record["question"]), needs=("question",))]

    assert (ids("all", "train"), ids("all", "test"), ids("all/{split}", "test")) == (["a", "b", "c"], ["c"], ["c"])
    assert {split for split in SPLITS for _ in ids("one", split)} == {split_of(name) for name in "abc"}
    with pytest.raises(DataError, match=r"all/validation is not .* save_to_disk .*has dataset_dict\.json, test"):
        ids("all", "validation")


@pytest.mark.parametrize(("state", "message"), [
    ("", "save_to_disk"),
    ('{"_data_files": []}', "no rows, found no file"),
    ('{"_data_files": [{"filename": "../other.arrow"}]}', r"saved/other\.arrow"),  # nothing outside of the folder
])  # fmt: skip
def test_a_folder_that_is_no_saved_dataset_is_refused(tmp_path: Path, state: str, message: str) -> None:
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "state.json").write_text(state)
    write_jsonl(tmp_path / "other.arrow", [{"a": 1}])
    with pytest.raises(DataError, match=message):
        records_of(tmp_path / "saved")


def test_json_columns_hold_what_was_written_and_not_its_json(tmp_path: Path) -> None:
    texts = ['"Rome"', "7", "123456789012345678901234567890", None]
    values = ["Rome", 7, 123456789012345678901234567890, None]
    column = pyarrow.ExtensionArray.from_storage(pyarrow.json_(pyarrow.string()), pyarrow.array(texts))
    ends = pyarrow.array([0, 1, 2, 3, 4])
    items = pyarrow.ListArray.from_arrays(ends, column)
    parts = pyarrow.StructArray.from_arrays([items, column], ["items", "value"])
    named = pyarrow.MapArray.from_arrays(ends, pyarrow.array([*"abcd"]), column)
    narrow = [[0.1], None, [], [0.25, None]]
    columns = {
        "plain": (column, values),
        "items": (items, [[value] for value in values]),
        "parts": (parts, [{"items": [value], "value": value} for value in values]),
        "named": (named, [[(name, value)] for name, value in zip("abcd", values, strict=True)]),
        "text": (pyarrow.array(texts), texts),
        "narrow": (pyarrow.array(narrow, pyarrow.list_(pyarrow.float16())), narrow),
    }
    table = pyarrow.table({name: made for name, (made, _) in columns.items()})
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")
    with pyarrow.ipc.new_stream(str(tmp_path / "rows.arrow"), table.schema) as stream:
        stream.write_table(table)
    for name in ("rows.parquet", "rows.arrow"):
        records = records_of(tmp_path / name)
        for column, (_, expected) in columns.items():
            assert [record[column] for record in records] == expected


def test_a_column_that_is_said_to_be_json_and_is_not_names_its_row(tmp_path: Path) -> None:
    column = pyarrow.ExtensionArray.from_storage(pyarrow.json_(pyarrow.string()), pyarrow.array(["1", "Rome"]))
    pyarrow.parquet.write_table(pyarrow.table({"gold": column}), tmp_path / "rows.parquet")
    with pytest.raises(DataError, match=r"rows\.parquet row 1: column 'gold': not JSON"):
        records_of(tmp_path / "rows.parquet")


LARGE = {"gold": 265252859812191058636308480000000, "text": "1234567890123456789", "part": 0.5}


@pytest.mark.parametrize(("name", "data", "records"), [
    # Blank lines and a byte order mark are no rows.
    ("r.jsonl", b'\xef\xbb\xbf\n{"a": 1}\n\n   \n{"a": 2}', [("r.jsonl:2", {"a": 1}), ("r.jsonl:5", {"a": 2})]),
    ("r.csv", b"\xef\xbb\xbfa\n1\n2\n", [("r.csv:2", {"a": "1"}), ("r.csv:3", {"a": "2"})]),
    ("r.csv", b'a\n"two\nlines"\n', [("r.csv:3", {"a": "two\nlines"})]),
    ("r.jsonl", json.dumps(LARGE).encode(), [("r.jsonl:1", LARGE)]),  # integers of any length are exact
])  # fmt: skip
def test_records_say_where_they_stand(tmp_path: Path, name: str, data: bytes, records: list[Any]) -> None:
    (tmp_path / name).write_bytes(data)
    found = [(where.removeprefix(f"{tmp_path}/"), record) for where, record in read_records(f"{tmp_path}/{name}")]
    assert found == records


@pytest.mark.parametrize(("name", "data", "message"), [
    ("r.jsonl", b'{"question": "Q", "answer": "1"}\n{"question": "Q"', r"r\.jsonl:2: not JSON"),
    ("r.jsonl", b"[1, 2]\n", r"r\.jsonl:1: a list where an object"),
    ("r.jsonl", b'{"question": "\xff"}\n', r"r\.jsonl:1: not UTF-8 text"),
    ("r.jsonl", b'{"question": "Q", "anser": "1"}\n', r"1: no field 'answer'.*'anser'.*question, anser.*answer:"),
    ("r.jsonl", b'{"question": "Q", "answer": 1}\n', r"r\.jsonl:1: gold: .*valid string \(given 1\)"),
    ("r.jsonl", b'{"question": null, "answer": "1"}\n', r"r\.jsonl:1: AttributeError: 'NoneType' object has no"),
    ("r.jsonl", b'{"question": "Q", "answer": "1", "answer": "2"}\n', r"r\.jsonl:1: the key 'answer' is given"),
    ("r.jsonl", b'{"question": "refused", "answer": "1"}\n', r"r\.jsonl:1: no final answer after ####$"),
    ("r.csv", b"question,answer\nQ,1\nQ\n", r"r\.csv:3: 2 columns are named, this line has another number"),
    ("r.csv", b"question,answer\n" + b"Q" * (MAX_LINE_BYTES + 1) + b",1\n", r"r\.csv:2: field larger than"),
    ("r.csv", b"question,answer\n\xff,1\n", r"r\.csv: not UTF-8 text"),
    ("r.csv", b"question;answer\nQ, R;1\n", r"r\.csv: the separator looks like ';'; save the file with commas"),
    ("r.csv", b"question,answer,answer\nQ,1,2\n", r"r\.csv: the column 'answer' is named twice"),
    ("r.parquet", b"PAR1 is not enough", r"r\.parquet: "),
    ("rows", b"", "rows: cannot read a file without a suffix"),
])  # fmt: skip
def test_what_cannot_be_read_names_file_line_and_field(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    def refusing(record: Any) -> Question:
        if record["question"] == "refused":
            raise ValueError("no final answer after ####")
        return question(record | {"question": record["question"].strip()})

    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=message):
        list(read_rows(DatasetConfig(path=f"{tmp_path}/{name}"), refusing, needs=("question", "answer")))


def test_a_task_without_data_of_its_own_asks_for_a_file() -> None:
    with pytest.raises(DataError, match=r"give a local file with \?path=rows\.jsonl"):
        list(read_rows(DatasetConfig(), question, needs=()))


def test_without_a_network_the_hub_says_how_to_give_a_local_file(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path)
    message = r"dataset 'nobody/nothing' \(config 'main'\), split 'test', could not be loaded.*\?path=rows\.jsonl"
    with pytest.raises(DataError, match=message) as caught:
        list(read_rows(DatasetConfig(split="test"), question, needs=(), hub="nobody/nothing/main"))
    assert "no reason given" not in str(caught.value) and "\n" not in str(caught.value)
