"""Moves with their outcomes for `chess.environment`: `environment_records` for files, `generated_rows` for runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import count, islice
from random import Random
from types import MappingProxyType
from typing import Any

import chess

from grpo_sdk.data import split_of
from grpo_tasks_chess.data.games import endgame, light_player, played
from grpo_tasks_chess.data.output import environment_record
from grpo_tasks_chess.environment.rows import EnvironmentRow, row_of
from grpo_tasks_chess.formats import MAX_HISTORY, Transition
from grpo_tasks_chess.records import position_key, position_key_of
from grpo_tasks_chess.rules import play

QUOTAS: Mapping[str, int] = MappingProxyType(
    {
        "ordinary": 54,
        "illegal": 12,
        "checkmate": 8,
        "castling": 6,
        "promotion": 6,
        "en_passant": 5,
        "stalemate": 4,
        "insufficient_material": 3,
        "seventyfive_moves": 2,
    }
)
"""Rows of each kind in a hundred. In real games, one move in a hundred is a mate, one in thousands a stalemate."""

_TERMINATIONS = {
    chess.Termination.CHECKMATE: "checkmate",
    chess.Termination.STALEMATE: "stalemate",
    chess.Termination.INSUFFICIENT_MATERIAL: "insufficient_material",
    chess.Termination.SEVENTYFIVE_MOVES: "seventyfive_moves",
}
"""Kinds by termination, without fivefold repetition, which the ten moves of a prompt cannot show."""

_ENDGAMES = {"stalemate": 1.0, "insufficient_material": 1.0, "seventyfive_moves": 1.0, "promotion": 0.5}
_ENDGAME_SHARE = 0.2
"""Share of games that start as endgames, by the wanted kind of move, and for other kinds."""

GENERATED_ENDGAME_SHARE = 0.3
"""Share of games of `generated_rows` that start with few pieces; in others, promotions and draws are rare."""

GENERATED_PLIES = (4, 160)
"""Shortest and longest game in half-moves; random games of full length are mostly long endings."""

MAX_CLOCK = 149
"""Largest number of half-moves without capture or pawn move at the start of an endgame; 150 end a game."""

EXAMINED_SHARES: Mapping[str, float] = MappingProxyType({"train": 0.3, "validation": 1.0, "test": 1.0})
"""Share of a split's positions that are examined: neighbours in a game are alike, and the small splits have few."""

FEW_PIECES = 6
"""Positions with more pieces are not searched for moves that end in a draw, which are very rare there."""

GENERATED_KINDS: Mapping[str, float] = MappingProxyType(
    {"ordinary": 0.16, "illegal": 0.04, "castling": 0.25, "promotion": 0.6, "insufficient_material": 0.5}
)
"""Probability of taking a move of a kind, 1 for kinds not listed. Of a thousand rows, about 130 are illegal, 40
promotions, 33 mates, 27 draws, 23 castling, 10 en passant and the others ordinary."""

MAX_SKIPPED = 120
"""Largest number of half-moves skipped before a move is taken, to cover openings, middle games and endings."""

_TAKEN = {"castling": 0.3, "promotion": 0.3, "checkmate": 0.5}
"""Probability of taking a move of a kind, so that it is not always the first of its game; others are rare."""

_CLOCKS = (0, 139)
_LATE_CLOCKS = (125, 139)
"""Half-moves without capture or pawn move at the start of an endgame, of 150 that end it: all kinds show high clocks,
and at least ten moves are left for the history."""


def environment_records(seed: int, start: int, stop: int, *, split: str | None) -> Iterator[dict[str, Any]]:
    """Yield the rows from `start` to `stop` (exclusive), labelled by `rules.play`.

    The rows have the fields `index`, `kind`, `fen`, `move`, `history`, `next_fen`, `reward`, `terminated` and
    `truncated`.

    Args:
        seed: Random seed.
        start: Number of the first row.
        stop: Number after the last row.
        split: Yield only rows of this split; None yields all.
    """
    for index in range(start, stop):
        kind = _kind(seed, index)
        fen, move, history = _example(Random(f"environment/{seed}/{index}"), kind)
        if split is not None and split_of(position_key(fen)) != split:
            continue
        outcome = play(fen, move, history)
        yield {"index": index, "kind": kind, **environment_record(Transition(fen, move, history), outcome)}


