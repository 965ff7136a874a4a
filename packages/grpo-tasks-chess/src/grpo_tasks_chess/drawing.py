"""Boards of a completion for `grpo report`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import chess
import chess.svg

from grpo_sdk import Frame, Invalid
from grpo_tasks_chess.formats import read_environment, read_policy_fields
from grpo_tasks_chess.questions import read_moves

PLAYED, LABELLED = "#c8376f", "#15936a"
"""Colours of the arrows of the completion's move and of the row's."""

MAX_LINE_MOVES = 20


def draw(task: str, row: Mapping[str, Any], text: str) -> list[Frame]:
    """Return the board of a row with the completion's moves, and the positions that follow; none where it has no board.

    Args:
        task: Name of the task, as `policy`.
        row: The row, as JSON.
        text: The completion.
    """
    board = _board(row.get("fen"))
    if board is None:
        return []
    if task == "environment":
        return _environment(board, row, text)
    if task == "puzzle":
        return _line(board, row)
    if task == "legal_moves":
        return [_frame(board, "the position")]
    best = next(iter(row.get("mates") or ()), row.get("best"))
    labelled, chosen = _move(board, best), _move(board, _chosen(task, text))
    caption = f"{board.san(chosen)} chosen" if chosen else "no legal move chosen"
    return [_frame(board, f"{caption}; {board.san(labelled)} is best" if labelled else caption, chosen, labelled)]


def _chosen(task: str, text: str) -> str:
    """The move that a completion chooses, in a policy line the one after `B:`; empty where it has another form."""
    try:
        if task in ("best_move", "mate_in_one"):
            return read_moves(text, 1)[0]
        return " ".join(read_policy_fields(text).best)
    except Invalid:
        return ""


def _environment(board: chess.Board, row: Mapping[str, Any], text: str) -> list[Frame]:
    move = _move(board, row.get("move"))
    frames = [_frame(board, f"before {row.get('move', '')}"[:80], move)]
    if true := _board(row.get("next_fen")):
        frames.append(_frame(true, "after it"))
    try:
        predicted = _board(read_environment(text).fen)
    except Invalid:
        predicted = None
    return [*frames, _frame(predicted, "as the completion has it")] if predicted else frames


def _line(board: chess.Board, row: Mapping[str, Any]) -> list[Frame]:
    frames = [_frame(board, "the puzzle")]
    for word in list(row.get("solution") or ())[:MAX_LINE_MOVES]:
        move = _move(board, word)
        if move is None:
            break
        caption = f"solution: {board.san(move)}"
        board.push(move)
        frames.append(_frame(board, caption, last=move))
    return frames


def _frame(
    board: chess.Board,
    caption: str,
    played: chess.Move | None = None,
    labelled: chess.Move | None = None,
    *,
    last: chess.Move | None = None,
) -> Frame:
    arrows = [
        chess.svg.Arrow(move.from_square, move.to_square, color=color)
        for move, color in ((labelled, LABELLED), (played, PLAYED))
        if move
    ]
    svg = chess.svg.board(
        board, orientation=board.turn if last is None else not board.turn, arrows=arrows, lastmove=last
    )
    return Frame(caption=caption, svg=svg)


def _board(fen: object) -> chess.Board | None:
    try:
        return chess.Board(str(fen)) if fen else None
    except ValueError:  # no position
        return None


def _move(board: chess.Board, word: object) -> chess.Move | None:
    """A legal move in UCI; None where it is something else."""
    try:
        move = chess.Move.from_uci(str(word)[:5])
    except ValueError:
        return None
    return move if board.is_legal(move) and str(word) == move.uci() else None
