"""Problems that stand among the training rows and the held-out rows at once: found by their prompts."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_sdk.callbacks import ResolvedDefault
from grpo_sdk.display.text import visible
from grpo_sdk.errors import ExhaustedError, UserError
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.row import Row, prompt_text

NAMED = 5
"""Pairs of rows that are named; more are counted."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """Held-out rows that are problems which are also trained on.

    Attributes:
        of: Held-out rows that were compared.
        pairs: Id of the held-out row -> id of a training row that is the same problem.
    """

    of: int
    pairs: Mapping[str, str]

    def __str__(self) -> str:
        named = ", ".join(f"{visible(held)} is {visible(trained)}" for held, trained in [*self.pairs.items()][:NAMED])
        more = ", …" if len(self.pairs) > NAMED else ""
        return f"{len(self.pairs)} of {self.of} held-out rows are trained on ({named}{more})"

    def as_json(self) -> dict[str, Any]:
        """The entry in summary.json."""
        return {"n": len(self.pairs), "of": self.of, "pairs": dict([*self.pairs.items()][:NAMED])}


class TrainedProblems:
    """The problems of the training rows of some tasks, to be looked up.

    Two rows are the same problem if their prompts are equal but for Unicode composition and line ends; and also if they
    are equal but for whitespace and case, where their golds are equal or neither has one; without a gold, case counts.
    Prompts of one task are compared under the options of the training, so that another template hides nothing. Where
    training rows with different fields share a prompt, as where a number is to be guessed, the fields have to be equal.

    Args:
        tasks: Tasks on their training rows. Tasks whose episodes all begin alike, or which say that they have no split
            of their own (`Task.exempt`), have no problems to compare.
    """

    def __init__(self, tasks: Sequence[BoundTask]) -> None:
        self._tasks = tasks
        self._known: list[dict[bytes, Row | dict[str, Row]] | None] = [None] * len(tasks)

    def overlap(self, held: BoundTask, rows: Sequence[Row]) -> Overlap | None:
        """The held-out rows among them; None where there is nothing to compare.

        Args:
            held: Task of the held-out rows.
            rows: Its held-out rows.
        """
        pairs: dict[str, str] = {}
        compared = False
        for place, trained in enumerate(self._tasks):
            is_same = trained.name == held.name
            if trained.task.game is not None or held.task.game is not None or (is_same and "split" in held.task.exempt):
                continue
            compared = True
            known = self._known[place]
            if known is None:
                known = self._known[place] = _by_problem(trained)
            template = trained if is_same else held
            for row in rows:
                for key in _keys(template, row):
                    match = known.get(key)
                    same = match.get(_fields(row)) if isinstance(match, dict) else match
                    if same is not None:
                        pairs.setdefault(row.id, same.id)
        return Overlap(len(rows), pairs) if compared else None


def of_size(task: BoundTask, size: int | None, **options: object) -> BoundTask:
    """The task with options and `size` rows, or as many as there are."""
    sized = task.with_options(**options, size=size)
    try:
        sized.rows()
    except ExhaustedError as exhausted:
        sized = task.with_options(**options, size=exhausted.available)
    return sized


def own_overlap(task: BoundTask) -> Overlap | None:
    """The test rows of a task that are among its training rows, of both at most `size`.

    Returns:
        The overlap; None where the task has not both, or they cannot be read.
    """
    try:
        if task.config.split != "train":
            task = task.with_options(split="train")
        held = of_size(task, task.config.size, split="test")
        return TrainedProblems([task]).overlap(held, held.rows())
    except UserError:  # no such split, no file, no network: the task says so itself where its rows are asked for
        return None


def overlap_choices(label: str, held: BoundTask, overlap: Overlap | None) -> list[ResolvedDefault]:
    """A choice that names the held-out rows which are trained on.

    Raises:
        UserError: every row is trained on, and not because the training rows themselves are to be evaluated.
    """
    if overlap is None or not overlap.pairs:
        return []
    if len(overlap.pairs) == overlap.of and held.config.split != "train":
        raise UserError(
            f"{label}: {overlap}: nothing is held out, and a solved rate would show memory. Give split "
            f"{held.config.split} rows of its own (load() is told which split by config.split), evaluate the training "
            "rows knowingly with eval.split=train, or nothing with eval.at_start=false and eval.at_end=false."
        )
    return [ResolvedDefault("held-out", f"{label}: not disjoint", f"{overlap}; what they show is memory")]


def _by_problem(task: BoundTask) -> dict[bytes, Row | dict[str, Row]]:
    """A task's rows by each of their keys: the first one, or all by their fields where these differ."""
    known: dict[bytes, Row | dict[str, Row]] = {}
    for row in task.rows():
        for key in _keys(task, row):
            first = known.setdefault(key, row)
            if isinstance(first, dict):
                first.setdefault(_fields(row), row)
            elif first is not row and _fields(first) != _fields(row):
                known[key] = {_fields(first): first, _fields(row): row}
    return known


def _fields(row: Row) -> str:
    """The fields of a row without its name, as JSON."""
    return row.model_dump_json(exclude={"id", "difficulty"})


def _keys(task: BoundTask, row: Row) -> Iterator[bytes]:
    """Two digests: rows that share one are the same problem."""
    text = unicodedata.normalize("NFC", prompt_text(task.prompt(row))).replace("\r\n", "\n").strip()
    yield _digest("exact", text)
    words = " ".join(text.split())
    gold = None if row.gold is None else row.gold.strip()
    yield _digest("words", words) if gold is None else _digest(gold, words.casefold())


def _digest(kind: str, text: str) -> bytes:
    return hashlib.blake2b(f"{len(kind)} {kind} {text}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