def generated_rows(seed: int, split: str) -> Iterator[EnvironmentRow]:
    """Yield rows without end; the i-th one is a pure function of seed, split and i.

    The split of a row depends on the hash of its position, so splits are disjoint for every pair of seeds. Each split
    has games of its own.
    """
    for number in count():
        yield from _rows_of_game(Random(f"chess.environment/{seed}/{split}/{number}"), split)


def _rows_of_game(random: Random, split: str) -> list[EnvironmentRow]:
    """Return a few moves of a game, from positions of this split, in random order."""
    is_endgame = random.random() < GENERATED_ENDGAME_SHARE
    board = endgame(random, clock=random.randint(0, MAX_CLOCK)) if is_endgame else chess.Board()
    rows = []
    for position in islice(played(board, light_player(random)), random.randint(*GENERATED_PLIES)):
        if random.random() < EXAMINED_SHARES[split] and split_of(position_key_of(position)) == split:
            history = [each.uci() for each in position.move_stack[-(MAX_HISTORY - 1) :]]
            for kind, move in _moves_by_kind(position, random).items():
                if random.random() < GENERATED_KINDS.get(kind, 1.0):
                    transition = Transition(position.fen(), move, (*history, move))
                    rows.append(row_of(transition, play(transition.fen, transition.move, transition.history)))
    random.shuffle(rows)
    return rows


def _moves_by_kind(board: chess.Board, random: Random) -> dict[str, str]:
    """Return moves of a position by kind: an ordinary one, an illegal one, and one of each rare kind, if possible."""
    moves = list(board.legal_moves)
    random.shuffle(moves)
    may_draw = chess.popcount(board.occupied) <= FEW_PIECES or board.halfmove_clock >= MAX_CLOCK
    by_kind: dict[str, str] = {}
    for number, move in enumerate(moves):
        is_special = move.promotion or board.is_castling(move) or board.is_en_passant(move)
        if number == 0 or is_special or may_draw or board.gives_check(move):
            by_kind.setdefault(kind_of(board, move), move.uci())
    by_kind.pop("", None)
    illegal = illegal_move(board, random)
    return {**by_kind, "illegal": illegal} if illegal else by_kind


def _kind(seed: int, index: int) -> str:
    """Return the kind of row `index`: each hundred rows have exactly the `QUOTAS`, in random order."""
    hundred, number = divmod(index, sum(QUOTAS.values()))
    return _kinds(seed, hundred)[number]


@lru_cache(maxsize=2)
def _kinds(seed: int, hundred: int) -> list[str]:
    kinds = [kind for kind, share in QUOTAS.items() for _ in range(share)]
    Random(f"environment/{seed}/kinds/{hundred}").shuffle(kinds)
    return kinds


def kind_of(board: chess.Board, move: chess.Move) -> str:
    """Return the kind of a legal move; empty for a fifth repetition, which is left out."""
    is_rare = (
        ("promotion", move.promotion is not None),
        ("en_passant", board.is_en_passant(move)),
        ("castling", board.is_castling(move)),
    )
    board.push(move)
    outcome = board.outcome()
    board.pop()
    if outcome is not None:
        return _TERMINATIONS.get(outcome.termination, "")
    return next((kind for kind, is_so in is_rare if is_so), "ordinary")


def _example(random: Random, kind: str) -> tuple[str, str, tuple[str, ...]]:
    """Return FEN, move and history of an example, playing as many games as necessary."""
    wanted = _WANTED.get(kind)
    while True:
        board = _opening(random, kind)
        skipped = random.randint(0, MAX_SKIPPED) if wanted is None else 0
        for ply, position in enumerate(played(board, light_player(random))):
            if ply < skipped:
                continue
            found = illegal_move(position, random) if kind == "illegal" else _legal(position, random, kind, wanted)
            if found:
                history = [each.uci() for each in position.move_stack[-(MAX_HISTORY - 1) :]]
                return position.fen(), found, (*history, found)


