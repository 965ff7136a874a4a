"""Scoring a JSONL file of completions, of any length, line by line."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import IO, Any

from grpo_sdk.data.records import parsed_json
from grpo_sdk.errors import GrpoError, UserError
from grpo_sdk.scoring.scorer import Scorer
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.row import Row
from grpo_sdk.task.rows import row_by_id
from grpo_sdk.task.score import Score

MAX_LINE_BYTES = 16 * 2**20
"""Longest line that is read: a row with a completion of the longest length that is scored, with room."""

QUEUED = 256
"""Completions queued ahead of the one whose score is written next: enough for any number of workers."""

ASK_EVERY_S = 0.25
"""Time between calls while a score is waited for."""

TEXT_FIELDS = ("completion", "scored_text", "text")
"""Fields that hold the completion, the first that is there; the others are those of a run's `logs/rollouts.jsonl`."""


@dataclass(frozen=True, slots=True)
class LineScore:
    """Result of one line.

    Attributes:
        line: Number of the line, from 1.
        row: Id of the row; empty where the line is wrong.
        text: The completion.
        score: Its score; None where the line is wrong.
        problem: Why the line is wrong; empty otherwise.
    """

    line: int
    row: str = ""
    text: str = ""
    score: Score | None = None
    problem: str = ""


def score_lines(scorer: Scorer, file: IO[bytes], on_wait: Callable[[], None] = lambda: None) -> Iterator[LineScore]:
    """Score the completions of a JSONL file; yields the result of every line that is not blank, in order.

    A line is an object with the completion (`completion`; in a run's log `scored_text` or `text`) and `row`: the id of
    one of the task's rows, or a whole row. `predictions` holds the opponent's answers, for a task that has an opponent.
    Other fields are ignored.

    Args:
        scorer: Scorer of the task.
        file: The file, open for reading bytes.
        on_wait: Called while a score is waited for.
    """
    waiting: deque[tuple[LineScore, Future[Score] | None]] = deque()
    reader = _LineReader(scorer.task)
    for number, line in _lines(file):
        try:
            text, row, predictions = reader.read(line)
            waiting.append((LineScore(number, row.id, text), scorer.submit(text, row, predictions)))
        except GrpoError as error:
            waiting.append((LineScore(number, problem=str(error)), None))
        # What is ready is yielded before the next line is read, which may be long in coming from a pipe.
        while waiting and (len(waiting) > QUEUED or waiting[0][1] is None or waiting[0][1].done()):
            yield _result(*waiting.popleft(), on_wait)
    for each in waiting:
        yield _result(*each, on_wait)


def _result(line: LineScore, future: Future[Score] | None, on_wait: Callable[[], None]) -> LineScore:
    if future is None:
        return line
    while not wait([future], timeout=ASK_EVERY_S).done:
        on_wait()
    return LineScore(line.line, line.row, line.text, future.result())


def _lines(file: IO[bytes]) -> Iterator[tuple[int, bytes | None]]:
    """Yield numbered lines that are not blank; None for one that is too long, of which the rest is skipped."""
    for number in count(1):
        line = file.readline(MAX_LINE_BYTES + 1)
        if not line:
            return
        if len(line) <= MAX_LINE_BYTES:
            if line.strip():
                yield number, line
            continue
        while line and not line.endswith(b"\n"):
            line = file.readline(MAX_LINE_BYTES)
        yield number, None


class _LineReader:
    """Reads lines for one task.

    Args:
        task: The task.
    """

    def __init__(self, task: BoundTask) -> None:
        self._task = task

    def read(self, line: bytes | None) -> tuple[str, Row, tuple[str, ...] | None]:
        """Return completion, row and predictions.

        Raises:
            UserError: the line is wrong; says how.
        """
        if line is None:
            raise UserError(f"longer than {MAX_LINE_BYTES} bytes.")
        try:
            record = parsed_json(line)
        except ValueError as error:
            raise UserError(f"{str(error).rstrip('.')}.") from None
        if not isinstance(record, dict):
            raise UserError(f"a {type(record).__name__} where an object {{…}} is expected.")
        return self._text(record), self._row(record), self._predictions(record)

    def _text(self, record: Mapping[str, Any]) -> str:
        text = next((record[name] for name in TEXT_FIELDS if name in record), None)
        if not isinstance(text, str):
            raise UserError("no completion: give it as text in 'completion' or 'text'.")
        return text

    def _row(self, record: Mapping[str, Any]) -> Row:
        row = record.get("row")
        if isinstance(row, str):
            return self._rows[row] if row in self._rows else row_by_id(self._rows.values(), row, self._task.spec)
        if not isinstance(row, dict):
            raise UserError("no row: give its id, or the whole row as an object, in 'row'.")
        try:
            return self._task.row_from_json(json.dumps(row))
        except RecursionError:
            raise UserError("the row is nested too deeply.") from None

    def _predictions(self, record: Mapping[str, Any]) -> tuple[str, ...] | None:
        predictions = record.get("predictions")
        if predictions is None or self._task.opponent is None:
            return None  # the scorer says what a task with an opponent needs
        if not (isinstance(predictions, list) and all(isinstance(each, str) for each in predictions)):
            raise UserError("'predictions' is no list of texts.")
        return tuple(predictions)

    @cached_property
    def _rows(self) -> Mapping[str, Row]:
        return {row.id: row for row in self._task.rows()}


@dataclass(slots=True)
class FileSummary:
    """Counts over the lines of a file so far.

    Attributes:
        lines: Lines that held a completion.
        wrong: Lines that could not be read.
        solved: Completions that solved their row.
        abstained: Completions that could not be scored.
        total: Sum of the values.
    """

    lines: int = 0
    wrong: int = 0
    solved: int = 0
    abstained: int = 0
    total: float = 0.0

    def counted(self, results: Iterable[LineScore]) -> Iterator[LineScore]:
        """Count results and yield them again."""
        for result in results:
            if result.score is None:
                self.wrong += 1
            else:
                self.lines += 1
                self.solved += result.score.solved
                self.abstained += result.score.abstained
                self.total += result.score.value or 0.0
            yield result

    @property
    def abstained_share(self) -> float:
        """Share of the completions that could not be scored."""
        return self.abstained / self.lines if self.lines else 0.0

    @property
    def mean(self) -> float | None:
        """Mean value of what was scored; None if nothing was."""
        scored = self.lines - self.abstained
        return self.total / scored if scored else None
