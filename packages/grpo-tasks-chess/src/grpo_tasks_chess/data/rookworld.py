"""Reading RookWorld's lines `P: …` and `A: …` from files or the hub, with known mistakes corrected.

* Rows of the hub's arbiter part lack their `A: `.
* Published generators took the last line of an engine's list, which is the worst, for Black's best move. Whether a
  source does so is measured on its own rows; if so, Black's best move is set to the highest evaluated one.
* The environment played illegal moves whenever a piece stood on the first square: outcomes are set by the rules.
* The split of a row depends on the hash of its position. The hub's train split provides only train rows and its test
  split only the others, so that no training position is in an evaluation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from grpo_sdk import Invalid, UserError
from grpo_sdk.data import read_records, split_of
from grpo_tasks_chess.data.output import Kind, environment_record
from grpo_tasks_chess.formats import MAX_CHARS, PolicyAnswer, read_environment_line, read_policy_line
from grpo_tasks_chess.records import position_key
from grpo_tasks_chess.rules import play

HUB = "hub:jrahn/rookworld_7m"

Split = Literal["train", "validation", "test"]

CHECKED_ROWS = 2_000
"""Policy rows that are examined before the labels are judged; about 900 of them count, and 50 would suffice."""

_PREFIXES = {"policy": "P:", "environment": "A:"}


@dataclass(slots=True)
class Labels:
    """Ranks of Black's best moves among the evaluations of their candidates.

    Rows in which the highest and lowest evaluation are equal are not counted.

    Attributes:
        highest: Rows in which the best move has the highest evaluation.
        lowest: Rows in which it has the lowest.
        between: The other rows.
    """

    highest: int = 0
    lowest: int = 0
    between: int = 0

    def add(self, answer: PolicyAnswer) -> None:
        """Count a row."""
        best = dict(zip(answer.moves, answer.evaluations, strict=True))[answer.best]
        top, bottom = max(answer.evaluations), min(answer.evaluations)
        if top > bottom:
            self.highest += best == top
            self.lowest += best == bottom
            self.between += bottom < best < top

    @property
    def are_inverted(self) -> bool:
        """Whether the worst move is labelled as the best more often than the best one."""
        return self.lowest > self.highest

    def __str__(self) -> str:
        counted = self.highest + self.lowest + self.between
        ranks = f"the best move of Black is evaluated highest in {self.highest} and lowest in {self.lowest}"
        return f"{ranks} of {counted} rows{'; it is set to the highest' if self.are_inverted else ''}"


@dataclass(slots=True)
class Report:
    """Report on the rows that were read and corrected.

    Attributes:
        labels: Ranks of Black's best moves, as published.
        rows: Number of rows.
        unreadable: Reason -> number of rows that were left out.
    """

    labels: Labels = field(default_factory=Labels)
    rows: int = 0
    unreadable: Counter[str] = field(default_factory=Counter)


def read_text(source: str, split: Split = "train") -> Iterator[tuple[str, str]]:
    """Yield (place, line) of a text file, of the column `text` of JSONL, CSV or parquet, or of the hub's split.

    Raises:
        UserError: the source does not exist or has no column `text`.
    """
    if source.endswith(".txt"):
        yield from _lines(Path(source).expanduser())
        return
    published: Split = "train" if split == "train" or not source.startswith("hub:") else "test"
    for where, record in read_records(source, split=published):
        if not isinstance(record.get("text"), str):
            raise UserError(f"{where}: no text; RookWorld's rows have a column text. It has: {', '.join(record)}.")
        yield where, record["text"]


def records(
    source: str, kind: Kind, split: Split | None = None, *, report: Report | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, record) of one kind and split, in order; records are as `grpo chess make-…-data` writes them.

    Args:
        source: Source, as for `read_text`.
        kind: `P:` or `A:` lines; others are skipped.
        split: Split by the hash of the position; None is all of them.
        report: Report to fill in.

    Raises:
        UserError: as for `read_text`, or no line could be read.
    """
    report = Report() if report is None else report
    lines = ((where, line) for where, text in read_text(source, split or "train") if (line := _line(text, kind)))
    read = _policy if kind == "policy" else _environment
    for where, record in read(lines, report):
        report.rows += 1
        if split is None or split_of(position_key(record["fen"])) == split:
            yield where, record
    if not report.rows:
        reasons = ", ".join(f"{count} × {why}" for why, count in report.unreadable.most_common(3))
        raise UserError(f"{source}: no {_PREFIXES[kind]} line can be read. {reasons or 'There is none'}.")


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    if not path.is_file():
        raise UserError(f"no file {path} (looked in {path.parent.resolve()}).")
    with path.open("rb") as file:
        number = 0
        while line := file.readline(4 * MAX_CHARS):
            number += 1
            if line.strip():
                yield f"{path}:{number}", line.decode("utf-8", "replace")


def _line(text: str, kind: Kind) -> str:
    """Return the line with its prefix; empty if it is of the other kind."""
    line = text[: MAX_CHARS + 1].strip()
    if not line.startswith(tuple(_PREFIXES.values())):
        line = f"A: {line}"
    return line if line.startswith(_PREFIXES[kind]) else ""


def _policy(lines: Iterable[tuple[str, str]], report: Report) -> Iterator[tuple[str, dict[str, Any]]]:
    answers = _policy_answers(lines, report)
    first = list(islice(answers, CHECKED_ROWS))
    for _, fen, answer in first:
        if _is_black(fen):
            report.labels.add(answer)
    for where, fen, answer in chain(first, answers):
        best = answer.best
        if report.labels.are_inverted and _is_black(fen):
            best = max(zip(answer.evaluations, answer.moves, strict=True), key=lambda pair: pair[0])[1]
        evaluations = list(answer.evaluations)
        yield where, {"fen": fen, "moves": list(answer.moves), "evaluations": evaluations, "best": best}


def _policy_answers(lines: Iterable[tuple[str, str]], report: Report) -> Iterator[tuple[str, str, PolicyAnswer]]:
    for where, line in lines:
        try:
            fen, answer = read_policy_line(line)
        except Invalid as problem:
            report.unreadable[str(problem)] += 1
        else:
            yield where, fen, answer


def _environment(lines: Iterable[tuple[str, str]], report: Report) -> Iterator[tuple[str, dict[str, Any]]]:
    for where, line in lines:
        try:
            transition, _ = read_environment_line(line)
            outcome = play(transition.fen, transition.move, transition.history)
        except (Invalid, UserError) as problem:
            report.unreadable[str(problem)] += 1
        else:
            yield where, environment_record(transition, outcome)


def _is_black(fen: str) -> bool:
    return fen.split()[1:2] == ["b"]
