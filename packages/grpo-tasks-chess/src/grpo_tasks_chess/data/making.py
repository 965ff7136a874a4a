"""`grpo chess make-policy-data` and `make-environment-data`: rows by several processes, in order, resumable."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from itertools import count, islice
from pathlib import Path
from typing import Any, Literal

import orjson

from grpo_sdk import InfrastructureError, KillablePool, Outcome, UserError
from grpo_sdk.data import split_of
from grpo_tasks_chess.data import output
from grpo_tasks_chess.data.environment import QUOTAS, environment_records
from grpo_tasks_chess.data.journal import SUFFIX, Journal
from grpo_tasks_chess.data.output import Format, Kind
from grpo_tasks_chess.data.policy import LABEL_TIMEOUT_S, POSITIONS_PER_GAME, labeller, policy_records
from grpo_tasks_chess.engine.finding import VARIABLES, find_engine, require_engine
from grpo_tasks_chess.engine.pool import DEPTH
from grpo_tasks_chess.records import position_key
from grpo_tasks_chess.search import MAX_DEPTH, SEARCH, SEARCH_DEPTH, VERSION

Split = Literal["train", "validation", "test"]

RECIPE = 2
"""Version of the rows that a seed gives, so that a file is never continued by another version. In the first one the
splits of a seed had positions of the same games."""

ROWS_PER_CHUNK = 8
"""Rows of moves per task of a worker; for positions, a task is one game."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Order of a data file.

    Attributes:
        kind: Positions with an engine's labels, or moves with their outcomes.
        out: File to make.
        count: Number of rows.
        seed: Random seed; row i depends on it, the split and i alone.
        split: Make only rows of this split; None makes all three, which are distinguished by the hash of the position.
        depth: Search depth of the labels, in plies; None is 10 for an engine and 2 for the search, which has at most 3.
        positions_per_game: Labelled positions per game; more are faster to make and more alike.
        engine: Program of the engine, or `search`, the built-in search; None is the engine that is found, else the
            search.
        workers: Worker processes; None is one per core, up to 16.
        form: jsonl, parquet or text; None depends on the file's suffix.
        overwrite: Start again if the file or a part of it exists.
    """

    kind: Kind
    out: Path
    count: int
    seed: int = 0
    split: Split | None = None
    depth: int | None = None
    positions_per_game: int = POSITIONS_PER_GAME
    engine: str | None = None
    workers: int | None = None
    form: Format | None = None
    overwrite: bool = False


def make(order: Order, progress: Callable[[int, int], None] = lambda done, total: None) -> dict[str, Any]:
    """Make a file, or continue an unfinished one; a finished one is left unchanged.

    Args:
        order: Order of the file.
        progress: Function called with (rows made, rows wanted).

    Returns:
        Settings and summary of the file, as in `OUT.meta.json`; with `"finished_before": True` if nothing was done.

    Raises:
        UserError: the existing file has other settings, cannot be written, or the named engine is not there.
        InfrastructureError: the engine or a worker fails; the rows so far are kept, and the same order continues.
    """
    if order.count < 1:
        raise UserError(f"--count {order.count}: at least 1 row.")
    form = output.format_of(order.out, order.form)
    settings, engine = _settings(order)
    partial = order.out.with_name(order.out.name + SUFFIX)
    try:
        order.out.parent.mkdir(parents=True, exist_ok=True)
        if order.overwrite:
            for stale in (order.out, output.meta_path(order.out), partial):
                stale.unlink(missing_ok=True)
        if order.out.exists():
            return _finished(order, settings)
        with Journal(partial, settings) as journal:
            _fill(journal, order, settings.get("depth"), engine, progress)
            return _publish(journal, order, settings, form)
    except OSError as error:
        raise UserError(f"{error.filename or order.out}: {error.strerror}. What is made so far is kept.") from None


def _settings(order: Order) -> tuple[dict[str, Any], str]:
    """Return the settings that rows depend on, and the program that labels them, `search`, or an empty text."""
    settings = {"kind": order.kind, "seed": order.seed, "split": order.split, "recipe": RECIPE}
    if order.kind == "environment":
        return settings, ""
    may_search = not any(map(os.environ.get, VARIABLES))  # no other one replaces an engine that is named
    found = None if order.engine == SEARCH else (find_engine if may_search else require_engine)(order.engine)
    if found is None:
        engine, program, depth = f"{SEARCH} {VERSION}", SEARCH, order.depth or SEARCH_DEPTH
        if depth > MAX_DEPTH:
            raise UserError(f"--depth {depth}: the built-in search has at most {MAX_DEPTH}; there is no engine.")
    else:
        engine, program, depth = found.name, found.path, order.depth or DEPTH
    labelled = {"engine": engine, "depth": depth, "positions_per_game": order.positions_per_game}
    return {**settings, **labelled}, program


def _finished(order: Order, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the summary of an existing file, if it has the settings of the order."""
    meta = output.read_meta(order.out)
    if meta is None:
        beside = output.meta_path(order.out).name
        raise UserError(f"{order.out} is there, and no {beside} says what made it. Give another name, or --overwrite.")
    existing, wanted = meta.get("settings", {}), {**settings, "count": order.count}
    different = [name for name in wanted if existing.get(name) != wanted[name]]
    if different:
        raise UserError(
            f"{order.out} is there with {', '.join(f'{name}={existing.get(name)}' for name in different)}; asked for "
            f"is {', '.join(f'{name}={wanted[name]}' for name in different)}. Give another name, or --overwrite."
        )
    return {**meta, "finished_before": True}


