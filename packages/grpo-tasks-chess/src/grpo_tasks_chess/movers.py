"""Movers, which choose moves: a model that completes `P:` prompts, an engine, a random player."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

import chess

from grpo_sdk import Invalid
from grpo_tasks_chess.engine import EnginePool
from grpo_tasks_chess.formats import read_policy_fields, write_policy_prompt
from grpo_tasks_chess.rules import legal_moves

SHOWN_CHARS = 80
"""Longest excerpt of an illegal reply."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Reply of a mover to a position.

    Attributes:
        move: Move; None if the reply was not legal.
        why: Description of an illegal reply, in one line that is safe to print.
    """

    move: chess.Move | None
    why: str = ""


class Mover(Protocol):
    """Protocol of movers."""

    @property
    def name(self) -> str:
        """Name for the record of the game."""

    def reply(self, board: chess.Board) -> Reply:
        """Reply to a position that has legal moves, without changing the board."""


class ModelMover:
    """A model that reads `P: FEN` and writes `M: … E: … B: move`; its move is the one after `B:`.

    Args:
        name: Name for the record.
        complete: Prompt -> completion of the model.
    """

    def __init__(self, name: str, complete: Callable[[str], str]) -> None:
        self.name = name
        self._complete = complete

    def reply(self, board: chess.Board) -> Reply:
        """Sample one completion; only the move after `B:` has to be legal."""
        completion = self._complete(write_policy_prompt(board.fen()))
        try:
            best = " ".join(read_policy_fields(completion).best)
        except Invalid as problem:
            return Reply(None, f"{problem}: {completion.strip()[:SHOWN_CHARS]!a}")
        move = legal_moves(board).get(best)
        return Reply(move, "" if move else f"no legal move in UCI: {best[:SHOWN_CHARS]!a}")


class EngineMover:
    """An engine that searches to a fixed depth.

    Args:
        pool: Pool of the engine.
        depth: Search depth in plies; 1 is a beginner who sees every capture.
    """

    def __init__(self, pool: EnginePool, depth: int) -> None:
        self.name = f"{pool.engine.name}, depth {depth}"
        self._pool, self._depth = pool, depth

    def reply(self, board: chess.Board) -> Reply:
        """Return the engine's best move."""
        (line,) = self._pool.analyse(board.fen(), multipv=1, depth=self._depth)
        return Reply(chess.Move.from_uci(line.move))


class RandomMover:
    """A player of random legal moves.

    Args:
        seed: Seed of the choice.
    """

    name = "random"

    def __init__(self, seed: int) -> None:
        self._random = Random(f"chess/mover/{seed}")

    def reply(self, board: chess.Board) -> Reply:
        """Return a random legal move."""
        return Reply(self._random.choice(list(board.legal_moves)))
