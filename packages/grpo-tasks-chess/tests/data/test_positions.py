"""The labelled sets that ship with the package."""

import hashlib
from pathlib import Path

import orjson
import pytest

import grpo_tasks_chess
from grpo_sdk import load_task
from grpo_tasks_chess.data.checking import check
from grpo_tasks_chess.data.environment import environment_records
from grpo_tasks_chess.data.output import read_meta

FOLDER = Path(grpo_tasks_chess.__file__).parent / "positions"
POLICY, TEST, ENVIRONMENT = (FOLDER / f"{name}.jsonl" for name in ("policy", "policy_test", "environment"))
MAX_BYTES = 300_000


def rows_of(path: Path) -> list[dict[str, object]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def test_they_are_small_whole_and_right() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < MAX_BYTES
    report, tests = check([str(POLICY), str(ENVIRONMENT)]), check([str(TEST)])
    assert report["ok"] and tests["ok"]
    policy, environment, test = *report["files"], *tests["files"]
    assert policy["rows"] == {"policy": 600} and environment["rows"] == {"environment": 400}
    assert min(policy["splits"].values()) > 50 and len(policy["splits"]) == 3
    assert test["splits"] == {"test": 400}
    for side in policy["best_move_is_evaluated"].values():
        assert side["lowest"] == side["between"] == 0


@pytest.mark.parametrize("path", [POLICY, TEST, ENVIRONMENT])
def test_what_stands_beside_them_is_about_them(path: Path) -> None:
    meta = read_meta(path)
    assert meta is not None
    assert meta["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert meta["rows"] == len(rows_of(path)) == meta["settings"]["count"]
    defaults = {"positions_per_game": 8}
    options = [
        f"--{name.replace('_', '-')} {meta['settings'][name]}"
        for name in ("count", "seed", "split", "positions_per_game", "depth")
        if meta["settings"].get(name, defaults.get(name)) != defaults.get(name)
    ]
    command = f"grpo chess make-{meta['settings']['kind']}-data {path.name} {' '.join(options)}"
    assert f"`{command}`" in (FOLDER / "README.md").read_text()


def test_the_positions_of_each_split() -> None:
    rows = {
        split: load_task(f"chess.policy?rows=packaged&split={split}").rows()
        for split in ("train", "validation", "test")
    }
    assert {split: len(found) for split, found in rows.items()} == {"train": 482, "validation": 65, "test": 400}
    every = [row for found in rows.values() for row in found]
    assert len({row.id for row in every}) == 947
    task = load_task("chess.policy?engine=none")
    assert {task.score(row.gold or "", row).value for row in every} == {1.0}


def test_the_commands_still_make_these_moves() -> None:
    shipped = rows_of(ENVIRONMENT)
    assert list(environment_records(2026, 0, 20, split=None)) == shipped[:20]
