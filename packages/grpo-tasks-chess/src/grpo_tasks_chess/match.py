"""A game between two movers, and its record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date

import chess
import chess.pgn
import chess.svg

from grpo_tasks_chess.movers import Mover

EVENT = "grpo chess play"

BOARD_PIXELS = 480


@dataclass(slots=True)
class Ply:
    """One half-move of a game.

    Attributes:
        move: Move that was played; None if an illegal reply ended the game.
        mover: Name of the mover.
        problem: Description of an illegal reply; empty for a legal move.
    """

    move: chess.Move | None
    mover: str
    problem: str = ""


@dataclass(slots=True)
class Match:
    """A game, finished or not.

    Attributes:
        board: Position reached, with the moves that led to it.
        players: Names by colour.
        plies: Replies, in order.
        result: `1-0`, `0-1`, `1/2-1/2`, or `*` for a game that was stopped.
        ended_by: Description of the end.
    """

    board: chess.Board
    players: dict[chess.Color, str]
    plies: list[Ply] = field(default_factory=list)
    result: str = "*"
    ended_by: str = ""

    def illegal_of(self, colour: chess.Color) -> int:
        """Return the number of illegal replies of a side."""
        first = self.board.root().turn
        return sum(bool(ply.problem) for ply in self.plies[0 if colour == first else 1 :: 2])


def play_match(
    players: dict[chess.Color, Mover],
    *,
    start: chess.Board | None = None,
    fallback: Mover | None = None,
    max_moves: int = 200,
    on_ply: Callable[[Match], None] = lambda match: None,
) -> Match:
    """Play a game to its end (see `outcome_of`), or to `max_moves` of each side.

    Args:
        players: Movers by colour.
        start: Start position; by default that of chess.
        fallback: Mover that replaces an illegal reply; None: the side loses.
        max_moves: Full moves after which the game is stopped.
        on_ply: Function called after every reply.
    """
    board = chess.Board() if start is None else start.copy()
    match = Match(board, {colour: mover.name for colour, mover in players.items()})
    while (outcome := outcome_of(board)) is None and len(board.move_stack) < 2 * max_moves:
        mover = players[board.turn]
        reply = mover.reply(board)
        move = reply.move
        if move is None and fallback is not None:
            move = fallback.reply(board).move
        match.plies.append(Ply(move, mover.name, reply.why))
        if move is None:
            match.result = "0-1" if board.turn else "1-0"
            match.ended_by = f"illegal move of {mover.name}"
            on_ply(match)
            return match
        board.push(move)
        on_ply(match)
    if outcome is None:
        match.ended_by = f"broken off after {max_moves} moves"
    else:
        match.result = outcome.result()
        match.ended_by = outcome.termination.name.lower().replace("_", " ")
    return match


def outcome_of(board: chess.Board) -> chess.Outcome | None:
    """Return the outcome of a game, or None while it goes on.

    A game ends as the rules say, and as a draw when its position stands on the board for the third time, or when fifty
    moves of each side have passed without a capture or a pawn's move. `Board.outcome(claim_draw=True)` draws one move
    earlier, where any legal move would complete either, though the side to move may win.
    """
    outcome = board.outcome()
    if outcome is None and board.is_repetition(3):
        outcome = chess.Outcome(chess.Termination.THREEFOLD_REPETITION, None)
    if outcome is None and board.is_fifty_moves():
        outcome = chess.Outcome(chess.Termination.FIFTY_MOVES, None)
    return outcome


def write_pgn(match: Match, *, when: date) -> str:
    """Return the game in Portable Game Notation, with illegal replies as comments."""
    root = match.board.root()
    game = chess.pgn.Game()
    game.setup(root)
    game.headers.update(
        {
            "Event": EVENT,
            "Site": "?",
            "Date": when.strftime("%Y.%m.%d"),
            "Round": "-",
            "White": match.players[chess.WHITE],
            "Black": match.players[chess.BLACK],
            "Result": match.result,
            "Termination": _termination(match),
        }
    )
    node: chess.pgn.GameNode = game
    for ply in match.plies:
        if ply.move is not None:
            node = node.add_variation(ply.move)
        if ply.problem:
            replaced = "replaced by this" if ply.move is not None else "it loses"
            node.comment = f"{ply.mover} gave no legal move ({ply.problem}); {replaced}"
    return f"{game}\n"


def _termination(match: Match) -> str:
    """Return the termination in a word of the standard."""
    if match.plies and match.plies[-1].move is None:
        return "rules infraction"
    return "unterminated" if match.result == "*" else "normal"


def draw_svg(board: chess.Board, *, orientation: chess.Color) -> str:
    """Draw the position, with the last move and a check marked."""
    return chess.svg.board(
        board,
        orientation=orientation,
        lastmove=board.peek() if board.move_stack else None,
        check=board.king(board.turn) if board.is_check() else None,
        size=BOARD_PIXELS,
    )


def draw_text(match: Match, *, orientation: chess.Color) -> str:
    """Return the last reply and the position as text."""
    board = match.board
    last = match.plies[-1]
    if last.move is None:
        return f"{last.mover}: {last.problem}"
    before = board.copy(stack=1)
    before.pop()
    number = f"{before.fullmove_number}{'.' if before.turn else '…'}"
    note = f"   (in place of: {last.problem})" if last.problem else ""
    drawn = board.unicode(orientation=orientation, empty_square="·")
    return f"{number} {before.san(last.move)}   {last.mover}{note}\n{drawn}\n"
