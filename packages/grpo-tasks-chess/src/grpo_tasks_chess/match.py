"""A game between two movers, as `grpo chess play` shows it, and its record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from random import Random
from typing import NamedTuple

import chess
import chess.pgn
import chess.svg

from grpo_sdk import Game, GameConfig, GamePosition, GameStart, Invalid, Rules
from grpo_tasks_chess.engine.pool import EnginePool
from grpo_tasks_chess.formats import read_policy_fields, write_policy_prompt
from grpo_tasks_chess.rules import legal_moves

EVENT = "grpo chess play"

BOARD_PIXELS = 480

SHOWN_CHARS = 80
"""Longest excerpt of an illegal reply."""

COLOURS = ("white", "black")


class PlayConfig(GameConfig):
    """Options of a game.

    Attributes:
        fen: Its start.
    """

    fen: str = chess.STARTING_FEN


def _apply(board: chess.Board, move: chess.Move) -> chess.Board:
    after = board.copy()
    after.push(move)
    return after


def _parse(text: str, board: chess.Board) -> chess.Move:
    """Read a line of `chess.policy`; only the move after `B:` has to be legal."""
    try:
        best = " ".join(read_policy_fields(text).best)
    except Invalid as problem:
        raise Invalid(f"{problem}: {text.strip()[:SHOWN_CHARS]!a}") from None
    if best not in (legal := legal_moves(board)):
        raise Invalid(f"no legal move in UCI: {best[:SHOWN_CHARS]!a}")
    return legal[best]


def _outcome(board: chess.Board) -> Mapping[str, float] | None:
    outcome = outcome_of(board)
    if outcome is None:
        return None
    value = 0.0 if outcome.winner is None else 1.0 if outcome.winner else -1.0
    return {"white": value, "black": -value}


GAME = Game(
    name="play",
    roles=COLOURS,
    initial=lambda seed, config: chess.Board(config.fen),
    to_move=lambda board: COLOURS[not board.turn],
    observe=lambda board, role: write_policy_prompt(board.fen()),
    parse=_parse,
    apply=_apply,
    legal=lambda board: list(board.legal_moves),
    outcome=_outcome,
    render=lambda board: board.unicode(empty_square="·"),
    write=lambda move, board: f" M: {move.uci()} E: 0.0 B: {move.uci()}",
    config=PlayConfig,
)


class Mover(NamedTuple):
    """Who plays a colour.

    Attributes:
        name: Name for the record.
        reply: Position with legal moves -> the reply, as models write it.
    """

    name: str
    reply: Callable[[chess.Board], str]


def engine_mover(pool: EnginePool, depth: int) -> Mover:
    """An engine that searches to a fixed depth in plies; 1 is a beginner who sees every capture."""

    def reply(board: chess.Board) -> str:
        (line,) = pool.analyse(board.fen(), multipv=1, depth=depth)
        return GAME.write(chess.Move.from_uci(line.move), board)

    return Mover(f"{pool.engine.name}, depth {depth}", reply)


def random_mover(seed: int) -> Mover:
    """A player of random legal moves."""
    random = Random(f"chess/mover/{seed}")
    return Mover("random", lambda board: GAME.write(random.choice(list(board.legal_moves)), board))


@dataclass(frozen=True, slots=True)
class Match:
    """A game, finished or not.

    Attributes:
        position: What was played.
        players: Names by colour.
    """

    position: GamePosition
    players: Mapping[str, str]

    @property
    def board(self) -> chess.Board:
        """The position reached, with the moves that led to it."""
        board: chess.Board = self.position.state
        return board

    @property
    def result(self) -> str:
        """`1-0`, `0-1`, `1/2-1/2`, or `*` for a game that was stopped."""
        returns = self.position.returns
        if returns is None or self.position.capped:
            return "*"
        return {1.0: "1-0", -1.0: "0-1"}.get(returns["white"], "1/2-1/2")

    @property
    def ended_by(self) -> str:
        """Description of the end."""
        if self.position.illegal:
            return f"illegal move of {self.players[self.position.illegal]}"
        if self.position.capped:
            return f"broken off after {len(self.position.moves) // 2} moves"
        outcome = outcome_of(self.board)
        return "" if outcome is None else outcome.termination.name.lower().replace("_", " ")

    def illegal_of(self, colour: str) -> int:
        """Return the number of illegal replies of a side."""
        replaced = sum(self.position.movers[place] == colour for place in self.position.replaced)
        return replaced + (self.position.illegal == colour)


def play_match(
    players: Mapping[str, Mover],
    *,
    fen: str = chess.STARTING_FEN,
    replaces_illegal: bool = False,
    max_moves: int = 200,
    seed: int = 0,
    on_ply: Callable[[Match], None] = lambda match: None,
) -> Match:
    """Play a game to its end (see `outcome_of`), or to `max_moves` of each side.

    Args:
        players: Movers by colour.
        fen: Start position.
        replaces_illegal: Whether a random move replaces an illegal reply; else the side loses.
        max_moves: Full moves after which the game is stopped.
        seed: Seed of these random moves.
        on_ply: Function called after every reply.
    """
    config = PlayConfig(fen=fen, illegal="random" if replaces_illegal else "loses")
    rules = Rules(replace(GAME, max_turns=2 * max_moves), config)
    names = {colour: mover.name for colour, mover in players.items()}
    position = rules.begin(GameStart(id="play", seed=seed))
    while position.to_move:
        position = rules.advance(position, players[position.to_move].reply(position.state))
        on_ply(Match(position, names))
    return Match(position, names)


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
    position = match.position
    stopped = "unterminated" if match.result == "*" else "normal"
    game = chess.pgn.Game()
    game.setup(position.states[0])
    game.headers.update(
        {
            "Event": EVENT,
            "Site": "?",
            "Date": when.strftime("%Y.%m.%d"),
            "Round": "-",
            "White": match.players["white"],
            "Black": match.players["black"],
            "Result": match.result,
            "Termination": "rules infraction" if position.illegal else stopped,
        }
    )
    node: chess.pgn.GameNode = game
    for place, after in enumerate(position.states[1:]):
        node = node.add_variation(after.peek())
        if place in position.replaced:
            name = match.players[position.movers[place]]
            node.comment = f"{name} gave no legal move ({position.replaced[place]}); replaced by this"
    if position.illegal:
        node.comment = f"{match.players[position.illegal]} gave no legal move ({position.why}); it loses"
    return f"{game}\n"


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
    position, name = match.position, match.players[match.position.movers[-1]]
    if position.illegal:
        return f"{name}: {position.why}"
    before, board = position.states[-2], match.board
    number = f"{before.fullmove_number}{'.' if before.turn else '…'}"
    problem = position.replaced.get(len(position.moves) - 1)
    note = f"   (in place of: {problem})" if problem else ""
    drawn = board.unicode(orientation=orientation, empty_square="·")
    return f"{number} {before.san(board.peek())}   {name}{note}\n{drawn}\n"
