"""`games.connect_four`: discs fall into columns; four in a line win."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import Field, model_validator

from grpo_sdk import Game, Invalid, Prompt
from grpo_tasks_games.bitboard import MAX_SOLVED_CELLS, has_four, solver
from grpo_tasks_games.openings import OpenedConfig, after_opening
from grpo_tasks_games.players import one_ply_moves, weak_demos
from grpo_tasks_games.style import COMPLETION_TOKENS, STOP, SYMBOLS, ask, read_move, reply

MAX_ROWS, MAX_COLUMNS = 6, 7
"""Size of the commercial board."""

MAX_OPENING = 12
"""Longest opening: the smallest board has 16 cells."""

LOSABLE_OPENING = 6
"""Moves after which the next one may win."""


class ConnectFourConfig(OpenedConfig):
    """Options of `games.connect_four`.

    Attributes:
        rows: Height. The default, 4 × 5, is a draw with perfect play; boards of up to 20 cells can be solved.
        columns: Width.
        openings: As in tic-tac-toe.
        canonical: Whether the model sees of a board and its mirror image always the same one, and answers for that.
    """

    rows: int = Field(default=4, ge=4, le=MAX_ROWS)
    columns: int = Field(default=5, ge=4, le=MAX_COLUMNS)
    openings: int = Field(default=0, ge=0, le=MAX_OPENING)
    canonical: bool = False

    @model_validator(mode="after")
    def _can_be_solved(self) -> ConnectFourConfig:
        if self.opponent in ("perfect", "any_perfect") and self.rows * self.columns > MAX_SOLVED_CELLS:
            raise ValueError(
                f"opponent={self.opponent} needs a board of at most {MAX_SOLVED_CELLS} cells, as rows=4&columns=5; "
                f"{self.rows} × {self.columns} has opponent=one_ply and random"
            )
        return self


@dataclass(frozen=True, slots=True)
class Board:
    """A position; discs are bits, see `bitboard`.

    Attributes:
        rows: Height.
        columns: Width.
        mine: Discs of the player to move.
        taken: All discs.
    """

    rows: int
    columns: int
    mine: int = 0
    taken: int = 0


def initial(seed: int, config: ConnectFourConfig) -> Board:
    """Return the empty board, or one with an opening."""
    return after_opening(GAME, Board(config.rows, config.columns), seed, config, losable=LOSABLE_OPENING)


def to_move(board: Board) -> str:
    """Return the player to move: the first one after an even number of discs."""
    return "second" if board.taken.bit_count() % 2 else "first"


def legal(board: Board) -> list[int]:
    """Return the columns with room."""
    return [column for column in range(board.columns) if not board.taken & _cell(board, board.rows - 1, column)]


def _cell(board: Board, row: int, column: int) -> int:
    return 1 << (column * (board.rows + 1) + row)


def apply(board: Board, column: int) -> Board:
    """Drop a disc: adding to the lowest cell carries it up to the first free one."""
    return replace(board, mine=board.mine ^ board.taken, taken=board.taken | (board.taken + _cell(board, 0, column)))


def outcome(board: Board) -> Mapping[str, float] | None:
    """Return ±1 for four in a line, made by the last move; 0 for a full board without a line."""
    if has_four(board.mine ^ board.taken, board.rows):
        return {role: -1.0 if role == to_move(board) else 1.0 for role in SYMBOLS}
    return None if legal(board) else dict.fromkeys(SYMBOLS, 0.0)


def _lines(board: Board) -> list[list[str]]:
    """Return the rows from top to bottom, of X, O and dots."""
    mine, other = ("X", "O") if to_move(board) == "first" else ("O", "X")

    def shown(cell: int) -> str:
        return mine if board.mine & cell else other if board.taken & cell else "."

    return [
        [shown(_cell(board, row, column)) for column in range(board.columns)] for row in reversed(range(board.rows))
    ]


def render(board: Board, config: ConnectFourConfig) -> str:
    """Return the numbers of the columns and the board as the model sees it, so that its moves can be read there."""
    lines = _lines(_view(board, config)[0])
    return "\n".join(" ".join(line) for line in ([str(c) for c in range(board.columns)], *lines))


def _view(board: Board, config: ConnectFourConfig) -> tuple[Board, Sequence[int]]:
    """Return the board that the model sees, and for each of its columns that of `board`."""
    columns = range(board.columns)
    mirrored = replace(board, mine=_mirrored(board, board.mine), taken=_mirrored(board, board.taken))
    if config.canonical and (mirrored.taken, mirrored.mine) < (board.taken, board.mine):
        return mirrored, columns[::-1]
    return board, columns


def _mirrored(board: Board, discs: int) -> int:
    height, column = board.rows + 1, _cell(board, board.rows, 0) * 2 - 1
    return sum(
        (discs >> place * height & column) << (board.columns - 1 - place) * height for place in range(board.columns)
    )


def observe(board: Board, role: str, config: ConnectFourConfig) -> Prompt:
    """Return the prompt: role and symbol, the board, the columns with room, and the form of the answer."""
    board, _ = _view(board, config)
    columns, symbol = legal(board), SYMBOLS[role]
    lines = _lines(board)
    for column in columns:  # in the short style, the cell where a disc would land shows the column's number
        landing = max(row for row in range(board.rows) if lines[row][column] == ".")
        lines[landing][column] = str(column)
    return ask(
        f"You are Player {list(SYMBOLS).index(role)} in a game of Connect Four on {board.rows} rows and "
        f"{board.columns} columns, and your symbol is {symbol}. A disc falls to the lowest free cell of its column; "
        f"four {symbol} in a row, a column or a diagonal win.\n\n{render(board, config)}\n\n"
        f"Columns with room: {', '.join(map(str, columns))}",
        f"connect_four {' '.join(map(''.join, lines))} {symbol}",
        slot="n",
        sample=str(columns[0]),
        thought=_thought(columns[0]),
        style=config.style,
    )


def _thought(column: int) -> str:
    return f"I drop into column {column}."


def parse(text: str, board: Board, config: ConnectFourConfig) -> int:
    """Read the column of `<answer>[n]</answer>`; brackets and tag may be left out."""
    seen, columns = _view(board, config)
    column = int(read_move(text, "([0-9]{1,4})")[1])
    if column not in range(board.columns):
        raise Invalid(f"there is no column {column}")
    if column not in legal(seen):
        raise Invalid(f"column {column} is full")
    return columns[column]


def write(column: int, board: Board, config: ConnectFourConfig) -> str:
    """Return the completion that drops a disc."""
    columns = _view(board, config)[1]
    shown = columns.index(column) if column in columns else column  # demos have columns outside the board
    return reply(str(shown), _thought(shown), config.style)


def best_moves(board: Board) -> list[int]:
    """Return the moves of perfect play: win as early, and lose as late, as possible."""
    solving = solver(board.rows, board.columns)
    most, moves = -solving.limit, list[int]()
    for column in legal(board):
        after = apply(board, column)
        if has_four(after.mine ^ after.taken, board.rows):
            value = solving.limit - after.taken.bit_count()
        else:
            value = -solving.value(after.mine, after.taken, -solving.limit, 1 - most)
        if value > most:
            most, moves = value, []
        if value == most:
            moves.append(column)
    return moves


def best(board: Board) -> int:
    """Return the first of `best_moves`."""
    return best_moves(board)[0]


def any_best(board: Board, rng: random.Random) -> int:
    """Return a random move of perfect play, so that games against this player differ."""
    return rng.choice(best_moves(board))


def careful(board: Board, rng: random.Random) -> int:
    """Return a move that wins or blocks, if there is one."""
    return int(rng.choice(one_ply_moves(GAME, board)))


def full(board: Board, rng: random.Random) -> int:
    """Return a column without room, or outside the board."""
    return rng.choice([column for column in range(board.columns + 1) if column not in legal(board)])


def demos(config: ConnectFourConfig) -> Iterator[tuple[Prompt, str]]:
    """Yield random moves, some into full columns or outside the board, some of `careful`."""
    return weak_demos(GAME, config, wrong=full, good=careful)


GAME = Game(
    name="connect_four",
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
    config=ConnectFourConfig,
    best=best,
    evaluated_against=("any_perfect",),
    players={"any_perfect": any_best, "one_ply": careful},
    max_turns=MAX_ROWS * MAX_COLUMNS,
    version="1",
    stop=STOP,
    max_completion_length=COMPLETION_TOKENS,
    timeout_s=30.0,  # the first move of perfect play takes a second, several on a busy machine
    demos=demos,
)
"""Returns: ±1 for a win and a loss, 0 for a draw."""
