"""`games.tictactoe`: three in a row on nine cells, as in SPIRAL (arXiv 2506.24119)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Literal

from grpo_sdk import Game, Invalid, Prompt
from grpo_tasks_games.openings import OpenedConfig, after_opening
from grpo_tasks_games.players import one_ply_moves, weak_demos
from grpo_tasks_games.style import COMPLETION_TOKENS, STOP, SYMBOLS, ask, read_move, reply

Board = str
"""Nine characters, row by row: X, O, or a dot where a cell is free."""

FREE = "."
LOSABLE_OPENING = 4
"""Moves after which the next one may win."""

ROWS = ((0, 1, 2), (3, 4, 5), (6, 7, 8))
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))

ORIENTATIONS = tuple(
    tuple(cell for row in turned for cell in row[::step])
    for rows in (ROWS, tuple(zip(*ROWS, strict=True)))
    for turned in (rows, rows[::-1])
    for step in (1, -1)
)
"""The board's cells in each of its four rotations, and mirrored."""


class TicTacToeConfig(OpenedConfig):
    """Options of `games.tictactoe`.

    Attributes:
        demo_player: Player whose moves are the good ones among the demos.
        canonical: Whether the model sees every board in one of its eight orientations, always the same, and answers
            for that: 627 positions to learn, instead of 4,520.
    """

    demo_player: Literal["one_ply", "any_perfect"] = "one_ply"
    canonical: bool = False


def initial(seed: int, config: TicTacToeConfig) -> Board:
    """Return the empty board, or one with an opening."""
    return after_opening(GAME, FREE * 9, seed, config, losable=LOSABLE_OPENING)


def to_move(board: Board) -> str:
    """Return the role to move: X if both have made equally many moves."""
    return "first" if board.count("X") == board.count("O") else "second"


def legal(board: Board) -> list[int]:
    """Return the free cells."""
    return [cell for cell, symbol in enumerate(board) if symbol == FREE]


def apply(board: Board, cell: int) -> Board:
    """Place the symbol of the player to move."""
    return board[:cell] + SYMBOLS[to_move(board)] + board[cell + 1 :]


def outcome(board: Board) -> Mapping[str, float] | None:
    """Return ±1 for three in a row, 0 for a full board without."""
    for a, b, c in LINES:
        if board[a] == board[b] == board[c] != FREE:
            return {role: 1.0 if symbol == board[a] else -1.0 for role, symbol in SYMBOLS.items()}
    return None if FREE in board else dict.fromkeys(SYMBOLS, 0.0)


def render(board: Board, config: TicTacToeConfig) -> str:
    """Return the board as the model sees it, so that its moves can be read there; a free cell shows its number."""
    shown = [str(cell) if taken == FREE else taken for cell, taken in enumerate(_view(board, config.canonical)[0])]
    return "\n---+---+---\n".join(" " + " | ".join(shown[row : row + 3]) for row in (0, 3, 6))


@cache
def _view(board: Board, canonical: bool) -> tuple[Board, tuple[int, ...]]:
    """Return the board that the model sees, and for each of its cells that of `board`."""
    seen = (("".join(board[cell] for cell in cells), cells) for cells in ORIENTATIONS)
    return min(seen) if canonical else (board, ORIENTATIONS[0])


def observe(board: Board, role: str, config: TicTacToeConfig) -> Prompt:
    """Return the prompt: role and symbol, the board with numbered free cells, and the form of the answer."""
    board, _ = _view(board, config.canonical)
    free, symbol = legal(board), SYMBOLS[role]
    short = "".join(str(cell) if taken == FREE else taken for cell, taken in enumerate(board))
    return ask(
        f"You are Player {list(SYMBOLS).index(role)} in a game of tic-tac-toe, and your symbol is {symbol}. "
        f"Three {symbol} in a row, a column or a diagonal win.\n\n{render(board, config)}\n\n"
        f"Free cells: {', '.join(map(str, free))}",
        f"tictactoe {short[:3]} {short[3:6]} {short[6:]} {symbol}",
        slot="n",
        sample=str(free[0]),
        thought=_thought(free[0]),
        style=config.style,
    )


def _thought(cell: int) -> str:
    return f"I take cell {cell}."


def parse(text: str, board: Board, config: TicTacToeConfig) -> int:
    """Read the cell of `<answer>[n]</answer>`; brackets and tag may be left out."""
    seen, cells = _view(board, config.canonical)
    cell = int(read_move(text, "([0-9]{1,4})")[1])
    if cell not in range(9):
        raise Invalid(f"there is no cell {cell}")
    if seen[cell] != FREE:
        raise Invalid(f"cell {cell} is taken")
    return cells[cell]


def write(cell: int, board: Board, config: TicTacToeConfig) -> str:
    """Return the completion that takes a cell."""
    shown = _view(board, config.canonical)[1].index(cell)
    return reply(str(shown), _thought(shown), config.style)


@cache  # a game has 5,478 boards
def value(board: Board) -> int:
    """Return the value of a board for the player to move: its sign is win or loss, its size 1 + the cells then left."""
    returns = outcome(board)
    if returns is not None:
        return int(returns[to_move(board)]) * (1 + board.count(FREE))
    return max(-value(apply(board, cell)) for cell in legal(board))


def best_moves(board: Board) -> list[int]:
    """Return the moves of perfect play: win as early, and lose as late, as possible."""
    values = {cell: -value(apply(board, cell)) for cell in legal(board)}
    return [cell for cell, worth in values.items() if worth == max(values.values())]


def best(board: Board) -> int:
    """Return the first of `best_moves`."""
    return best_moves(board)[0]


def any_best(board: Board, rng: random.Random) -> int:
    """Return a random move of perfect play, so that games against this player differ."""
    return rng.choice(best_moves(board))


@cache
def careful_moves(board: Board) -> list[int]:
    """Return the moves that win or block, if there are any; else all."""
    return one_ply_moves(GAME, board)


def careful(board: Board, rng: random.Random) -> int:
    """Return a move that wins or blocks, if there is one."""
    return rng.choice(careful_moves(board))


def taken(board: Board, rng: random.Random) -> int | None:
    """Return a cell that is not free; None on the empty board."""
    return rng.choice([cell for cell in range(9) if board[cell] != FREE] or [None])


PLAYERS = {"any_perfect": any_best, "one_ply": careful}


def demos(config: TicTacToeConfig) -> Iterator[tuple[Prompt, str]]:
    """Yield random moves, some on taken cells, some of `demo_player`."""
    return weak_demos(GAME, config, wrong=taken, good=PLAYERS[config.demo_player])


GAME = Game(
    name="tictactoe",
    roles=tuple(SYMBOLS),
    initial=initial,
    to_move=to_move,
    observe=observe,
    parse=parse,
    apply=apply,
    legal=legal,
    outcome=outcome,
    render=render,
    write=write,
    config=TicTacToeConfig,
    best=best,
    evaluated_against=("any_perfect",),
    players=PLAYERS,
    max_turns=9,
    version="1",
    stop=STOP,
    max_completion_length=COMPLETION_TOKENS,
    demos=demos,
    default_model="games-tiny",
)
"""Returns: ±1 for a win and a loss, 0 for a draw."""
