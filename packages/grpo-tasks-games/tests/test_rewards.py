"""Rewards for any other code: a completion and a position in, a float out."""

import random

import pytest

from grpo_sdk import UserError
from grpo_tasks_games import connect_four as four
from grpo_tasks_games import nim as heaps
from grpo_tasks_games import tictactoe as three
from grpo_tasks_games.rewards import connect_four, nim, tictactoe

HOSTILE = ["", "no move", "[99999]", "[" * 50_000, "\ud800", "<answer>[]</answer>", "[A0]"]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_completion_without_a_legal_move_earns_nothing(text: str) -> None:
    assert tictactoe(text, ".........") == connect_four(text, "") == nim(text, "3,4,5") == 0.0


def test_perfect_play_earns_one_in_every_position_of_a_game() -> None:
    rng = random.Random(0)
    board, moves, sizes = "." * 9, "", heaps.Heaps((3, 4, 5), misere=False)
    while three.outcome(board) is None:
        move = three.any_best(board, rng)
        assert tictactoe(f"[{move}]", board) == 1.0
        board = three.apply(board, move)
    state = four.Board(4, 5)
    for _ in range(6):
        move = four.any_best(state, rng)
        assert connect_four(f"[{move}]", moves) == 1.0
        state, moves = four.apply(state, move), moves + str(move)
    while heaps.outcome(sizes) is None:
        heap, count = heaps.best(sizes)
        assert nim(f"[{'ABC'[heap]}{count}]", ",".join(map(str, sizes.sizes))) == 1.0
        sizes = heaps.apply(sizes, (heap, count))


def test_misere_nim_leaves_the_last_object() -> None:
    assert nim("[A1]", "2", misere=True) == 1.0 and nim("[A2]", "2", misere=True) == 0.5
    assert nim("[A2]", "2") == 1.0 and nim("[A1]", "2") == 0.5


@pytest.mark.parametrize(
    ("reward", "gold", "message"),
    [
        (tictactoe, "XX", "no board"),
        (tictactoe, "XXX......", "no board"),
        (tictactoe, "XXXOO....", "is over"),
        (connect_four, "9", "no game"),
        (connect_four, "00000", "no game"),
        (connect_four, "0101010", "is over"),
        (nim, "3,x", "no heaps"),
        (nim, "0,0", "is over"),
        (nim, "30,30", "40 at most"),
    ],
)
def test_a_gold_that_is_no_position_is_an_error(reward: object, gold: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        reward("[0]", gold)  # type: ignore[operator]  # each is (completion, gold) -> float


def test_a_board_that_cannot_be_solved_is_refused() -> None:
    with pytest.raises(UserError, match="20 cells at most"):
        connect_four("[0]", "", rows=6, columns=7)
