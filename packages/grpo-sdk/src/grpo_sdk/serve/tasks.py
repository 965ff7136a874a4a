"""The tasks that a server offers: their rows, and the scorers of those that are in use."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from itertools import chain, islice
from typing import Any, get_args

from grpo_sdk.episodes.opponents import OpponentSampler, opponent_of
from grpo_sdk.errors import MAX_NAME_CHARS, GrpoError, UserError, near_match, unknown_name
from grpo_sdk.scoring.abstention import ScorerStats
from grpo_sdk.scoring.scorer import Scorer
from grpo_sdk.serve.errors import RequestError, bad_request
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.row import Row, Split

MAX_SCORERS = 16
"""Tasks whose worker processes run at the same time; beyond it, those of the task not used for longest end."""


MAX_COMPARED = 1000
"""Ids that an unknown one is compared with, to name the closest: a millisecond."""


class ServedTask:
    """One task of a server.

    Args:
        label: Name in paths.
        task: The task.
        opponent: Sampler of the opponent's answers; None where the task has none, or the server has no sampler for it.

    Attributes:
        label: Name in paths.
        task: The task.
        opponent: Sampler of the opponent's answers.
        loading: Held while rows load in a thread, so that whoever waits for them takes no thread.
    """

    def __init__(self, label: str, task: BoundTask, opponent: OpponentSampler | None = None) -> None:
        self.label, self.task, self.opponent = label, task, opponent
        self._rows: dict[str, dict[str, Row]] = {}
        self._lock = threading.Lock()
        self.loading = asyncio.Lock()

    @property
    def kind(self) -> str:
        """`single-turn`, `multi-turn` or `game`."""
        if self.task.task.game is not None:
            return "game"
        return "multi-turn" if self.task.has_turns else "single-turn"

    @property
    def splits(self) -> tuple[Split, ...]:
        """Splits in the order in which a row is looked for: that of the task's options first."""
        own = self.task.config.split
        return (own, *(split for split in get_args(Split) if split != own))

    def rows(self, split: str | None = None) -> Mapping[str, Row]:
        """Rows of a split by their ids, loaded once; blocks while they load.

        Args:
            split: Name of the split; by default that of the task's options.

        Raises:
            RequestError: there is no such split, or its rows cannot be loaded.
        """
        name = self.task.config.split if split is None else split
        if name not in self.splits:
            raise bad_request(f"split {name[:40]!r} must be {', '.join(get_args(Split))}.")
        with self._lock:
            if name not in self._rows:
                task = self.task if name == self.task.config.split else self.task.with_options(split=name)
                try:
                    self._rows[name] = {row.id: row for row in task.rows()}
                except GrpoError as error:
                    raise RequestError(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from None
            return self._rows[name]

    def loaded_row(self, reference: Any, split: str | None = None) -> Row | None:
        """Find or read a row as `row` does, if that needs no loading; else None."""
        if not isinstance(reference, str) or reference.lstrip().startswith("{"):
            return self.row(reference)
        for name in self.splits if split is None else (split,):
            if name not in self._rows:
                return None
            if reference in self._rows[name]:
                return self._rows[name][reference]
        return None

    def row(self, reference: Any, split: str | None = None) -> Row:
        """Find or read a row; blocks while rows load.

        Args:
            reference: Id of a row, a whole row as an object, or a whole row as JSON text, as trainers carry it.
            split: Split to look in; by default all of them, that of the task's options first.

        Raises:
            RequestError: there is no such row, or it does not fit the task.
        """
        if isinstance(reference, dict):
            return self._read(json.dumps(reference))
        if not isinstance(reference, str):
            raise bad_request("no row: give its id, or the whole row as an object or as JSON text.")
        if reference.lstrip().startswith("{"):
            return self._read(reference)
        for name in self.splits if split is None else (split,):
            try:
                rows = self.rows(name)
            except RequestError:
                if split is not None or name == self.task.config.split:
                    raise
                continue  # a split that this task does not have
            if reference in rows:
                return rows[reference]
        name, where = reference[:MAX_NAME_CHARS], f"split {split}" if split else "any split"
        known = islice(chain.from_iterable(self._rows.values()), MAX_COMPARED)
        why = f"task {self.label!r} has no row {name!r} in {where}.{near_match(name, known)}"
        raise RequestError(HTTPStatus.NOT_FOUND, why)

    def check_single_completion(self, protocol: str) -> None:
        """Check that a completion by itself can be scored, as other trainers' protocols send it.

        Raises:
            RequestError: the task has tools or several turns, compares the completions of a prompt, or has an opponent
                that this server cannot ask.
        """
        why = ""
        if self.task.task.has_tools:
            why = "has tools: play it with OpenEnv's reset and step, or send finished episodes to /score"
        elif self.task.has_turns:
            kind = "a game" if self.kind == "game" else "a task of several turns"
            why = f"is {kind}: play it with OpenEnv's reset and step"
        elif self.task.task.group_specs():
            why = "compares the completions of a prompt: send all of them to /score in one request"
        elif self.task.opponent is not None and self.opponent is None:
            why = "has an opponent: start grpo serve with --opponent-url, or send its predictions to /score"
        if why:
            raise RequestError(HTTPStatus.NOT_IMPLEMENTED, f"{protocol}: task {self.label!r} {why}.")

    def check_playable(self) -> None:
        """Check that the task can be played turn by turn.

        Raises:
            RequestError: it cannot; says why.
        """
        if self.task.has_turns:
            if opponent_of(self.task) is not None and self.opponent is None:
                why = f"plays against the model {getattr(self.task.config, 'opponent', '')!r}, which is not here"
                raise RequestError(HTTPStatus.NOT_IMPLEMENTED, f"OpenEnv: task {self.label!r} {why}.")
            return
        self.check_single_completion("OpenEnv")

    def _read(self, text: str) -> Row:
        try:
            return self.task.row_from_json(text)
        except (UserError, RecursionError) as error:
            raise bad_request(str(error)) from None


class ServedTasks:
    """The tasks of a server; used from its event loop.

    Args:
        tasks: Tasks by label.
        make_scorer: Makes the scorer of a task.
    """

    def __init__(self, tasks: Sequence[ServedTask], make_scorer: Callable[[BoundTask], Scorer]) -> None:
        self.by_label = {task.label: task for task in tasks}
        self._make_scorer = make_scorer
        self._scorers: OrderedDict[str, Scorer] = OrderedDict()
        self._users: dict[str, int] = {}

    def __getitem__(self, label: str | None) -> ServedTask:
        """The task of a label, or the only one.

        Raises:
            RequestError: there is none, or none is named where there are several.
        """
        if label is None:
            if len(self.by_label) != 1:
                raise RequestError(
                    HTTPStatus.NOT_FOUND, "this server has several tasks: put one into the path, /TASK/…; GET /tasks."
                )
            return next(iter(self.by_label.values()))
        if label not in self.by_label:
            raise RequestError(HTTPStatus.NOT_FOUND, str(unknown_name("task", label[:MAX_NAME_CHARS], self.by_label)))
        return self.by_label[label]

    @contextmanager
    def scorer(self, task: ServedTask) -> Iterator[Scorer]:
        """The scorer of a task, which is kept while the block runs."""
        scorer = self._scorers.get(task.label)
        if scorer is None:
            self._close_idle()
            scorer = self._scorers[task.label] = self._make_scorer(task.task)
        self._scorers.move_to_end(task.label)
        self._users[task.label] = self._users.get(task.label, 0) + 1
        try:
            yield scorer
        finally:
            self._users[task.label] -= 1

    def warm(self) -> None:
        """Start the workers of every task, as far as they may run at the same time, and wait for them.

        Raises:
            InfrastructureError: one cannot start.
        """
        for task in list(self.by_label.values())[:MAX_SCORERS]:
            with self.scorer(task) as scorer:
                scorer.warm()

    @property
    def stats(self) -> Mapping[str, ScorerStats]:
        """Counts of the scorers whose workers run, by label."""
        return {label: scorer.stats for label, scorer in self._scorers.items()}

    def close(self) -> None:
        """End all workers."""
        for scorer in self._scorers.values():
            scorer.close()

    def _close_idle(self) -> None:
        idle = [label for label in self._scorers if not self._users.get(label)]
        for label in idle[: max(0, len(self._scorers) - MAX_SCORERS + 1)]:
            self._scorers.pop(label).close()
