"""The built-in search finds what a search of every line finds."""

from random import Random

import chess
import pytest

from grpo_sdk import UserError
from grpo_tasks_chess.data.games import endgame, light_player, played
from grpo_tasks_chess.search import balance, best_moves, gain

FOOLS_MATE = "rnbqkbnr/pppp1ppp/8/4p3/6P1/5P2/PPPPP2P/RNBQKBNR b KQkq - 0 2"


def some_boards(count: int) -> list[chess.Board]:
    random = Random(3)
    boards: list[chess.Board] = []
    while len(boards) < count:
        start = endgame(random) if random.random() < 0.5 else chess.Board()
        boards += [board.copy(stack=False) for board in played(start, light_player(random)) if random.random() < 0.1]
    return boards[:count]


def whole(board: chess.Board, depth: int, ply: int = 0) -> float:
    """Value of a position by every line of `depth` plies and every capture after them, without bounds."""
    if not any(board.legal_moves):
        return ply - 1_000_000 if board.is_check() else 0
    if board.is_insufficient_material() or board.halfmove_clock >= 150:
        return 0
    if depth == 0:
        return captures(board, 6)
    found = []
    for move in board.legal_moves:
        board.push(move)
        found.append(-whole(board, depth - 1, ply + 1))
        board.pop()
    return max(found)


def captures(board: chess.Board, plies: int) -> float:
    best: float = balance(board)
    for move in board.generate_legal_captures() if plies else ():
        board.push(move)
        best = max(best, -captures(board, plies - 1))
        board.pop()
    return best


def pawns(value: float) -> float:
    plies = 1_000_000 - abs(value)
    return value / 100 if plies > 1000 else (1 if value > 0 else -1) * (1000 - (plies + 1) // 2 / 100)


@pytest.mark.parametrize("depth", [1, 2])
def test_it_finds_what_every_line_gives(depth: int) -> None:
    for board in some_boards(12):
        values = {}
        for move in list(board.legal_moves):
            board.push(move)
            values[move.uci()] = pawns(-whole(board, depth - 1, 1))
            board.pop()
        lines = best_moves(board.fen(), depth=depth)
        assert len(lines) == min(5, len(values))
        assert {line.move: line.evaluation for line in lines} == {line.move: values[line.move] for line in lines}
        best = sorted(values.values(), reverse=True)[: len(lines)]
        assert [line.evaluation for line in lines] == best


def test_gains_add_up_to_the_balance() -> None:
    castling, pawns = "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1", "4k3/P7/8/1Pp5/8/8/8/4K3 w - c6 0 2"
    for board in (*some_boards(60), chess.Board(castling), chess.Board(pawns)):
        for move in list(board.legal_moves):
            expected = -(balance(board) + gain(board, move))
            board.push(move)
            assert balance(board) == expected, move
            board.pop()


def test_mates() -> None:
    assert best_moves(FOOLS_MATE, lines=1)[0].evaluation == 999.99 and best_moves(FOOLS_MATE)[0].move == "d8h4"
    in_two = best_moves("6k1/5ppp/8/8/8/8/R7/1R4K1 w - - 0 1", depth=1)[0]
    assert in_two.move in {"a2a8", "b1b8"} and in_two.evaluation == 999.99
    two = best_moves("7k/8/5K2/8/8/8/8/6Q1 w - - 0 1", lines=1, depth=3)[0]
    assert two.evaluation >= 999.98


def test_no_lines_after_the_end_and_an_error_for_what_is_no_position() -> None:
    assert best_moves("7k/5Q2/6K1/8/8/8/8/8 b - - 5 60") == ()
    with pytest.raises(UserError):
        best_moves("nonsense")
