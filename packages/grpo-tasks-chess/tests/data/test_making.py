"""Files: in order, by any number of processes, resumable to the byte, in three formats."""

import fcntl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from grpo_sdk import InfrastructureError, UserError
from grpo_sdk.data import read_records, split_of
from grpo_tasks_chess.data import output
from grpo_tasks_chess.data.journal import Journal
from grpo_tasks_chess.data.making import RECIPE, Order, make
from grpo_tasks_chess.engine import finding
from grpo_tasks_chess.engine.finding import EngineMissingError
from grpo_tasks_chess.formats import read_environment_line
from grpo_tasks_chess.records import position_key
from grpo_tasks_chess.search import best_moves

MakeEngine = Callable[..., str]
COUNT = 16


def order(out: Path, **options: Any) -> Order:
    return Order(**{"kind": "environment", "out": out, "count": COUNT, "workers": 1, **options})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "rows.jsonl"
    make(order(path))
    return path


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [record for _, record in read_records(str(path))]


def test_a_file_has_its_rows_and_beside_it_what_made_it(made: Path) -> None:
    rows = rows_of(made)
    assert len(rows) == COUNT == len({position_key(row["fen"]) + row["move"] for row in rows})
    assert [row["index"] for row in rows] == sorted(row["index"] for row in rows)
    meta = output.read_meta(made)
    assert meta is not None
    assert meta["settings"]["seed"] == 0 and meta["settings"]["count"] == COUNT
    assert meta["rows"] == COUNT == sum(meta["splits"].values()) == sum(meta["to_move"].values())
    assert sum(found["rows"] for found in meta["kinds"].values()) == COUNT
    assert sum(found["quota"] for found in meta["kinds"].values()) == pytest.approx(1)
    assert names(made.parent) == ["rows.jsonl", "rows.jsonl.meta.json"]


def interrupt(done: int, total: int) -> None:
    if done >= 10:
        raise KeyboardInterrupt


