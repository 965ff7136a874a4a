from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from grpo_sdk import UserError

VARIABLES = ("GRPO_CHESS_ENGINE", "STOCKFISH_PATH")
"""Environment variables that name the engine; the first one that is set is used."""

PROGRAM = "stockfish"

GAMES_FOLDERS = (Path("/usr/games"), Path("/usr/local/games"))
"""Folders in which Debian installs Stockfish; not on the PATH of root, services and containers."""

INSTALL = (
    f"Install Stockfish (Debian, Ubuntu: apt install stockfish; macOS: brew install stockfish), or name any UCI "
    f"engine by {VARIABLES[0]}=/path/to/engine."
)


@dataclass(frozen=True, slots=True)
class FoundEngine:
    """A UCI engine of this machine.

    Attributes:
        path: Path of the program.
        why: How it was found.
    """

    path: str
    why: str

    @property
    def name(self) -> str:
        """Name of the engine, as `Stockfish 15.1`; the first call starts the engine to get it.

        Raises:
            InfrastructureError: the engine does not answer.
        """
        return _name(self.path)


class EngineMissingError(UserError):
    """An engine is needed, and there is none."""


def find_engine(path: str | None = None) -> FoundEngine | None:
    """Find the engine: by `path`, `GRPO_CHESS_ENGINE`, `STOCKFISH_PATH`, on PATH, in Debian's games folder.

    The engine is not started. If a variable names an engine that does not exist, no other one is used: see `why_not`.

    Args:
        path: Path of a program, or a name to look up on PATH.

    Returns:
        The engine, or None if there is none.

    Raises:
        UserError: `path` is not a program.
    """
    try:
        return require_engine(path)
    except EngineMissingError:
        return None


def require_engine(path: str | None = None) -> FoundEngine:
    """Return the engine.

    Raises:
        EngineMissingError: there is none; says where it was searched and how to install one.
        UserError: `path` is not a program.
    """
    if path is not None:
        return _named(path, "asked for", "the engine")
    for variable in VARIABLES:
        if named := os.environ.get(variable):
            try:
                return _named(named, f"{variable} names it", f"the engine that {variable} names,")
            except UserError as problem:
                raise EngineMissingError(f"{problem} {INSTALL}") from None
    if on_path := shutil.which(PROGRAM):
        return FoundEngine(on_path, "on PATH")
    for folder in GAMES_FOLDERS:
        if _is_program(folder / PROGRAM):
            return FoundEngine(str(folder / PROGRAM), f"in {folder}")
    looked = ", ".join([*VARIABLES, "PATH", *map(str, GAMES_FOLDERS)])
    raise EngineMissingError(f"no chess engine: looked for {PROGRAM} by {looked}. {INSTALL}")


def why_not() -> str:
    """Return why no engine is found by default, and what to do, in one line; empty if one is found."""
    try:
        require_engine()
    except EngineMissingError as problem:
        return str(problem)
    return ""


def _named(name: str, why: str, what: str) -> FoundEngine:
    path = Path(name).expanduser()
    resolved = shutil.which(name) if path.name == name else None
    if resolved is None and _is_program(path):
        resolved = str(path.resolve())
    if resolved is None:
        raise UserError(f"{what} {name} is {'no program (not executable)' if path.is_file() else 'not there'}.")
    return FoundEngine(resolved, why)


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


@lru_cache(maxsize=16)
def _name(path: str) -> str:
    from grpo_tasks_chess.engine.process import EngineProcess

    engine = EngineProcess(path)
    try:
        return engine.name
    finally:
        engine.close()
