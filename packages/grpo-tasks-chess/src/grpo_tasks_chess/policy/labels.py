"""Labels of a position's moves: those of its row, else an engine's, else those of the built-in search."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING

from pydantic import Field

from grpo_sdk import InfrastructureError
from grpo_sdk.data import DatasetConfig
from grpo_tasks_chess.formats import MAX_CANDIDATES, Line, PolicyAnswer
from grpo_tasks_chess.policy.grading import Source, Truth
from grpo_tasks_chess.policy.rows import PolicyRow, labelled
from grpo_tasks_chess.search import MAX_DEPTH, SEARCH, SEARCH_DEPTH, best_moves

if TYPE_CHECKING:
    from grpo_tasks_chess.engine.finding import FoundEngine

TIMEOUT_S = 6.0
"""Time limit of an analysis while scoring."""

TASK_TIMEOUT_S = 40.0
"""Time limit of the tasks: more than an engine takes that is started and asked twice, because it died.

So a hanging engine is reported as such: beyond the task's limit, a completion is wrong.
"""

NO_ENGINE = "none"


class LabelsConfig(DatasetConfig):
    """Options of tasks that grade moves.

    Attributes:
        engine: What grades rows without labels: a UCI program; `auto`, Stockfish if it is found and else the built-in
            search; `search`; or `none`, legality alone.
        depth: Search depth of the engine, in plies.
        search_depth: Depth of the built-in search, in plies.
    """

    engine: str = "auto"
    depth: int = Field(default=10, ge=1, le=20)
    search_depth: int = Field(default=SEARCH_DEPTH, ge=1, le=MAX_DEPTH)


def truth_of(row: PolicyRow, config: LabelsConfig) -> Truth:
    """Return what is known of a row's moves.

    Raises:
        UserError: the engine is no program.
        InfrastructureError: the engine fails.
    """
    if row.moves:
        return Truth("labels", row.best, dict(zip(row.moves, row.evaluations, strict=True)))
    return _looked_up(row.fen, config.engine, config.depth, config.search_depth)


@lru_cache(maxsize=256)  # the completions of a group have one position
def _looked_up(fen: str, wanted: str, depth: int, search_depth: int) -> Truth:
    source, engine = _source(wanted)
    lines: tuple[Line, ...] = ()
    if engine is not None:
        from grpo_tasks_chess.engine.pool import analyse

        lines = analyse(fen, depth=depth, timeout_s=TIMEOUT_S, engine=engine)
    elif source == "search":
        lines = best_moves(fen, lines=MAX_CANDIDATES, depth=search_depth)
    if not lines:  # the game is over, or nothing may be looked up
        return Truth("legality")
    return Truth(source, lines[0].move, {line.move: line.evaluation for line in lines})


def with_labels(row: PolicyRow, config: LabelsConfig, random: Random) -> PolicyRow | None:
    """Return a row with labels, those that it lacks in random order; None where nothing labels it.

    Raises: as `truth_of`.
    """
    if row.moves:
        return row
    truth = truth_of(row, config)
    if truth.source == "legality":
        return None
    moves = random.sample(list(truth.evaluations), len(truth.evaluations))
    return labelled(row, PolicyAnswer(tuple(moves), tuple(truth.evaluations[move] for move in moves), truth.best))


def source_of(row: PolicyRow, config: LabelsConfig) -> Source:
    """Return what grades the completions of a row."""
    return "labels" if row.moves else _source(config.engine)[0]


def _source(wanted: str) -> tuple[Source, FoundEngine | None]:
    if wanted in (NO_ENGINE, SEARCH):
        return ("search" if wanted == SEARCH else "legality"), None
    from grpo_tasks_chess.engine.finding import find_engine  # rows with labels need no engine, and do not import it

    found = find_engine(None if wanted == "auto" else wanted)
    return ("search", None) if found is None else ("engine", found)


def conditions_of(config: LabelsConfig) -> Mapping[str, str]:
    """Return what grades the rows that have no labels, for the start of a run."""
    source, found = _source(config.engine)
    if found is not None:
        try:
            text = f"{found.name} to depth {config.depth}, for rows without labels: {found.path}, {found.why}"
        except InfrastructureError as problem:
            text = f"{found.path}, {found.why}, does not work, so rows without labels are not scored: {problem}"
    elif source == "legality":
        text = "none, as asked: rows without labels are graded by legality alone"
    else:
        from grpo_tasks_chess.engine.finding import why_not

        why = "as asked" if config.engine == SEARCH else why_not()
        text = f"the built-in search to depth {config.search_depth}, for rows without labels: {why}"
    return {"chess engine": text}
