"""The generators: what their rows show, and that each depends on the seed and its number alone."""

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

import chess
import pytest

from grpo_sdk.data import split_of
from grpo_tasks_chess.data.environment import QUOTAS, environment_records, illegal_move
from grpo_tasks_chess.data.policy import POSITIONS_PER_GAME, policy_records
from grpo_tasks_chess.formats import Line
from grpo_tasks_chess.records import position_key

VALUES = {chess.PAWN: 1, chess.KNIGHT: 3, chess.BISHOP: 3, chess.ROOK: 5, chess.QUEEN: 9, chess.KING: 0}


def by_captures(fen: str, multipv: int, depth: int) -> tuple[Line, ...]:
    """An engine for tests: the more a move takes, the better."""
    board = chess.Board(fen)
    lines = [
        Line(move.uci(), float(VALUES.get(board.piece_type_at(move.to_square) or chess.KING, 0)))
        for move in board.legal_moves
    ]
    return tuple(sorted(lines, key=lambda line: (-line.evaluation, line.move))[:multipv])


@pytest.fixture(scope="module")
def hundred() -> list[dict[str, Any]]:
    return list(environment_records(7, 100, 200, split=None))


def shows(row: Mapping[str, Any]) -> str:
    """What a row shows, told from the board and not by the generator."""
    board, move = chess.Board(row["fen"]), chess.Move.from_uci(row["move"])
    if not board.is_legal(move):
        return "illegal"
    moves = {"en_passant": board.is_en_passant(move), "castling": board.is_castling(move), "promotion": move.promotion}
    board.push(move)
    ends = {
        "checkmate": board.is_checkmate(),
        "stalemate": board.is_stalemate(),
        "insufficient_material": board.is_insufficient_material(),
        "seventyfive_moves": board.is_seventyfive_moves(),
    }
    return next((name for name, is_so in {**ends, **moves}.items() if is_so), "ordinary")


def test_each_hundred_rows_hold_the_quotas_exactly(hundred: list[dict[str, Any]]) -> None:
    assert sum(QUOTAS.values()) == 100
    assert Counter(map(shows, hundred)) == QUOTAS == Counter(row["kind"] for row in hundred)


def test_a_history_leads_to_the_position(hundred: list[dict[str, Any]]) -> None:
    lengths = Counter(len(row["history"]) for row in hundred)
    assert lengths[10] > 50 and max(lengths) == 10
    for row in hundred:
        assert row["history"][-1] == row["move"]
        # Each move of the history but the last was made by the sides in turn, and the one before the last by the other.
        if len(row["history"]) > 1:
            arrived = chess.Move.from_uci(row["history"][-2]).to_square
            assert chess.Board(row["fen"]).color_at(arrived) in (None, not chess.Board(row["fen"]).turn)


def test_illegal_moves_are_of_many_sorts() -> None:
    # White's rook is pinned, its king may not castle, and its pawn can promote.
    board = chess.Board("4k2r/P7/8/4q3/8/8/4R3/4K3 w k - 0 1")
    before = board.fen()
    found = {illegal_move(board, Random(seed)) for seed in range(300)} - {""}
    assert board.fen() == before
    assert not any(board.is_legal(chess.Move.from_uci(move)) for move in found)
    assert {"e2d2", "a7a8", "e1g1"} <= found  # into check; the pawn does not say what it becomes; castling
    starts = {board.color_at(chess.parse_square(move[:2])) for move in found}
    assert starts == {chess.WHITE, chess.BLACK, None}
    assert any(board.color_at(chess.parse_square(move[2:4])) == chess.WHITE for move in found)


def test_rows_depend_on_seed_and_number_alone(hundred: list[dict[str, Any]]) -> None:
    assert list(environment_records(7, 117, 119, split=None)) == hundred[17:19]
    assert next(environment_records(8, 100, 101, split=None)) != hundred[0]

    def positions(seed: int, start: int, stop: int) -> list[dict[str, Any]]:
        return list(policy_records(seed, start, stop, analyse=by_captures, depth=1, split=None))

    sixteen = positions(3, 0, 16)
    assert [row["index"] for row in sixteen] == list(range(16))
    assert positions(3, 5, 10) == sixteen[5:10]
    assert positions(4, 0, 1) != sixteen[:1]


def test_a_split_is_the_part_of_the_rows_whose_positions_hash_to_it(hundred: list[dict[str, Any]]) -> None:
    in_train = [split_of(position_key(row["fen"])) == "train" for row in hundred[:20]]
    assert 0 < sum(in_train) < 20
    part = list(environment_records(7, 100, 120, split="train"))
    assert part == [row for row, is_in in zip(hundred, in_train, strict=False) if is_in]


def test_each_split_of_a_seed_has_games_of_its_own() -> None:
    def boards(split: str) -> set[str]:
        rows = list(policy_records(3, 0, 400, analyse=by_captures, depth=1, split=split, per_game=40))
        assert rows and all(split_of(position_key(row["fen"])) == split for row in rows)
        return {" ".join(row["fen"].split()[:2]) for row in rows}

    def neighbours(fens: set[str]) -> set[str]:
        found = set()
        for fen in fens:
            board = chess.Board(f"{fen} - - 0 1")
            for move in board.pseudo_legal_moves:
                board.push(move)
                found.add(" ".join(board.fen().split()[:2]))
                board.pop()
        return found

    train, test = boards("train"), boards("test")
    assert not neighbours(test) & train and not neighbours(train) & test


def test_positions_are_labelled_and_in_no_order_and_reach_from_openings_to_endgames() -> None:
    games = 20
    rows = list(policy_records(0, 0, games * POSITIONS_PER_GAME, analyse=by_captures, depth=1, split=None))
    for row in rows:
        lines = by_captures(row["fen"], 5, 1)
        assert sorted(zip(row["moves"], row["evaluations"], strict=True)) == sorted(
            (line.move, line.evaluation) for line in lines
        )
        assert row["best"] == lines[0].move
    places = Counter(row["moves"].index(row["best"]) for row in rows if len(row["moves"]) == 5)
    # Of 5 places each has a fifth: 160 rows, standard deviation 5.
    assert all(12 <= places[place] <= 52 for place in range(5))
    pieces = [len(chess.Board(row["fen"]).piece_map()) for row in rows]
    assert min(pieces) <= 6 and max(pieces) >= 30
    sides = Counter(row["fen"].split()[1] for row in rows)
    assert min(sides.values()) > 40
