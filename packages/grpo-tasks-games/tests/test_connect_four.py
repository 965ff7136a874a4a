import random
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_sdk import Invalid, UserError, load_task
from grpo_tasks_games import connect_four as four
from grpo_tasks_games.bitboard import Solver, has_four
from grpo_tasks_games.connect_four import Board, ConnectFourConfig

CONFIG = ConnectFourConfig()
SMALL = ConnectFourConfig(rows=4, columns=4)


def after(*columns: int, config: ConnectFourConfig = CONFIG) -> Board:
    board = four.initial(0, config)
    for column in columns:
        assert four.outcome(board) is None and column in four.legal(board)
        board = four.apply(board, column)
    return board


def test_moves() -> None:
    board = after(4, 4, 4, 4)
    assert four.parse("<answer>[3]</answer>", board, CONFIG) == 3
    assert four.parse("2", board, CONFIG) == 2
    for text, why in {"[4]": "column 4 is full", "5": "no column 5", "": "no move", "2 or 7": "not one"}.items():
        with pytest.raises(Invalid, match=why):
            four.parse(text, board, CONFIG)
    large = ConnectFourConfig(rows=6, columns=7)
    assert four.parse("6", after(config=large), large) == 6


@pytest.mark.parametrize(("rows", "columns"), [(4, 5), (6, 4)])
def test_a_canonical_board_and_its_mirror_image_are_seen_alike_and_answered_each_in_its_columns(
    rows: int, columns: int
) -> None:
    config = ConnectFourConfig(style="short", canonical=True, rows=rows, columns=columns)
    plain = config.model_copy(update={"canonical": False})
    rng = random.Random(0)
    for _ in range(20):
        board = mirrored = four.initial(0, config)
        while four.outcome(board) is None:
            role = four.to_move(board)
            seen = four.observe(board, role, config)
            assert seen == four.observe(mirrored, role, config)
            assert four.render(board, config) == four.render(mirrored, config)
            assert seen in (four.observe(board, role, plain), four.observe(mirrored, role, plain))
            for column in four.legal(board):
                text = four.write(column, board, config)
                assert four.parse(text, board, config) == column
                assert four.parse(text, mirrored, config) == (column if board == mirrored else columns - 1 - column)
            column = rng.choice(four.legal(board))
            board, mirrored = four.apply(board, column), four.apply(mirrored, columns - 1 - column)


def test_openings_leave_something_to_play() -> None:
    config = ConnectFourConfig(openings=8, split="train", opponent="random")
    boards = [four.initial(seed, config) for seed in range(300)]
    assert max(board.taken.bit_count() for board in boards) == 5  # six, and the opponent might win at once


def naive_four(cells: set[tuple[int, int]]) -> bool:
    return any(
        all((row + i * down, column + i * right) in cells for i in range(4))
        for row, column in cells
        for down, right in ((0, 1), (1, 0), (1, 1), (1, -1))
    )


@given(st.sets(st.tuples(st.integers(0, 5), st.integers(0, 6))))
def test_four_in_a_line_is_what_looking_finds(cells: set[tuple[int, int]]) -> None:
    assert has_four(sum(1 << (column * 7 + row) for row, column in cells), 6) == naive_four(cells)


@pytest.mark.parametrize(
    "moves",
    [
        (0, 0, 1, 1, 2, 2, 3),  # a row
        (0, 1, 0, 1, 0, 1, 0),  # a column
        (0, 1, 1, 2, 2, 3, 2, 3, 3, 0, 3),  # a diagonal that rises
        (4, 3, 3, 2, 2, 1, 2, 1, 1, 4, 1),  # one that falls
    ],
)
def test_four_in_a_line_win_for_who_made_them(moves: tuple[int, ...]) -> None:
    assert four.outcome(after(*moves)) == {"first": 1.0, "second": -1.0}


def test_a_full_board_without_a_line_is_a_draw() -> None:
    board = after(1, 1, 2, 3, 0, 0, 3, 2, 1, 1, 3, 2, 3, 2, 0, 0, config=SMALL)
    assert four.render(board, SMALL) == "0 1 2 3\nO O O X\nX X O X\nO O O X\nX X X O"
    assert four.outcome(board) == {"first": 0.0, "second": 0.0}


@cache
def value_by_search(board: Board) -> int:
    """Plain negamax over the rules, without pruning or bits."""
    returns = four.outcome(board)
    left = board.rows * board.columns - board.taken.bit_count()
    if returns is not None:
        return int(returns[four.to_move(board)]) * (1 + left)
    return max(-value_by_search(four.apply(board, column)) for column in four.legal(board))


@pytest.mark.parametrize("seed", range(6))
def test_perfect_play_agrees_with_trying_everything(seed: int) -> None:
    rng = random.Random(seed)
    rows, columns = (4, 4) if seed % 2 else (4, 5)
    board = start = four.initial(0, ConnectFourConfig(rows=rows, columns=columns))
    while rows * columns - board.taken.bit_count() > 9:  # what is left is small enough to try everything
        following = four.apply(board, rng.choice(four.legal(board)))
        board = following if four.outcome(following) is None else start
    fresh = Solver(rows, columns)
    while four.outcome(board) is None:
        values = {column: -value_by_search(four.apply(board, column)) for column in four.legal(board)}
        assert four.best_moves(board) == [column for column in values if values[column] == max(values.values())]
        assert fresh.value(board.mine, board.taken, -fresh.limit, fresh.limit) == value_by_search(board)
        board = four.apply(board, rng.choice(four.legal(board)))


def test_players_are_what_they_are_called() -> None:
    rng = random.Random(0)
    threat = after(0, 4, 0, 4, 0)  # X threatens column 0
    assert {four.careful(threat, rng) for _ in range(20)} == {0}
    assert {four.careful(four.apply(threat, 4), rng) for _ in range(20)} == {0}  # X wins there rather than blocks 4
    assert {four.any_best(after(1, 1, 2, 3, 0, 0, 3, 2, config=SMALL), rng) for _ in range(60)} == {0, 1}


def test_perfect_play_is_offered_where_it_is_possible() -> None:
    load_task("games.connect_four?rows=6&columns=7&opponent=one_ply")
    load_task("games.connect_four?rows=5&columns=4&opponent=perfect")
    with pytest.raises(UserError, match="opponent=perfect needs a board of at most 20 cells"):
        load_task("games.connect_four?rows=6&columns=7&opponent=perfect")
    with pytest.raises(UserError, match="rows"):
        load_task("games.connect_four?rows=3")