def _opening(random: Random, kind: str) -> chess.Board:
    if random.random() >= _ENDGAMES.get(kind, _ENDGAME_SHARE):
        return chess.Board()
    return endgame(random, clock=random.randint(*(_LATE_CLOCKS if kind == "seventyfive_moves" else _CLOCKS)))


def _legal(
    board: chess.Board, random: Random, kind: str, wanted: Callable[[chess.Board, chess.Move], bool] | None
) -> str:
    """Return a move of this kind, or an empty string."""
    if wanted is None:
        move = light_player(random)(board)
        return move.uci() if kind_of(board, move) == kind else ""
    moves = [move for move in board.legal_moves if wanted(board, move) and kind_of(board, move) == kind]
    return random.choice(moves).uci() if moves and random.random() < _TAKEN.get(kind, 1.0) else ""


_WANTED: Mapping[str, Callable[[chess.Board, chess.Move], bool]] = {
    "checkmate": lambda board, move: board.gives_check(move),
    "castling": lambda board, move: board.is_castling(move),
    "promotion": lambda board, move: move.promotion is not None,
    "en_passant": lambda board, move: board.is_en_passant(move),
    "stalemate": lambda board, move: not board.gives_check(move),
    "insufficient_material": lambda board, move: board.is_capture(move),
    "seventyfive_moves": lambda board, move: board.halfmove_clock >= 149,
}
"""Necessary condition of a move of a rare kind, which can be checked without playing it."""


def illegal_move(board: chess.Board, random: Random) -> str:
    """Return an illegal move in UCI, or an empty string if the randomly chosen mistake is not possible."""
    move = random.choice(_ILLEGAL)(board, random)
    if move is None or not move or move.from_square == move.to_square or board.is_legal(move):
        return ""
    return move.uci()


def _into_check(board: chess.Board, random: Random) -> chess.Move | None:
    """Return a move that the piece can make, but that leaves its king in check."""
    moves = [move for move in board.pseudo_legal_moves if not board.is_legal(move) and not board.is_castling(move)]
    return random.choice(moves) if moves else None


def _anywhere(board: chess.Board, random: Random) -> chess.Move:
    """Return a move of an own piece to a random square."""
    return chess.Move(_square(board.occupied_co[board.turn], random), random.choice(chess.SQUARES))


def _onto_own_piece(board: chess.Board, random: Random) -> chess.Move:
    own = board.occupied_co[board.turn]
    return chess.Move(_square(own, random), _square(own, random))


def _of_the_other(board: chess.Board, random: Random) -> chess.Move | None:
    """Return a move that the other side could make."""
    board.push(chess.Move.null())
    moves = list(board.pseudo_legal_moves)
    board.pop()
    return random.choice(moves) if moves else None


def _from_nowhere(board: chess.Board, random: Random) -> chess.Move:
    """Return a move from an empty square."""
    return chess.Move(_square(~board.occupied & chess.BB_ALL, random), random.choice(chess.SQUARES))


def _promotion_mistake(board: chess.Board, random: Random) -> chess.Move:
    """Return a promotion without a piece, or another move with one."""
    move = random.choice(list(board.legal_moves))
    return chess.Move(move.from_square, move.to_square, None if move.promotion else chess.QUEEN)


def _castling_without_right(board: chess.Board, random: Random) -> chess.Move | None:
    king = board.king(board.turn)
    home = chess.E1 if board.turn else chess.E8
    return chess.Move(home, home + random.choice((2, -2))) if king == home else None


_ILLEGAL: tuple[Callable[[chess.Board, Random], chess.Move | None], ...] = (
    _into_check,
    _into_check,  # the one that takes looking ahead
    _anywhere,
    _onto_own_piece,
    _of_the_other,
    _from_nowhere,
    _promotion_mistake,
    _castling_without_right,
)


def _square(squares: chess.Bitboard, random: Random) -> chess.Square:
    return random.choice(list(chess.scan_forward(squares)))
