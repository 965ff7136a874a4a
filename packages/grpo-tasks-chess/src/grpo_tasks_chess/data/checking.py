"""`grpo chess verify`: check the contents and labels of files, and whether files share positions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any

from grpo_sdk import UserError
from grpo_sdk.data import read_records, split_of
from grpo_tasks_chess.data import rookworld
from grpo_tasks_chess.data.output import Kind, listed
from grpo_tasks_chess.environment.rows import make_row as environment_row
from grpo_tasks_chess.formats import MAX_CANDIDATES, PolicyAnswer
from grpo_tasks_chess.policy.rows import PolicyRow
from grpo_tasks_chess.policy.rows import make_row as policy_row
from grpo_tasks_chess.records import is_text, position_key
from grpo_tasks_chess.rules import legal_moves, play, position

SHOWN = 3
"""Number of examples kept for each problem."""


@dataclass(slots=True)
class Checked:
    """Report on a file.

    Attributes:
        source: File.
        rows: Kind -> number of rows.
        splits: Split -> number of rows.
        labels: Side to move -> rank of the best moves among their evaluations.
        problems: Problem -> number of its `rows`, and places of the `first` ones.
    """

    source: str
    rows: Counter[str] = field(default_factory=Counter)
    splits: Counter[str] = field(default_factory=Counter)
    labels: dict[str, rookworld.Labels] = field(default_factory=dict)
    problems: dict[str, dict[str, Any]] = field(default_factory=dict)
    _keys: dict[Kind, set[str]] = field(default_factory=lambda: {"policy": set(), "environment": set()})

    def note(self, problem: str, where: str) -> None:
        """Count a problem."""
        noted = self.problems.setdefault(problem, {"rows": 0, "first": []})
        noted["rows"] += 1
        if noted["rows"] <= SHOWN:
            noted["first"].append(where)

    def report(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return {
            "source": self.source,
            "rows": dict(self.rows),
            "different_positions": {kind: len(keys) for kind, keys in self._keys.items() if keys},
            "splits": dict(self.splits),
            "best_move_is_evaluated": {side: asdict(labels) for side, labels in self.labels.items()},
            "problems": self.problems,
        }


def check(sources: Sequence[str]) -> dict[str, Any]:
    """Check every row of files against the rules, its own evaluations, and the other files.

    Raises:
        UserError: a file cannot be read at all.
    """
    files = [_check(source) for source in sources]
    shared = [
        {"files": [file.source, other.source], "kind": kind, "positions": len(file._keys[kind] & other._keys[kind])}
        for file, other in combinations(files, 2)
        for kind in file._keys
        if file._keys[kind] and other._keys[kind]
    ]
    is_right = not any(file.problems for file in files) and not any(pair["positions"] for pair in shared)
    return {"ok": is_right, "files": [file.report() for file in files], "shared": shared}


def _check(source: str) -> Checked:
    checked = Checked(source)
    for where, record in _records(source):
        try:
            kind = _kind(record)
            key = position_key(_check_policy(checked, where, record) if kind == "policy" else
                               _check_environment(checked, where, record))  # fmt: skip
        except ValueError as error:
            checked.note("cannot be read", f"{where}: {error}")
            continue
        checked.rows[kind] += 1
        checked.splits[split_of(key)] += 1
        checked._keys[kind].add(key)
    return checked


def _records(source: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if source.endswith(".txt"):
        yield from ((where, {"text": text}) for where, text in rookworld.read_text(source))
    else:
        yield from read_records(source)


def _kind(record: Mapping[str, Any]) -> Kind:
    if is_text(record):
        return "policy" if str(record["text"]).lstrip().startswith("P:") else "environment"
    if "fen" not in record:
        raise UserError(f"no field fen; it has: {', '.join(map(str, record))}")
    return "environment" if "move" in record else "policy"


def _check_policy(checked: Checked, where: str, record: Mapping[str, Any]) -> str:
    row: PolicyRow = policy_row(record)
    if not row.moves:
        checked.note("has no labels", where)
        return row.fen
    answer = PolicyAnswer(row.moves, row.evaluations, row.best)
    side = "white" if row.fen.split()[1] == "w" else "black"
    checked.labels.setdefault(side, rookworld.Labels()).add(answer)
    if dict(zip(row.moves, row.evaluations, strict=True))[row.best] < max(row.evaluations):
        checked.note("the best move is not evaluated highest", where)
    if len(row.moves) < min(MAX_CANDIDATES, len(legal_moves(position(row.fen)))):
        checked.note("fewer candidates than there are", where)
    return row.fen


def _check_environment(checked: Checked, where: str, record: Mapping[str, Any]) -> str:
    row = environment_row(record)
    if play(row.fen, row.move, row.history) != row.outcome:
        checked.note("the rules say another outcome", where)
    return row.fen


def report_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the report on files that were checked."""
    for file in report["files"]:
        yield f"{file['source']}   rows: {listed(file['rows']) or 'none'}   splits: {listed(file['splits'])}"
        for side, counts in file["best_move_is_evaluated"].items():
            yield f"  {side}'s best move is evaluated {listed(counts)}"
        for problem, rows in file["problems"].items():
            yield f"  PROBLEM   {problem}: {rows['rows']} rows"
            yield from (f"    {ascii(first)[1:-1]}" for first in rows["first"])
    for pair in report["shared"]:
        label = "PROBLEM   " if pair["positions"] else ""
        yield f"{label}{pair['positions']} positions of {pair['kind']} are in both {' and '.join(pair['files'])}"
    yield "all is right" if report["ok"] else "something is wrong"
