"""Positions without end, from noisy games and composed endings, without a file or an engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from random import Random
from types import MappingProxyType

import chess

from grpo_core.data import split_of
from grpo_tasks_chess.data.games import Choose, endgame, light_player, played
from grpo_tasks_chess.records import position_key_of
from grpo_tasks_chess.search import VALUES, gain

ENDGAME_SHARE = 0.25
"""Share of games that start with few pieces."""

CAREFUL_SHARE = 0.6
"""Share of players that see captures one move ahead; the others move at random."""

NOISES = (0.0, 0.1, 0.3)
"""Probabilities of a random move of a careful player."""

JITTER = 60.0
"""Centipawns by which a careful player misjudges a move at most, so that its games differ."""

STRIDE = 4
"""Of so many positions of a game one is taken, on average: neighbours are alike."""

EXAMINED: Mapping[str, float] = MappingProxyType({"train": 1 / STRIDE, "validation": 1.0, "test": 1.0})
"""Share of a game's positions that are looked at; the splits other than `train` have few."""

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


def positions(seed: int, split: str, *, label: str, in_check: float = 0.0) -> Iterator[chess.Board]:
    """Yield positions of a split without end, in which the game is not over; the i-th depends on the arguments and i.

    The split of a position depends on its hash, so splits are disjoint for every pair of seeds. Each split has games of
    its own: neighbours in a game have nearly the same moves.

    Args:
        seed: Random seed.
        split: train, validation or test.
        label: Name of the task: tasks with the same seed have different positions.
        in_check: Share of positions after a checking move that the games did not have, in which one side must answer
            it; of the others, one in twenty is in check, too.
    """
    boards = _visited(seed, split, label)
    if in_check > 0:
        boards = _checked(boards, in_check, Random(f"{label}/{seed}/{split}/checks"))
    return (board for board in boards if split_of(position_key_of(board)) == split)


def _checked(boards: Iterator[chess.Board], share: float, random: Random) -> Iterator[chess.Board]:
    """Yield a share of positions after a checking move, and the others as they are."""
    must_check = random.random() < share
    for board in boards:
        if must_check:
            after = _after_check(board, random)
            if after is None:
                continue  # the next position has to do
            board = after
        yield board
        must_check = random.random() < share


def _after_check(board: chess.Board, random: Random) -> chess.Board | None:
    """The position after a random move that gives check and does not end the game, or None."""
    checks = [move for move in board.legal_moves if board.gives_check(move)]
    if not checks:
        return None
    after = board.copy(stack=False)
    after.push(random.choice(checks))
    return None if after.is_game_over() else after


def _visited(seed: int, split: str, label: str) -> Iterator[chess.Board]:
    """Positions of games that are played for a split; its share of them is much smaller."""
    for number in count():
        random = Random(f"{label}/{seed}/{split}/{number}")
        board = endgame(random) if random.random() < ENDGAME_SHARE else chess.Board()
        player = (
            careful_player(random, random.choice(NOISES)) if random.random() < CAREFUL_SHARE else light_player(random)
        )
        for each in played(board, player):
            if random.random() < EXAMINED[split]:
                yield each


def careful_player(random: Random, noise: float) -> Choose:
    """Return a player that takes what is free and leaves nothing to be taken, as far as one move shows.

    Args:
        random: Random generator.
        noise: Probability of any legal move instead.
    """

    def choose(board: chess.Board) -> chess.Move:
        moves = list(board.legal_moves)
        if random.random() < noise:
            return random.choice(moves)
        return max(moves, key=lambda move: _promise(board, move) + random.random() * JITTER)

    return choose


def _promise(board: chess.Board, move: chess.Move) -> int:
    """What a move gains, less the piece if it can be taken, in centipawns."""
    promise = gain(board, move)
    if board.is_attacked_by(not board.turn, move.to_square):
        piece = move.promotion or board.piece_type_at(move.from_square)
        defenders = len(board.attackers(board.turn, move.to_square)) - (piece != chess.PAWN)
        attacker = min(
            (VALUES[board.piece_type_at(square) or chess.KING] or 10_000)
            for square in board.attackers(not board.turn, move.to_square)
        )
        worth = VALUES[piece or chess.PAWN]
        promise -= worth if defenders <= 0 else max(0, worth - attacker)
    return promise


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
        for board in _visited(seed, split, f"{label}/games")
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
    return [move for move in board.legal_moves if board.gives_check(move) and _mates(board, move)]


def _mates(board: chess.Board, move: chess.Move) -> bool:
    board.push(move)
    is_mate = not any(board.generate_legal_moves())  # the move gives check
    board.pop()
    return is_mate
