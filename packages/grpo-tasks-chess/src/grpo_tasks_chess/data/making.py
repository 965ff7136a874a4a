"""`grpo chess make-policy-data` and `make-environment-data`: rows by several processes, in order, resumable."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from importlib import metadata
from itertools import count
from pathlib import Path
from typing import Any, Literal

import orjson

from grpo_core import InfrastructureError, KillablePool, Outcome, UserError
from grpo_core.data import split_of
from grpo_tasks_chess.data import output
from grpo_tasks_chess.data.environment import QUOTAS
from grpo_tasks_chess.data.journal import SUFFIX, Journal
from grpo_tasks_chess.data.output import Format, Kind
from grpo_tasks_chess.data.policy import POSITIONS_PER_GAME
from grpo_tasks_chess.data.workers import LABEL_TIMEOUT_S
from grpo_tasks_chess.engine import DEPTH, require_engine
from grpo_tasks_chess.records import position_key

Split = Literal["train", "validation", "test"]

RECIPE = 1
"""Counts the changes to what a seed gives, so that a file is never gone on with by another recipe."""

ROWS_PER_CHUNK = 8
"""Of moves with their outcomes, in one task of a worker; of positions it is those of one game."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be made.

    Attributes:
        kind: Positions with an engine's labels, or moves with their outcomes.
        out: The file.
        count: Its rows.
        seed: Of everything random; row i depends on it and on i alone.
        split: Only rows of this split; None is all three, to be told apart by the hash of their positions.
        depth: Plies that labels are searched to.
        positions_per_game: Labelled positions of one game; more are made faster, and are more alike.
        engine: The engine's program; None is the one that is found.
        workers: Processes; None is one for each core.
        form: jsonl, parquet or text; None goes by the file's suffix.
        overwrite: Begin again where a file or a part of one is there.
    """

    kind: Kind
    out: Path
    count: int
    seed: int = 0
    split: Split | None = None
    depth: int = DEPTH
    positions_per_game: int = POSITIONS_PER_GAME
    engine: str | None = None
    workers: int | None = None
    form: Format | None = None
    overwrite: bool = False


def make(order: Order, progress: Callable[[int, int], None] = lambda done, total: None) -> dict[str, Any]:
    """Make a file, or go on with one, or find it finished.

    Args:
        order: What is to be made.
        progress: Told (rows done, rows wanted).

    Returns:
        The file's settings and summary, as in `OUT.meta.json`; `"finished_before": True` where nothing was done.

    Raises:
        UserError: the file is another one, or cannot be written, or there is no engine.
        InfrastructureError: the engine or a worker fails; what is made so far is kept, the same order goes on.
    """
    if order.count < 1:
        raise UserError(f"--count {order.count}: at least 1 row.")
    form = output.format_of(order.out, order.form)
    settings, target, args = _settings(order)
    partial = order.out.with_name(order.out.name + SUFFIX)
    try:
        order.out.parent.mkdir(parents=True, exist_ok=True)
        if order.overwrite:
            for stale in (order.out, output.meta_path(order.out), partial):
                stale.unlink(missing_ok=True)
        if order.out.exists():
            return _finished(order, settings)
        with Journal(partial, settings) as journal:
            _fill(journal, order, target, args, progress)
            return _publish(journal, order, settings, form)
    except OSError as error:
        raise UserError(f"{error.filename or order.out}: {error.strerror}. What is made so far is kept.") from None


def _settings(order: Order) -> tuple[dict[str, Any], str, tuple[Any, ...]]:
    """What rows depend on, and the workers' target with its arguments."""
    settings = {"kind": order.kind, "seed": order.seed, "split": order.split, "recipe": RECIPE}
    if order.kind == "environment":
        return settings, "environment", (order.seed, order.split)
    engine = require_engine(order.engine)
    labelled = {"engine": engine.name, "depth": order.depth, "positions_per_game": order.positions_per_game}
    target_args = (order.seed, order.split, order.depth, engine.path, order.positions_per_game)
    return {**settings, **labelled}, "policy", target_args


def _finished(order: Order, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The summary of a file that is there, if it is the one that was ordered."""
    meta = output.read_meta(order.out)
    if meta is None:
        beside = output.meta_path(order.out).name
        raise UserError(f"{order.out} is there, and no {beside} says what made it. Give another name, or --overwrite.")
    had, wanted = meta.get("settings", {}), {**settings, "count": order.count}
    other = [name for name in wanted if had.get(name) != wanted[name]]
    if other:
        raise UserError(
            f"{order.out} is there with {', '.join(f'{name}={had.get(name)}' for name in other)}; asked for is "
            f"{', '.join(f'{name}={wanted[name]}' for name in other)}. Give another name, or --overwrite."
        )
    return {**meta, "finished_before": True}


def _fill(
    journal: Journal, order: Order, target: str, args: tuple[Any, ...], progress: Callable[[int, int], None]
) -> None:
    """Make rows until there are enough."""
    progress(journal.rows, order.count)
    if journal.rows >= order.count:
        return
    with KillablePool(
        f"grpo_tasks_chess.data.workers:{target}", args=args, workers=order.workers, name="chess data"
    ) as pool:
        size = order.positions_per_game if order.kind == "policy" else ROWS_PER_CHUNK
        for records in _chunks(pool, journal.next_index, size):
            for record in records:
                if journal.rows < order.count:
                    journal.add(record)
            journal.flush()
            progress(journal.rows, order.count)
            if journal.rows >= order.count:
                return


def _chunks(pool: KillablePool, first: int, size: int) -> Iterator[list[dict[str, Any]]]:
    """Rows from number `first` on, those of `size` numbers at a time, in order; workers are kept two ahead."""
    numbers = count(first // size)
    ahead = deque(_submit(pool, next(numbers), size) for _ in range(2 * pool.workers))
    while True:
        outcome = ahead.popleft().result()
        if outcome.status != "ok":
            raise InfrastructureError(f"no rows were made ({outcome.status}): {outcome.why}")
        ahead.append(_submit(pool, next(numbers), size))
        yield [orjson.loads(line) for line in outcome.value.splitlines()]


def _submit(pool: KillablePool, chunk: int, size: int) -> Future[Outcome]:
    # A worker that takes longer for its few rows hangs: labels have a limit of their own, which names what hangs.
    timeout_s = 2 * size * LABEL_TIMEOUT_S
    return pool.submit(f"{chunk * size}:{(chunk + 1) * size}".encode(), timeout_s)


def _publish(journal: Journal, order: Order, settings: Mapping[str, Any], form: Format) -> dict[str, Any]:
    meta = {
        "settings": {**settings, "count": order.count, "format": form},
        "made_by": f"grpo-tasks-chess {metadata.version('grpo-tasks-chess')}",
        **summarise(journal.records()),
    }
    complete = output.write(order.out, journal.records(), form, order.kind, meta)
    journal.remove()
    return complete


def summarise(records: Iterator[Mapping[str, Any]]) -> dict[str, Any]:
    """Rows, and how many of each split, of each side to move, and of each kind beside its quota."""
    rows, splits, sides, kinds = 0, Counter[str](), Counter[str](), Counter[str]()
    for record in records:
        rows += 1
        splits[split_of(position_key(record["fen"]))] += 1
        sides["white" if record["fen"].split()[1] == "w" else "black"] += 1
        if "kind" in record:
            kinds[record["kind"]] += 1
    summary: dict[str, Any] = {"rows": rows, "splits": dict(splits), "to_move": dict(sides)}
    if kinds:
        summary["kinds"] = {kind: {"rows": kinds[kind], "quota": share / 100} for kind, share in QUOTAS.items()}
    return summary
