"""JSON that survives, and folders that are or are not runs."""

import os
from pathlib import Path
from typing import Any

import pytest

from grpo_core.checkpoints import CheckpointError, check_run, read_json, write_json


def run_folder(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "config.yaml").touch()
    return path


def test_json_comes_back_bit_for_bit(tmp_path: Path) -> None:
    numbers = [0.1, 1 / 3, -0.0, 5e-324, 1.7976931348623157e308, 1, 2**63 - 1, -(2**63)]
    value = {"": numbers, "é\n\0": [None, True, {"deep": [[], {}]}]}
    write_json(tmp_path / "state.json", value)
    assert repr(read_json(tmp_path / "state.json", "the state")) == repr(value)


@pytest.mark.parametrize(("value", "place"), [
    ({"baseline": {"math": [0.5, float("nan")]}}, r"\.baseline\.math\[1\]= nan"),
    ({"best": float("-inf")}, r"\.best= -inf"),
    ({"a": (1, {"b": float("inf")})}, r"\.a\[1\]\.b= inf"),
])  # fmt: skip
def test_a_number_that_is_not_finite_is_refused_by_its_place(tmp_path: Path, value: dict[str, Any], place: str) -> None:
    with pytest.raises(ValueError, match=rf"state\.json: {place} is not finite"):
        write_json(tmp_path / "state.json", value)
    assert not list(tmp_path.iterdir())

    write_json(tmp_path / "report.json", value, null_for_nan=True)
    assert b"null" in (tmp_path / "report.json").read_bytes()


def test_a_write_that_fails_is_one_line_and_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "summary.json"
    write_json(path, {"old": 1})

    def refuse(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(CheckpointError, match=r"cannot write .*/summary\.json: Input/output error\.$"):
        write_json(path, {"new": 1})
    assert read_json(path, "the summary") == {"old": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]


@pytest.mark.parametrize(("content", "message"), [
    (b"", r"the summary is damaged: .*s\.json is not JSON"),
    (b'{"steps": 1', r"is not JSON: unexpected end of data: line 1 column 12"),
    (b'{"a": NaN}', "is not JSON"),
    (b"[1]", "holds a list, not an object"),
    (b"\xff\xfe", "is not JSON"),
    (b"[" * 100_000, "is not JSON"),
    (b'{"a": 1' + b"e" * 100_000 + b"}", "is not JSON"),
])  # fmt: skip
def test_json_from_anyone_is_an_object_or_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "s.json"
    path.write_bytes(content)

    with pytest.raises(CheckpointError, match=message) as caught:
        read_json(path, "the summary")
    assert len(str(caught.value)) < 500 and "\n" not in str(caught.value)


def test_a_missing_large_or_strange_file_is_refused_without_reading_it(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"the summary is missing: there is no .*/none\.json"):
        read_json(tmp_path / "none.json", "the summary")
    (tmp_path / "large.json").write_bytes(b'{"a": 1}')
    with pytest.raises(CheckpointError, match="cannot be read: larger than 7 bytes"):
        read_json(tmp_path / "large.json", "the summary", max_bytes=7)
    (tmp_path / "link.json").symlink_to("large.json")
    os.mkfifo(tmp_path / "pipe.json")  # which would block whoever opens it
    for name in ("link.json", "pipe.json", "."):
        with pytest.raises(CheckpointError, match="the summary cannot be read: not a regular file"):
            read_json(tmp_path / name, "the summary")


def test_what_is_not_a_run_is_told_where_one_is(tmp_path: Path) -> None:
    run_folder(tmp_path / "runs" / "run_2025-06-15_10-00-00")
    newest = run_folder(tmp_path / "runs" / "run_2025-06-16_10-00-00")
    (newest / "training_state" / "step_5").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()

    for given_path, message in [
        ("empty", r"empty is not a run folder: no config\.yaml in it\.$"),
        ("file", "file is not a run folder: it is a file"),
        ("runs", rf"It holds 2 runs\. Did you mean '{newest}'\?"),
        ("runs/run_2025-06-16_10-00-01", rf"no such folder\. Did you mean '{newest.name}'\?"),
        ("runs/latest", rf"no such folder\. The newest run there is '{newest}'\."),
        ("nowhere/at_all", r"no such folder\.$"),
        (newest / "training_state" / "step_5", rf"a part of one\. Did you mean '{newest}'\?"),
        (newest / "config.yaml", rf"a part of one\. Did you mean '{newest}'\?"),
    ]:
        with pytest.raises(CheckpointError, match=message):
            check_run(tmp_path / given_path)
