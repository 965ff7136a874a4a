"""Handlers of the worker processes of `making`: a range of row numbers, as `0:8` -> rows as lines of JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from grpo_tasks_chess.data.environment import environment_records
from grpo_tasks_chess.data.policy import policy_records

Handler = Callable[[bytes], bytes]

LABEL_TIMEOUT_S = 600.0
"""Time limit of one position; depth 20 takes Stockfish 15 seconds."""


def policy(seed: int, split: str | None, depth: int, engine: str, per_game: int) -> Handler:
    """Return the handler that makes positions with the labels of an engine, which each worker starts for itself."""
    from grpo_tasks_chess.engine import EnginePool, Line

    pool = EnginePool(engine, size=1)

    def analyse(fen: str, multipv: int, depth: int) -> tuple[Line, ...]:
        return pool.analyse(fen, multipv=multipv, depth=depth, timeout_s=LABEL_TIMEOUT_S)

    return lambda payload: _lines(
        policy_records(seed, *_range(payload), analyse=analyse, depth=depth, split=split, per_game=per_game)
    )


def environment(seed: int, split: str | None) -> Handler:
    """Return the handler that makes moves with their outcomes."""
    return lambda payload: _lines(environment_records(seed, *_range(payload), split=split))


def _range(payload: bytes) -> tuple[int, int]:
    start, _, stop = payload.partition(b":")
    return int(start), int(stop)


def _lines(records: Iterable[Mapping[str, Any]]) -> bytes:
    return b"".join(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE) for record in records)
