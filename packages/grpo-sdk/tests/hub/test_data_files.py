"""Rows of the hub are read as they were written: from the repository's files, with the hub and without."""

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from dataset_hub import REPOSITORY, REVISION, cache_repository, dataset_hub

from grpo_sdk import load_task
from grpo_sdk.data import read_records
from grpo_sdk.errors import DataError

Serve = Callable[[Mapping[str, str]], None]

CSV = {
    "README.md": "A data set.",
    "data/train.csv": "question,answer\nq1,007\nq2,NA\nq3,2024-01-01\nq4,1.10\n",
    "data/test.csv": "question,answer\nt1,7\n",
}

CONFIGS = """---
configs:
- {config_name: one, data_files: a/*.jsonl}
- {config_name: two, data_files: [{split: train, path: b/x-*.json}, {split: test, path: c.jsonl}]}
---
"""


def lines(*records: Mapping[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unplug: Callable[[], None]) -> Path:
    """An empty HF_HOME, and no hub."""
    import datasets.config
    import huggingface_hub.constants as hub

    monkeypatch.setattr(hub, "HF_HOME", str(tmp_path))
    monkeypatch.setattr(hub, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    monkeypatch.setattr(datasets.config, "DOWNLOADED_DATASETS_PATH", tmp_path / "datasets" / "downloads")
    unplug()
    return tmp_path


@pytest.fixture
def serve(set_hub: Callable[[str, bool], None]) -> Iterator[Serve]:
    with ExitStack() as stack:
        yield lambda files: set_hub(stack.enter_context(dataset_hub(files)), False)


@pytest.fixture
def unplug(set_hub: Callable[[str, bool], None]) -> Callable[[], None]:
    return lambda: set_hub("http://127.0.0.1:9", True)


def golds(options: str = "", config: str = "") -> list[str]:
    return [row.answer for row in load_task(f"core.qa?path=hub:{REPOSITORY}{config}{options}").rows()]


def snapshot(home: Path, files: Mapping[str, str]) -> Path:
    return cache_repository(home / "hub" / f"datasets--{REPOSITORY.replace('/', '--')}", files)


def prepare(home: Path, source: Path) -> None:
    """What `datasets` keeps of a repository that it has loaded, without the files that it was made of."""
    import datasets

    kind = source.suffix.lstrip(".").replace("jsonl", "json")
    loaded = datasets.load_dataset(kind, data_files=str(source), cache_dir=str(home / "made"))["train"]
    folder = home / "datasets" / "o___n" / "default" / "0.0.0" / REVISION
    shutil.copytree(Path(loaded.cache_files[0]["filename"]).parent, folder)
    (folder / f"{kind}-train.arrow").rename(folder / "n-train.arrow")
    info = json.loads((folder / "dataset_info.json").read_text()) | {"dataset_name": "n", "config_name": "default"}
    (folder / "dataset_info.json").write_text(json.dumps(info))


def test_golds_of_csv_are_its_lines_with_the_hub_and_later_without(serve: Serve, unplug: Callable[[], None]) -> None:
    serve(CSV)
    assert golds() == ["007", "NA", "2024-01-01", "1.10"]
    unplug()
    assert golds() == ["007", "NA", "2024-01-01", "1.10"]
    with pytest.raises(DataError, match=r"o/n.*'test'.*could not be loaded"):  # whose file was not downloaded
        golds("&split=test")
    serve(CSV)
    assert golds("&split=test") == ["7"]
    unplug()
    assert golds("&split=test") == ["7"]
    with pytest.raises(DataError, match=r"o/n.*no such split, but train, test"):
        golds("&split=validation")
    assert next(iter(read_records(f"hub:{REPOSITORY}")))[0] == "o/n train.csv:2"


def test_configurations_have_files_of_their_own_and_lines_of_several_types(serve: Serve) -> None:
    # After a whole number, `datasets` refuses "z".
    answers = {"a/1.jsonl": "007", "b/x-1.json": 1, "b/x-2.json": "z", "c.jsonl": "2024-01-01"}
    records = {name: lines({"question": "q", "answer": answer}) for name, answer in answers.items()}
    serve({"README.md": CONFIGS, **records})
    assert golds(config="/one") == ["007"]
    assert golds(config="/two") == ["1", "z"]
    assert golds("&split=test", config="/two") == ["2024-01-01"]


def test_a_file_that_only_datasets_can_read_is_read_by_it_and_no_gold(serve: Serve) -> None:
    serve({"train.tsv": "question\tanswer\nq\t007\n"})
    assert next(iter(read_records("hub:o/n")))[1] == {"question": "q", "answer": 7}
    with pytest.raises(DataError, match=r"row 0: column 'answer'.*int64.*hf download"):
        golds()


def test_a_snapshot_that_was_downloaded_otherwise_is_read(home: Path) -> None:
    parts = ("question,answer\nq1,007\n", "question,answer\nq2,NA\n")
    files = {f"train-0000{index}-of-00002.csv": part for index, part in enumerate(parts)}
    folder = snapshot(home, {**files, "test.csv": "question,answer\nq3,1e3\n", "README.md": ""})
    assert golds() == ["007", "NA"]
    assert golds("&split=test") == ["1e3"]
    for file in folder.glob("t*.csv"):
        file.unlink()
    answers = pyarrow.array([0.1, 7.5], pyarrow.float32())
    pyarrow.parquet.write_table(pyarrow.table({"question": ["q", "r"], "answer": answers}), folder / "train.parquet")
    assert golds("&verifier=number") == ["0.1", "7.5"]


def test_of_what_datasets_has_made_of_json_only_known_columns_are_golds(home: Path) -> None:
    first = {"question": "q", "text": "007", "whole": 7, "mixed": "Rome", "day": "2024-01-01", "part": 1}
    second = {"question": "r", "text": "x", "whole": 8, "mixed": 7, "day": "2024-01-02", "part": 0.5}
    (home / "t.jsonl").write_text(lines(first, second))
    prepare(home, home / "t.jsonl")
    for column, answers in {"text": ["007", "x"], "whole": ["7", "8"], "mixed": ["Rome", "7"]}.items():
        assert golds(f"&fields=answer:{column}") == answers
    for column in ("day", "part"):
        with pytest.raises(DataError, match=rf"o/n row 0: column '{column}'.*`datasets` has guessed.*hf download o/n"):
            golds(f"&fields=answer:{column}&verifier=number")
        assert column in next(iter(read_records("hub:o/n")))[1]  # a number that is used as one


def test_of_what_datasets_has_made_of_csv_nothing_is_a_gold(home: Path) -> None:
    """It guesses parts of a file by themselves: of a column that is text at first, a later 007 is "7"."""
    (home / "t.csv").write_text("question,answer\nq,Rome\n")
    prepare(home, home / "t.csv")
    with pytest.raises(DataError, match="`datasets` has guessed"):
        golds()


HUB = """---
configs:
- {config_name: main, data_files: [{split: train, path: main/train-*}, {split: test, path: main/test-*}]}
- {config_name: other, data_files: other.csv, sep: ";"}
---
"""


def test_a_snapshot_is_read_without_datasets(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = snapshot(home, {"README.md": HUB, "main/test-0.parquet": "broken", "other.csv": ""})
    parts = [folder / "main" / f"train-0000{index}-of-00002.parquet" for index in range(2)]
    for part, answer in zip(parts, ("007", "1.10"), strict=True):
        pyarrow.parquet.write_table(pyarrow.table({"question": [answer], "answer": [answer]}), part)
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert golds(config="/main") == ["007", "1.10"]
    parts[0].unlink()
    for config, options, said in [
        ("/main", "", r"train-00000-of-00002\.parquet is not there"),
        ("/main", "&split=test", r"test-0\.parquet: Parquet file size is 6 bytes"),
        ("/main", "&split=validation", "no such split, but train, test"),
        ("/mian", "", "no configuration 'mian', but main, other"),
        ("", "", "no configuration 'default', but main, other"),
        ("/other", "", "only for datasets to read|needs the package datasets"),
    ]:
        with pytest.raises(DataError, match=said):
            golds(options, config)
    (folder / "main" / "test-0.parquet").unlink()
    with pytest.raises(DataError, match=r"main/test-\* is not there"):
        golds("&split=test", "/main")