def test_any_number_of_processes_and_any_interruption_give_the_same_bytes(made: Path, tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "rows.jsonl"
    with pytest.raises(KeyboardInterrupt):
        make(order(path, workers=2), interrupt)
    assert names(path.parent) == ["rows.jsonl.partial"]
    with (path.parent / "rows.jsonl.partial").open("ab") as journal:
        journal.write(b'{"index":15,"ki')  # the process was killed while it wrote
    told = []
    make(order(path, workers=2), lambda done, total: told.append(done))
    assert told[0] >= 10 and told[-1] == COUNT  # it went on, and did not begin again
    assert path.read_bytes() == made.read_bytes()
    assert output.meta_path(path).read_bytes() == output.meta_path(made).read_bytes()
    assert names(path.parent) == ["rows.jsonl", "rows.jsonl.meta.json"]


def test_fewer_rows_than_an_interrupted_order_has_made_are_so_many(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with pytest.raises(KeyboardInterrupt):
        make(order(path), interrupt)
    assert make(order(path, count=5))["settings"]["count"] == 5
    assert len(path.read_text().splitlines()) == 5


def test_killed_while_it_is_finished_it_is_finished_again(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "rows.jsonl"

    def killed(self: Path, target: Path) -> Path:
        raise SystemExit

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(Path, "replace", killed)
        make(order(out))
    assert names(tmp_path) == ["rows.jsonl.meta.json", "rows.jsonl.partial"]
    make(order(out))
    assert out.read_bytes() == made.read_bytes()


def test_a_finished_file_is_left_alone(made: Path) -> None:
    before = made.stat()
    assert make(order(made))["finished_before"]
    assert made.stat() == before


def test_another_file_under_the_name_is_not_touched(made: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"seed=0, count=16; asked for is seed=1, count=5\. .*--overwrite"):
        make(order(made, seed=1, count=5))
    foreign = tmp_path / "mine.jsonl"
    foreign.write_text("precious")
    with pytest.raises(UserError, match=r"no mine\.jsonl\.meta\.json says what made it"):
        make(order(foreign))
    assert foreign.read_text() == "precious"
    make(order(foreign, count=1, overwrite=True))
    assert len(rows_of(foreign)) == 1


def test_a_part_of_another_file_is_not_gone_on_with(tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    partial = tmp_path / "rows.jsonl.partial"
    Journal(partial, {"seed": 5}).__exit__(None, None, None)
    with pytest.raises(UserError, match=r'holds rows of other settings, \{"seed":5\}'):
        make(order(out))
    partial.unlink()
    with Journal(partial, {}), pytest.raises(UserError, match="another process is making it"):
        make(order(out))
    settings = {"kind": "environment", "seed": 0, "split": None, "recipe": RECIPE}
    header = orjson.dumps(settings, option=orjson.OPT_SORT_KEYS).decode()
    partial.write_text(f"{header}\nnonsense\n")
    with pytest.raises(UserError, match=r"partial:2 is damaged"):
        make(order(out))
    with partial.open() as still_there:
        fcntl.flock(still_there, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody holds it any more


def test_all_formats_hold_the_same_rows(made: Path, tmp_path: Path) -> None:
    rows = rows_of(made)
    parquet, text = tmp_path / "rows.parquet", tmp_path / "rows.txt"
    for path in (parquet, text):
        output.write(path, rows, output.format_of(path, None), "environment", {})
    assert rows_of(parquet) == rows
    for row, line in zip(rows, text.read_text().splitlines(), strict=True):
        transition, outcome = read_environment_line(line)
        assert (transition.fen, transition.move, list(transition.history)) == (row["fen"], row["move"], row["history"])
        assert (outcome.fen, outcome.reward) == (row["next_fen"], row["reward"])
        assert (outcome.terminated, outcome.truncated) == (row["terminated"], row["truncated"])


def test_the_format_is_what_the_suffix_says(tmp_path: Path) -> None:
    assert output.format_of(Path("a.parquet"), None) == "parquet"
    assert output.format_of(Path("a.data"), "text") == "text"
    with pytest.raises(UserError, match="the suffix says jsonl, --format says text"):
        make(order(tmp_path / "a.jsonl", form="text"))
    with pytest.raises(UserError, match=r"says no format\. Use \.jsonl, \.parquet, \.txt"):
        make(order(tmp_path / "a"))


def test_one_split_alone(tmp_path: Path) -> None:
    out = tmp_path / "test.jsonl"
    summary = make(order(out, split="test", count=2))
    assert summary["splits"] == {"test": 2}
    assert all(split_of(position_key(row["fen"])) == "test" for row in rows_of(out))


def test_without_an_engine_the_built_in_search_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in finding.VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(finding, "PROGRAM", "no-such-engine")
    summary = make(order(tmp_path / "p.jsonl", kind="policy", count=2, positions_per_game=2))
    assert (summary["settings"]["engine"], summary["settings"]["depth"]) == ("search 1", 2)
    for row in rows_of(tmp_path / "p.jsonl"):
        found = {line.move: line.evaluation for line in best_moves(row["fen"])}
        assert dict(zip(row["moves"], row["evaluations"], strict=True)) == found
    named = make(order(tmp_path / "named.jsonl", kind="policy", count=2, engine="search", depth=1))
    assert named["settings"]["depth"] == 1
    with pytest.raises(UserError, match="--depth 4: the built-in search has at most 3"):
        make(order(tmp_path / "deep.jsonl", kind="policy", engine="search", depth=4))


def test_an_engine_that_is_named_and_missing_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_engine: MakeEngine
) -> None:
    monkeypatch.setenv("GRPO_CHESS_ENGINE", str(tmp_path / "none"))
    with pytest.raises(EngineMissingError, match="Install Stockfish"):
        make(order(tmp_path / "p.jsonl", kind="policy"))
    make(order(tmp_path / "e.jsonl", count=2))
    monkeypatch.setenv(finding.VARIABLES[0], make_engine())
    summary = make(order(tmp_path / "p.jsonl", kind="policy", count=8, depth=2))
    assert summary["settings"]["engine"] == "Fake 1" and summary["settings"]["depth"] == 2
    for row in rows_of(tmp_path / "p.jsonl"):
        # The fake engine values what is left on the board, so the best move is the highest of five.
        assert dict(zip(row["moves"], row["evaluations"], strict=True))[row["best"]] == max(row["evaluations"])


def test_an_engine_that_fails_ends_it_with_one_line_and_what_is_made_stays(
    tmp_path: Path, make_engine: MakeEngine
) -> None:
    out = tmp_path / "p.jsonl"
    with pytest.raises(InfrastructureError, match=r"no rows were made .*the engine .* died"):
        make(order(out, kind="policy", engine=make_engine("dies"), count=8))
    assert names(tmp_path) == ["engine-dies", "p.jsonl.partial"]


def test_what_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file.*(File exists|Not a directory)"):
        make(order(tmp_path / "file" / "rows.jsonl"))
    with pytest.raises(UserError, match="--count 0"):
        make(order(tmp_path / "rows.jsonl", count=0))
