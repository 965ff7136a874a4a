import pytest

from grpo_tasks_games import nim
from grpo_tasks_games.nim import Heaps
from grpo_tasks_games.players import one_ply_moves


@pytest.mark.parametrize(
    ("heaps", "played"),
    [
        (Heaps((0, 3), misere=False), {(1, 3)}),  # wins at once
        # Emptying a heap leaves one heap, which the other takes. All else leaves two.
        (Heaps((2, 3), misere=False), {(0, 1), (1, 1), (1, 2)}),
        (Heaps((3,), misere=True), {(0, 1), (0, 2)}),  # does not lose by its own move
        (Heaps((1,), misere=True), {(0, 1)}),  # everything loses
    ],
)
def test_one_ply_sees_one_move_ahead(heaps: Heaps, played: set[nim.Move]) -> None:
    assert {*one_ply_moves(nim.GAME, heaps)} == played
