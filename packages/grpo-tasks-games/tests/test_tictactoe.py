import random

import pytest

from grpo_sdk import Invalid
from grpo_tasks_games import tictactoe
from grpo_tasks_games.tictactoe import TicTacToeConfig

CONFIG = TicTacToeConfig()
EMPTY = tictactoe.initial(0, CONFIG)
BOARD = "X...O...."


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<answer>[4]</answer>, else 5", "cell 4 is taken"),
        ("[9]", "there is no cell 9"),
    ],
)
def test_what_is_no_move_says_why(text: str, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        tictactoe.parse(text, BOARD, CONFIG)


def test_a_canonical_board_is_seen_in_one_orientation_and_answered_in_it() -> None:
    canonical = TicTacToeConfig(style="short", canonical=True)
    boards = [board for board in reachable() if tictactoe.outcome(board) is None]
    assert len(boards) == 4520
    assert len({tictactoe.observe(board, tictactoe.to_move(board), canonical) for board in boards}) == 627
    for board in ("X........", "..X......", "......X..", "........X"):
        assert tictactoe.observe(board, "second", canonical) == "tictactoe 012 345 67X O\n"
    for board in boards:
        for cell in tictactoe.legal(board):
            assert tictactoe.parse(tictactoe.write(cell, board, canonical), board, canonical) == cell
    with pytest.raises(Invalid, match="cell 8 is taken"):
        tictactoe.parse("8", "X........", canonical)
    assert tictactoe.render("X........", canonical).endswith(" 6 | 7 | X")  # people read the moves on the same board


def test_lines_win_for_who_made_them() -> None:
    assert tictactoe.outcome("XXXOO....") == {"first": 1.0, "second": -1.0}
    assert tictactoe.outcome("XX.OOO.X.") == {"first": -1.0, "second": 1.0}
    assert tictactoe.outcome("O.XXOX..O") == {"first": -1.0, "second": 1.0}  # the diagonal 0, 4, 8
    assert tictactoe.outcome("XOXXOOOXX") == {"first": 0.0, "second": 0.0}
    assert tictactoe.outcome(BOARD) is None


def reachable() -> set[str]:
    boards, fresh = {EMPTY}, [EMPTY]
    while fresh:
        board = fresh.pop()
        for cell in tictactoe.legal(board) if tictactoe.outcome(board) is None else ():
            after = tictactoe.apply(board, cell)
            if after not in boards:
                boards.add(after)
                fresh.append(after)
    return boards


def test_the_game_has_as_many_positions_as_is_known() -> None:
    boards = reachable()
    assert len(boards) == 5478
    ends = [returns for board in boards if (returns := tictactoe.outcome(board)) is not None]
    # 626 positions where X has won, 316 where O has, 16 full boards without a line.
    assert [sum(returns["first"] == r for returns in ends) for r in (1, -1, 0)] == [626, 316, 16]


def test_perfect_play_wins_early_and_loses_late() -> None:
    # 5 wins now; 2 would win later, since it threatens 5 and 6.
    assert tictactoe.best_moves("OO.XX....") == [5]
    # X threatens 8, and after O's block wins by 3, which threatens 5 and 6: everything loses, but 8 loses last.
    assert tictactoe.value("XO..X....") < 0
    assert tictactoe.best_moves("XO..X....") == [8]


def test_players_are_what_they_are_called() -> None:
    rng = random.Random(0)
    assert {tictactoe.careful("OO.XX....", rng) for _ in range(20)} == {5}  # wins rather than blocks
    free = "X...O...X"  # nothing to win or block
    assert {tictactoe.careful(free, rng) for _ in range(60)} == {*tictactoe.legal(free)}
    assert {tictactoe.careful("XX..O....", rng) for _ in range(20)} == {2}  # blocks
    assert {tictactoe.any_best(EMPTY, rng) for _ in range(200)} == set(range(9))  # every opening draws
    assert tictactoe.best_moves("X........") == [4]  # the only reply to a corner that does not lose
    assert tictactoe.GAME.scripted == ("random", "perfect", "any_perfect", "one_ply")