def make_handler(
    kind: Kind, seed: int, split: str | None, depth: int, engine: str, per_game: int
) -> Callable[[bytes], bytes]:
    """Return what a worker does: a range of row numbers, as `0:8` -> these rows as lines of JSON."""
    make_records: Callable[[int, int], Iterator[Mapping[str, Any]]] = (
        partial(environment_records, seed, split=split)
        if kind == "environment"
        else partial(policy_records, seed, analyse=labeller(engine, depth), depth=depth, split=split, per_game=per_game)
    )

    def handle(payload: bytes) -> bytes:
        start, stop = map(int, payload.split(b":"))
        return b"".join(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE) for record in make_records(start, stop))

    return handle


def _fill(journal: Journal, order: Order, depth: int | None, engine: str, progress: Callable[[int, int], None]) -> None:
    """Add rows to the journal until it has the ordered number."""
    progress(journal.rows, order.count)
    if journal.rows >= order.count:
        return
    args = (order.kind, order.seed, order.split, depth, engine, order.positions_per_game)
    with KillablePool(f"{__name__}:make_handler", args=args, workers=order.workers, name="chess data") as pool:
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
    """Yield rows from number `first` on in order, in chunks of `size` numbers, with two chunks queued per worker."""
    numbers = count(first // size)
    ahead = deque(_submit(pool, next(numbers), size) for _ in range(2 * pool.workers))
    while True:
        outcome = ahead.popleft().result()
        if outcome.status != "ok":
            raise InfrastructureError(f"no rows were made ({outcome.status}): {outcome.why}")
        ahead.append(_submit(pool, next(numbers), size))
        yield [orjson.loads(line) for line in outcome.value.splitlines()]


def _submit(pool: KillablePool, chunk: int, size: int) -> Future[Outcome]:
    # Twice the limit of the labels, whose own error names the engine.
    timeout_s = 2 * size * LABEL_TIMEOUT_S
    return pool.submit(f"{chunk * size}:{(chunk + 1) * size}".encode(), timeout_s)


def _publish(journal: Journal, order: Order, settings: Mapping[str, Any], form: Format) -> dict[str, Any]:
    meta = {
        "settings": {**settings, "count": order.count, "format": form},
        "made_by": f"grpo-tasks-chess {metadata.version('grpo-tasks-chess')}",
        **summarise(islice(journal.records(), order.count)),
    }
    # What an order for more rows has left behind may hold more.
    complete = output.write(order.out, islice(journal.records(), order.count), form, order.kind, meta)
    journal.remove()
    return complete


def summarise(records: Iterator[Mapping[str, Any]]) -> dict[str, Any]:
    """Count the rows, by split, by side to move, and by kind with its quota."""
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


def summary_lines(out: Path, summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield the summary of a file that was made."""
    settings = summary["settings"]
    labelled = f", labelled by {settings['engine']} to depth {settings['depth']}" if "engine" in settings else ""
    finished = "was finished before: " if summary.get("finished_before") else ""
    yield f"{out}   {finished}{summary['rows']} rows, {settings['format']}, seed {settings['seed']}{labelled}"
    yield f"splits   {output.listed(summary['splits'])}"
    yield f"to move   {output.listed(summary['to_move'])}"
    for kind, counts in summary.get("kinds", {}).items():
        share = counts["rows"] / summary["rows"]
        yield f"  {kind:<22}{counts['rows']:>7}   {share:6.1%} of the rows, {counts['quota']:.0%} wanted"
