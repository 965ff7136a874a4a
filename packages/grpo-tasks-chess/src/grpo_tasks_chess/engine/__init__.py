"""A UCI engine, by default Stockfish, in pooled processes with time limits that end with their parent."""

from grpo_tasks_chess.engine.finding import (
    VARIABLES,
    EngineMissingError,
    FoundEngine,
    find_engine,
    require_engine,
    why_not,
)
from grpo_tasks_chess.engine.pool import DEPTH, MULTIPV, EnginePool, analyse
from grpo_tasks_chess.engine.process import EngineDiedError
from grpo_tasks_chess.formats import Line

__all__ = [
    "DEPTH",
    "MULTIPV",
    "VARIABLES",
    "EngineDiedError",
    "EngineMissingError",
    "EnginePool",
    "FoundEngine",
    "Line",
    "analyse",
    "find_engine",
    "require_engine",
    "why_not",
]
