"""Diagnosis of the chess engine for `grpo doctor`."""

from __future__ import annotations

from collections.abc import Iterator

import chess

from grpo_sdk import Diagnosis, InfrastructureError
from grpo_tasks_chess.engine.finding import find_engine, why_not
from grpo_tasks_chess.engine.pool import analyse

NAME = "chess engine"

ANSWER_TIMEOUT_S = 5.0
"""Time limit of an answer at depth 1, which takes a millisecond."""


def diagnose() -> Iterator[Diagnosis]:
    """Diagnose whether there is an engine, and whether it answers."""
    engine = find_engine()
    if engine is None:
        without = "a small built-in search evaluates moves in its place"
        yield Diagnosis(NAME, "warn", f"{why_not()} Without one {without}.")
        return
    try:
        analyse(chess.STARTING_FEN, multipv=1, depth=1, timeout_s=ANSWER_TIMEOUT_S, engine=engine)
        yield Diagnosis(NAME, "ok", f"{engine.name}: {engine.path}, {engine.why}")
    except InfrastructureError as problem:
        yield Diagnosis(NAME, "fail", f"{engine.path}, {engine.why}: {problem}")
