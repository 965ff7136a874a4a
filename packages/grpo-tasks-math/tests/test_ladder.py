from pathlib import Path

import orjson
import pytest

from grpo_sdk import UserError, load_task
from grpo_tasks_math.ladder import RUNGS, LadderConfig, LadderRow

TASK = load_task("math.ladder?size=200")


def test_the_ladder_is_ordered_from_easiest_to_hardest() -> None:
    names = "echo pattern arithmetic counting base_conversion comparison word_problem gsm8k scheduling"
    assert [*RUNGS] == names.split()
    assert LadderConfig().rungs == tuple(name for name in names.split() if name != "gsm8k")
    assert TASK.task.order == "ladder"


def test_everything_is_the_rungs_own() -> None:
    for row in TASK.rows():
        assert isinstance(row, LadderRow) and row.gold is not None
        task = load_task(f"math.{row.rung}")
        inner = task.row_from_json(row.inner)
        assert TASK.prompt(row) == task.prompt(inner)
        assert inner.gold == row.gold
        for text in (row.gold, " 7", " yes", " A", "", "<schedule></schedule>"):
            score, own = TASK.score(text, row), task.score(text, inner)
            assert (score.valid, score.solved) == (own.valid, own.solved)
            assert score.value == pytest.approx(own.value)  # these rungs have a maximum of 1.0
        assert TASK.score(row.gold, row).value == pytest.approx(1.0)


def test_rungs_can_be_chosen_in_any_order_and_give_rows_in_turn() -> None:
    rows = load_task("math.ladder?rungs=comparison,echo&size=3").rows()
    found = [(row.rung, row.difficulty) for row in rows if isinstance(row, LadderRow)]
    assert found == [("comparison", 0.0), ("echo", 1.0), ("comparison", 0.0)]


def test_a_rung_from_a_file_pays_its_share_of_its_own_maximum(tmp_path: Path) -> None:
    records = [{"question": f"What is {n} + 1?", "answer": f"{n} + 1 = {n + 1}\n#### {n + 1}"} for n in range(40)]
    (tmp_path / "train.jsonl").write_bytes(b"\n".join(map(orjson.dumps, records)))
    task = load_task(f"math.ladder?rungs=echo,gsm8k&size=20&path={tmp_path / '{split}.jsonl'}")
    row = task.rows()[1]
    assert isinstance(row, LadderRow) and row.rung == "gsm8k" and row.gold is not None
    assert task.score(row.gold, row).value == pytest.approx(1.0)
    # The answer alone: accuracy 2.0 and the form 0.2 of 2.4; without steps there is no reasoning.
    answer = row.gold.rpartition("\n")[2]
    score = task.score(answer, row)
    assert score.value == pytest.approx(2.2 / 2.4) and score.solved


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("rungs=ecko", "there is no rung 'ecko'"),
        ("rungs=echo,echo", "each of them once"),
        ("rungs=", "there is no rung ''"),
        ("path=rows.jsonl", "gsm8k"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_task(f"math.ladder?{options}")
