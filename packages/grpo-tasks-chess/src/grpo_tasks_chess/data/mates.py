"""Positions with a mate in one, from games and composed endings, chosen by how they mate."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import count
from random import Random
from types import MappingProxyType
from typing import Literal, TypeVar

import chess
from pydantic import model_validator

from grpo_sdk import TaskConfig
from grpo_sdk.data import CommaSeparated, split_of
from grpo_tasks_chess.data.positions import visited

T = TypeVar("T")

Theme = Literal["pawn", "knight", "bishop", "rook", "queen", "king", "promotion", "discovered"]
"""How a move mates: the piece that moves; a pawn promotes; another piece gives the check, alone or too."""

GENERATED = 300
"""Default number of generated rows with a mate, which take a few seconds."""

MOST_REFUSED = 3000
"""Positions in a row with other themes after which no more are made; they take half a minute."""

ATTACKING, DEFENDING = (2, 4), (0, 4)
"""Smallest and largest number of pieces beside the kings in a composed position: of the side to move, of the other."""

ATTACKERS: Mapping[chess.PieceType, float] = MappingProxyType(
    {chess.QUEEN: 3, chess.ROOK: 3, chess.BISHOP: 2, chess.KNIGHT: 2, chess.PAWN: 2}
)
DEFENDERS: Mapping[chess.PieceType, float] = MappingProxyType(
    {chess.PAWN: 4, chess.KNIGHT: 1, chess.BISHOP: 1, chess.ROOK: 1}
)
"""How often each kind of piece is taken, for either side."""

PROMOTION_SHARE = 0.3
"""Share of the pawns of the side to move that are about to promote."""

COMPOSED_SHARE = 0.75
"""Share of mates in one that are composed, at a tenth of the time of those from games."""

EDGE_SHARE = 0.9
"""Share of composed positions with the other king at the edge, where nearly all mates are."""

_EDGE = [*chess.SquareSet(chess.BB_RANK_1 | chess.BB_RANK_8 | chess.BB_FILE_A | chess.BB_FILE_H)]
_SEVENTH = {chess.WHITE: [*chess.SquareSet(chess.BB_RANK_7)], chess.BLACK: [*chess.SquareSet(chess.BB_RANK_2)]}


class ThemesConfig(TaskConfig):
    """Options that choose positions by their mates in one.

    Attributes:
        themes: Take positions with at least one of these mates: by `pawn`, `knight`, `bishop`, `rook`, `queen` or
            `king`, the piece that moves; by `promotion`; by a check that is `discovered`.
        without_themes: Leave out positions with one of these mates, as to hold them out of training.
    """

    themes: CommaSeparated[Theme] = ()
    without_themes: CommaSeparated[Theme] = ()

    @model_validator(mode="after")
    def _leaves_a_piece(self) -> ThemesConfig:
        if both := set(self.themes) & set(self.without_themes):
            raise ValueError(f"{min(both)} is both in themes and in without_themes")
        if self.attackers == {}:
            raise ValueError("without_themes leaves no piece that mates")
        return self

    @property
    def is_choosing(self) -> bool:
        """Whether some positions are left out."""
        return bool(self.themes or self.without_themes)

    @property
    def attackers(self) -> Mapping[chess.PieceType, float] | None:
        """The pieces that positions are composed of to have these themes; None without themes."""
        if not self.is_choosing:
            return None
        wanted = {"pawn" if theme == "promotion" else theme for theme in self.themes}
        return {
            kind: often * (5 if chess.piece_name(kind) in wanted else 1)
            for kind, often in ATTACKERS.items()
            if chess.piece_name(kind) not in self.without_themes
        }

    def takes(self, themes: Collection[str]) -> bool:
        """Whether a position with mates of these themes is wanted."""
        has_one = not self.themes or not set(self.themes).isdisjoint(themes)
        return has_one and set(self.without_themes).isdisjoint(themes)

    def taken(self, rows: Iterator[T], themes: Callable[[T], Collection[str]]) -> Iterator[T]:
        """Yield the rows without end that are wanted, until none has been for long.

        Args:
            rows: The rows.
            themes: Returns the themes of a row's mates.
        """
        refused = 0
        for row in rows:
            if self.takes(themes(row)):
                refused = 0
                yield row
            elif (refused := refused + 1) == MOST_REFUSED:
                return


def themes_of(board: chess.Board, mates: Sequence[chess.Move] | None = None) -> tuple[str, ...]:
    """Return how a position's moves mate, in alphabetical order; empty where none does.

    Args:
        board: The position.
        mates: Its mating moves, if they are known.
    """
    return tuple(sorted({theme for move in mates or mating_moves(board) for theme in _themes(board, move)}))


def _themes(board: chess.Board, move: chess.Move) -> set[str]:
    piece = board.piece_type_at(move.from_square)
    assert piece is not None
    themes = {chess.piece_name(piece)} | ({"promotion"} if move.promotion else set())
    board.push(move)
    if board.checkers_mask() & ~chess.BB_SQUARES[move.to_square]:
        themes.add("discovered")
    board.pop()
    return themes


def composed(
    random: Random, attackers: Mapping[chess.PieceType, float] = ATTACKERS, split: str | None = None
) -> chess.Board:
    """Return a random position with few pieces, the other king at the edge, in which the game is not over.

    Args:
        random: Random generator.
        attackers: Kinds of pieces beside the king of the side to move, and how often they are taken.
        split: Its split, by `mirror_key`; None takes any.
    """
    while True:
        side = random.random() < 0.5
        moves = random.randint(30, 60)
        kinds = random.choices(list(attackers), list(attackers.values()), k=random.randint(*ATTACKING))
        others = random.choices(list(DEFENDERS), list(DEFENDERS.values()), k=random.randint(*DEFENDING))
        king = random.choice(_EDGE) if random.random() < EDGE_SHARE else random.choice(chess.SQUARES)
        placed = {king: chess.Piece(chess.KING, not side)}
        pieces = [(chess.KING, side), *((kind, side) for kind in kinds), *((kind, not side) for kind in others)]
        for kind, color in pieces:
            is_about_to_promote = kind == chess.PAWN and color == side and random.random() < PROMOTION_SHARE
            squares = _SEVENTH[side] if is_about_to_promote else chess.SQUARES
            placed[random.choice(squares)] = chess.Piece(kind, color)  # may replace another
        if split is not None and split_of(mirror_key(placed, side)) != split:
            continue
        board = chess.Board(None)
        board.set_piece_map(placed)
        board.turn, board.fullmove_number = side, moves
        if board.is_valid() and any(board.generate_legal_moves()):
            return board


def mates_in_one(
    seed: int, split: str, *, label: str, attackers: Mapping[chess.PieceType, float] | None = None
) -> Iterator[chess.Board]:
    """Yield positions of a split in which at least one move mates, without end.

    The split depends on the hash of a position and its mirror images together: their mates are the same.

    Args:
        seed: Random seed.
        split: train, validation or test.
        label: Name of the task.
        attackers: Only composed positions with these pieces, see `composed`; None also takes positions of games.
    """
    from_games = (
        board
        for board in visited(seed, split, f"{label}/games")
        if mating_moves(board) and split_of(mirror_key(board.piece_map(), board.turn)) == split
    )
    random = Random(f"{label}/{seed}/{split}/composed")
    boards = (composed(random, attackers or ATTACKERS, split) for _ in count())
    from_composed = filter(mating_moves, boards)
    while True:
        is_composed = attackers is not None or random.random() < COMPOSED_SHARE
        yield next(from_composed if is_composed else from_games)


def mirror_key(pieces: Mapping[chess.Square, chess.Piece], turn: chess.Color) -> str:
    """The key that a position has in common with its mirror images: of the board's sides, and of the colors.

    Args:
        pieces: The pieces by square.
        turn: The side to move.
    """
    rank_flip = 0 if turn else 56  # as seen by the side to move
    own = [(square ^ rank_flip, piece.piece_type, piece.color == turn) for square, piece in pieces.items()]
    images = (sorted((square ^ flip, kind, is_own) for square, kind, is_own in own) for flip in (0, 7))
    return " ".join(f"{square}{'+' if is_own else '-'}{kind}" for square, kind, is_own in min(images))


def mating_moves(board: chess.Board) -> list[chess.Move]:
    """Moves that mate, in the order of python-chess."""
    return [move for move in board.legal_moves if _mates(board, move)]


def _mates(board: chess.Board, move: chess.Move) -> bool:
    board.push(move)
    is_mate = board.is_checkmate()
    board.pop()
    return is_mate
