"""Reward functions over plain text, for tasks and for any other code; none of them imports torch.

Each takes the completion and the position, and reads the move as the tasks do: all that the one `<answer>` holds, else
the whole completion, is `[move]` or the move alone. The value is 1 for a move of perfect play, 0.5 for another legal
move, 0 for an illegal one or none. A position that cannot be read, or where the game is over, raises
`grpo_sdk.UserError`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from grpo_sdk import Game, Invalid, Rules, UserError
from grpo_tasks_games import connect_four as four
from grpo_tasks_games import nim as heaps
from grpo_tasks_games import tictactoe as three
from grpo_tasks_games.bitboard import MAX_SOLVED_CELLS

__all__ = ["connect_four", "nim", "tictactoe"]

LEGAL = 0.5
"""Value of a legal move that is not one of perfect play."""


def tictactoe(completion: str, gold: str) -> float:
    """Return the value of a move in tic-tac-toe.

    Args:
        completion: Text of the model, with a cell from 0 to 8.
        gold: The board, nine characters row by row: X, O, or a dot; X moves first.

    Raises:
        UserError: it is no board of a game that goes on.

    Examples:
        >>> from grpo_tasks_games.rewards import tictactoe
        >>> tictactoe("<answer>[2]</answer>", "XX.OO....")
        1.0
        >>> tictactoe("[5]", "XX.OO...."), tictactoe("[0]", "XX.OO....")
        (0.5, 0.0)
    """
    ahead = gold.count("X") - gold.count("O")
    if len(gold) != 9 or set(gold) - set("XO.") or ahead not in (0, 1):
        raise UserError(f"no board of tic-tac-toe: {gold[:40]!r}. It has nine characters, X, O or a dot, as XX.OO....")
    return _graded(three.GAME, completion, gold, lambda: three.best_moves(gold))


def connect_four(completion: str, gold: str, *, rows: int = 4, columns: int = 5) -> float:
    """Return the value of a move in connect four; perfect play wins as early, and loses as late, as possible.

    Args:
        completion: Text of the model, with a column counted from 0.
        gold: Columns of all moves so far, in order; empty at the start.
        rows: Rows of the board, which is solved exactly, so that it has 20 cells at most.
        columns: Columns of the board.

    Raises:
        UserError: the moves are no game that goes on.

    Examples:
        >>> from grpo_tasks_games.rewards import connect_four
        >>> connect_four("<answer>[2]</answer>", "212020")
        1.0
        >>> connect_four("[4]", "212020"), connect_four("[9]", "212020")
        (0.5, 0.0)
    """
    if min(rows, columns) < 4 or rows * columns > MAX_SOLVED_CELLS:
        raise UserError(f"rows={rows}, columns={columns}: at least 4 of each, and {MAX_SOLVED_CELLS} cells at most.")
    board = four.Board(rows, columns)
    for move in gold.strip():
        if not (move.isascii() and move.isdigit()) or int(move) not in four.legal(board) or four.outcome(board):
            raise UserError(f"no game of connect four: {gold[:80]!r}. It has the columns of its moves, as 212020.")
        board = four.apply(board, int(move))
    return _graded(four.GAME, completion, board, lambda: four.best_moves(board))


def nim(completion: str, gold: str, *, misere: bool = False) -> float:
    """Return the value of a move in nim; where every move loses against perfect play, each legal one has 1.

    Args:
        completion: Text of the model, with a heap's letter and how many are taken: B2.
        gold: Sizes of the heaps, separated by commas.
        misere: Whether taking the last object loses.

    Raises:
        UserError: they are no heaps, or all of them are empty.

    Examples:
        >>> from grpo_tasks_games.rewards import nim
        >>> nim("<answer>[A2]</answer>", "3,4,5")
        1.0
        >>> nim("[C1]", "3,4,5"), nim("[A9]", "3,4,5")
        (0.5, 0.0)
    """
    parts = [part.strip() for part in gold.split(",")]
    sizes = tuple(int(part) for part in parts if part.isascii() and part.isdigit() and len(part) < 4)
    if len(sizes) != len(parts) or len(sizes) > heaps.MAX_HEAPS or sum(sizes) > heaps.MAX_OBJECTS:
        raise UserError(f"no heaps of nim: {gold[:40]!r}. Give their sizes, as 3,4,5, {heaps.MAX_OBJECTS} at most.")
    state = heaps.Heaps(sizes, misere)

    def best() -> list[heaps.Move]:
        moves = heaps.legal(state)
        return [move for move in moves if not heaps.wins(heaps.apply(state, move))] or moves

    return _graded(heaps.GAME, completion, state, best)


def _graded(game: Game, completion: str, state: Any, best: Any) -> float:
    if game.outcome(state) is not None:
        raise UserError(f"the game of {game.name} is over in this position: there is no move to score.")
    try:
        move = Rules(game, game.config()).call("parse", text=completion, state=state)
    except Invalid:
        return 0.0
    moves: Collection[Any] = best()
    return 1.0 if move in moves else LEGAL
