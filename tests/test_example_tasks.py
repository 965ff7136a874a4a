"""The tasks of examples/tasks: golds are solved, splits are disjoint, a near miss is not solved."""

from pathlib import Path

import pytest

from grpo_core import load_task

TASKS = Path(__file__).parents[1] / "examples" / "tasks"


@pytest.mark.parametrize("name", ["units.py:convert", "pattern.py:match"])
def test_golds_are_solved_and_others_are_not(name: str) -> None:
    train, test = (load_task(f"{TASKS / name}?split={split}&size=100") for split in ("train", "test"))
    rows = test.rows()
    assert rows and not {row.id for row in rows} & {row.id for row in train.rows()}
    assert all(test.score(row.gold or "", row).solved for row in rows)
    assert not any(test.score(wrong, row).solved for row in rows for wrong in ("", "zzz", f"{row.gold} ."))
