from typing import Any

import pytest

from grpo_tasks_chess.drawing import draw
from grpo_tasks_chess.formats import EnvironmentAnswer, write_environment_completion

START = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"


@pytest.mark.parametrize(("task", "row", "text", "caption", "arrows"), [
    ("policy", {"best": "d2d4"}, "M: e2e4 E: 0.3 B: e2e4", "e4 chosen; d4 is best", 2),
    ("policy", {"best": "d2d4"}, "<svg onload=alert(1)>", "no legal move chosen; d4 is best", 1),
    ("mate_in_one", {"mates": ["d2d4", "d2d3"]}, "e2e4", "e4 chosen; d4 is best", 2),
    ("mate_in_one", {"mates": ["d2d4"]}, "e2e4 d2d4", "no legal move chosen; d4 is best", 1),
])  # fmt: skip
def test_a_board_has_the_chosen_and_the_best_move(
    task: str, row: dict[str, Any], text: str, caption: str, arrows: int
) -> None:
    (frame,) = draw(task, {"fen": START, **row}, text)
    assert frame.caption == caption and frame.svg.startswith("<svg") and "onload" not in frame.svg
    assert frame.svg.count('class="arrow"') == 2 * arrows  # a line and its head


def test_an_environment_shows_the_position_before_and_after_and_the_predicted_one() -> None:
    after = "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1"
    row = {"fen": START, "move": "e2e4", "next_fen": after}
    answer = write_environment_completion(EnvironmentAnswer(after, 0.001, False, False))
    assert [frame.caption for frame in draw("environment", row, answer)] == [
        "before e2e4", "after it", "as the completion has it",
    ]  # fmt: skip
    assert len(draw("environment", row, "nonsense")) == 2


def test_a_puzzle_is_shown_move_by_move() -> None:
    frames = draw("puzzle", {"fen": START, "solution": ["e2e4", "e7e5"]}, "")
    assert [frame.caption for frame in frames] == ["the puzzle", "solution: e4", "solution: e5"]


@pytest.mark.parametrize("row", [{}, {"fen": "x"}, {"fen": 7}])
def test_a_row_without_a_position_has_no_board(row: dict[str, Any]) -> None:
    assert draw("policy", row, "M: e2e4 E: 0 B: e2e4") == []
