"""Handlers of the worker processes of `making`: a range of row numbers, as `0:8` -> rows as lines of JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import orjson

from grpo_tasks_chess.data.environment import environment_records
from grpo_tasks_chess.data.games import Analyse
from grpo_tasks_chess.data.policy import policy_records
from grpo_tasks_chess.formats import Line
from grpo_tasks_chess.search import SEARCH, best_moves

Handler = Callable[[bytes], bytes]

LABEL_TIMEOUT_S = 600.0
"""Time limit of one position; depth 20 takes Stockfish 15 seconds."""


def policy(seed: int, split: str | None, depth: int, engine: str, per_game: int) -> Handler:
    """Return the handler that makes labelled positions.

    Args:
        seed: Random seed.
        split: Split of the rows; None is all.
        depth: Search depth of the labels, in plies.
        engine: Program of the engine, which each worker starts for itself; or `search`, the built-in search.
        per_game: Row numbers per game.
    """
    analyse = partial(_searching, depth) if engine == SEARCH else _analysing(engine)
    return lambda payload: _lines(
        policy_records(seed, *_range(payload), analyse=analyse, depth=depth, split=split, per_game=per_game)
    )


def _searching(most: int, fen: str, multipv: int, depth: int) -> tuple[Line, ...]:
    """Search no deeper than for the labels: an engine that guides a game does so in a fraction of the time."""
    return best_moves(fen, lines=multipv, depth=min(depth, most))


def _analysing(engine: str) -> Analyse:
    from grpo_tasks_chess.engine import EnginePool

    pool = EnginePool(engine, size=1)
    return lambda fen, multipv, depth: pool.analyse(fen, multipv=multipv, depth=depth, timeout_s=LABEL_TIMEOUT_S)


def environment(seed: int, split: str | None) -> Handler:
    """Return the handler that makes moves with their outcomes."""
    return lambda payload: _lines(environment_records(seed, *_range(payload), split=split))


def _range(payload: bytes) -> tuple[int, int]:
    start, _, stop = payload.partition(b":")
    return int(start), int(stop)


def _lines(records: Iterable[Mapping[str, Any]]) -> bytes:
    return b"".join(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE) for record in records)
