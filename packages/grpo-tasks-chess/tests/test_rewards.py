"""Rewards for any other code: a completion and a gold in, a float out."""

import pytest

from grpo_sdk import UserError, load_task
from grpo_tasks_chess import rewards
from grpo_tasks_chess.rewards import WEIGHTS, legal_move, next_position, outcome, policy, solution

HOSTILE = ["", "no move", "M: E: B:", "M:" * 5000, "\ud800", "+++", "x" * 100_000]
START = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"
LINE = f"P: {START} M: e2e4 d2d4 E: 0.3 0.2 B: e2e4"
OUTCOME = "4k3/8/8/8/4P3/8/8/4K3 b - - 0 1+0.001+0+0"


@pytest.mark.parametrize("text", HOSTILE)
def test_no_completion_raises(text: str) -> None:
    for name, gold in {
        **dict.fromkeys(("best_move", "candidates", "evaluations", "policy"), LINE),
        **dict.fromkeys(("outcome", "next_position"), OUTCOME),
        "legal_move": START,
        "solution": "e2e4",
    }.items():
        assert getattr(rewards, name)(text, gold) == 0.0, name


def test_policy_is_the_weighted_sum_of_the_parts_of_the_task() -> None:
    task = load_task("chess.policy?rows=packaged&size=20")
    for row in task.rows():
        completion = str(row.gold)
        line = f"{task.prompt(row)}{completion}"
        damaged = completion.replace("B:", "B: e2e4 " if "e2e4" not in completion else "B:")
        for text in (completion, damaged, completion.replace("E: ", "E: 9.5 ")):
            parts = task.score(text, row).parts
            weighted = sum(weight * parts.get(name, 0.0) for name, weight in WEIGHTS.items())
            assert policy(text, line) == pytest.approx(weighted)


def test_outcome_and_next_position_are_parts_of_the_task() -> None:
    task = load_task("chess.environment?size=20")
    for row in task.rows():
        gold = str(row.gold)
        assert outcome(gold, gold) == next_position(gold, gold) == 1.0
        near = gold.replace(" w ", " b ") if " w " in gold else gold.replace(" b ", " w ")
        assert outcome(near, gold) == 0.0
        assert 0.9 < next_position(near, gold) < 1.0


def test_a_move_of_a_policy_line_may_be_judged_by_legality() -> None:
    assert legal_move("M: e2e4 E: 0.1 B: e2e4", START) == 1.0
    assert legal_move("M: e2e4 E: 0.1 B: e7e5", START) == 0.0


def test_a_longer_answer_than_the_solution_counts_less() -> None:
    assert solution("e2e4 e7e5", "e2e4") == 0.5
    assert solution("d2d4 e7e5", "e2e4 e7e5") == 0.0


def test_a_gold_of_another_form_is_an_error() -> None:
    golds = {"policy": ["e2e4"], "best_move": [f"P: {START} M: e2e4"], "legal_move": ["nothing"]}
    for name, wrong in {**golds, "outcome": ["nothing"], "solution": ["Nf3", ""]}.items():
        for gold in wrong:
            with pytest.raises(UserError):
                getattr(rewards, name)("M: e2e4 E: 0.1 B: e2e4", gold)
