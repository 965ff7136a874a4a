"""Drawing prompts: several tasks in exact proportion, each task's rows in an order of its own."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from grpo_sdk.errors import DataError, UserError
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.quotas import Quotas
from grpo_sdk.task.row import Row

STATE_VERSION = 1
"""Version of `Mixture.state()`."""


class RowOrder(Protocol):
    """Order of the rows of one task: shuffled epochs, or a curriculum."""

    def next(self, taken: Collection[str]) -> Row:
        """The next row; one whose id is in `taken` only if there is no other."""

    def update(self, row_id: str, value: float) -> None:
        """Learn the result of a row's group, in [0, 1]: in prompt order, after the gather, before the next draw."""

    def state(self) -> dict[str, Any]:
        """Everything needed to go on, as JSON."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""


@dataclass(frozen=True, slots=True)
class Draw:
    """One prompt that was drawn: a group of completions will answer it.

    Attributes:
        task: Its task.
        label: Name of the task in logs and summaries; see `task_labels`.
        row: The row.
        position: Prompts drawn before it in the whole run; unique, so it numbers the group.
        repeat: Times that the row was drawn before in the same batch: 0 unless the task has too few rows.
    """

    task: BoundTask
    label: str
    row: Row
    position: int
    repeat: int = 0

    @property
    def prompt_id(self) -> str:
        """Names the prompt in sampling keys: unique within a batch, the same whatever else is in it."""
        return f"{self.label}/{self.row.id}" + (f"#{self.repeat}" if self.repeat else "")


class Mixture:
    """Draws prompts from tasks by exact quotas (see `Quotas`); depends only on seed, rows and what `update` was told.

    Every rank draws the same list and works on its part of it.

    Args:
        tasks: Tasks with their weights.
        rows_by_task: Rows by label (see `task_labels`).
        seed: Seed of the shuffling.
        orders: A curriculum by label, in place of shuffled epochs.

    Attributes:
        tasks: The tasks by label.
        orders: Each task's row order by label.
        drawn: Prompts drawn so far.

    Raises:
        DataError: a task has no rows.
    """

    def __init__(
        self,
        tasks: Sequence[tuple[BoundTask, float]],
        rows_by_task: Mapping[str, Sequence[Row]],
        seed: int,
        orders: Mapping[str, RowOrder] | None = None,
    ) -> None:
        labels = task_labels([task for task, _ in tasks])
        self.tasks: dict[str, BoundTask] = {label: task for label, (task, _) in zip(labels, tasks, strict=True)}
        for label in labels:
            if not rows_by_task.get(label):
                raise DataError(f"task {label!r} has no rows to train on.")
        self._weights = {label: float(weight) for label, (_, weight) in zip(labels, tasks, strict=True)}
        self._quotas = Quotas(list(self._weights.values()))
        self._rows = {label: len(rows_by_task[label]) for label in labels}
        curricula = orders or {}
        self.orders: dict[str, RowOrder] = {
            label: curricula.get(label) or ShuffledEpochs(rows_by_task[label], f"{seed}/{label}") for label in labels
        }
        self.drawn = 0
        self._batch: dict[str, Counter[str]] = {}

    @property
    def prompts_per_epoch(self) -> int:
        """Prompts of one epoch: as many as the tasks have rows together."""
        return sum(self._rows.values())

    def draw(self, n: int) -> list[Draw]:
        """Draw the next batch of n prompts; none twice, unless its task has fewer rows than its quota."""
        self._batch = {label: Counter() for label in self.tasks}
        labels = list(self.tasks)
        return [self._draw_from(labels[index]) for index in self._quotas.take(n)]

    def replace(self, draws: Sequence[Draw]) -> list[Draw]:
        """Draw another prompt of the same task for each of `draws`, in the batch last drawn.

        This is how dynamic sampling rejects a group: quotas then bind the groups that are kept.
        """
        return [self._draw_from(draw.label) for draw in draws]

    def update(self, draw: Draw, value: float) -> None:
        """Update the task's curriculum with a group's result: its solved rate, or mean reward in [0, 1]."""
        self.orders[draw.label].update(draw.row.id, value)

    def _draw_from(self, label: str) -> Draw:
        taken = self._batch.setdefault(label, Counter())
        fewest = min(taken.values()) if len(taken) == self._rows[label] else 0  # all are taken: begin another round
        row = self.orders[label].next({row_id for row_id, times in taken.items() if times > fewest})
        draw = Draw(self.tasks[label], label, row, self.drawn, taken[row.id])
        taken[row.id] += 1
        self.drawn += 1
        return draw

    def state(self) -> dict[str, Any]:
        """Everything needed to go on at the next batch, as JSON."""
        return {
            "version": STATE_VERSION,
            "weights": dict(self._weights),
            "drawn": self.drawn,
            "quotas": dict(zip(self.tasks, self._quotas.counts, strict=True)),
            "orders": {label: order.state() for label, order in self.orders.items()},
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`.

        Raises:
            UserError: it is of another version, or of a mixture with other tasks or weights.
        """
        if state["version"] != STATE_VERSION:
            raise UserError(f"the checkpoint's mixture has version {state['version']}, this code has {STATE_VERSION}.")
        if dict(state["weights"]) != self._weights:
            raise UserError(
                f"the checkpoint's mixture is {_listed(state['weights'])}, this run's is {_listed(self._weights)}; "
                "resume with the same tasks and weights."
            )
        for label, order in self.orders.items():
            order.load_state(state["orders"][label])
        self._quotas.counts = [int(state["quotas"][label]) for label in self.tasks]
        self.drawn = int(state["drawn"])
        self._batch = {}


class ShuffledEpochs:
    """Every row once per epoch, each epoch in another order: a pure function of (key, epoch, row ids).

    A row that is already in the batch when an epoch ends inside it is put off to the next batch, not lost.

    Args:
        rows: The rows of one task; at least one.
        key: Seed of the order, with the epoch.
    """

    def __init__(self, rows: Sequence[Row], key: str) -> None:
        self._rows = {row.id: row for row in rows}
        self._key = key
        self._put_off: list[str] = []
        self._start(0)

    def _start(self, epoch: int) -> None:
        self.epoch, self._cursor = epoch, 0
        self._order = shuffled(self._rows, f"{self._key}/{epoch}")

    def next(self, taken: Collection[str]) -> Row:
        """The next row; one whose id is in `taken` only if there is no other."""
        if len(taken) >= len(self._rows) and self._rows.keys() <= set(taken):
            taken = ()
        waiting = next((row_id for row_id in self._put_off if row_id not in taken), None)
        if waiting is not None:
            self._put_off.remove(waiting)
            return self._rows[waiting]
        while True:
            if self._cursor == len(self._order):
                self._start(self.epoch + 1)
            row_id = self._order[self._cursor]
            self._cursor += 1
            if row_id not in taken:
                return self._rows[row_id]
            self._put_off.append(row_id)

    def update(self, row_id: str, value: float) -> None:
        """Do nothing: the order does not depend on results."""

    def state(self) -> dict[str, Any]:
        """Epoch, cursor and the rows put off."""
        return {"epoch": self.epoch, "cursor": self._cursor, "put_off": list(self._put_off)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`.

        Raises:
            UserError: the rows are others than those of the checkpoint.
        """
        if not set(state["put_off"]) <= set(self._rows) or not 0 <= state["cursor"] <= len(self._rows):
            raise UserError(f"the checkpoint is of other rows than the {len(self._rows)} of this run.")
        self._start(int(state["epoch"]))
        self._cursor, self._put_off = int(state["cursor"]), list(state["put_off"])


def task_labels(tasks: Sequence[BoundTask]) -> tuple[str, ...]:
    """The name of each task in logs and summaries: its label, or its spec where two of them share one."""
    labels = Counter(task.label for task in tasks)
    return tuple(task.label if labels[task.label] == 1 else task.spec for task in tasks)


def shuffled(ids: Collection[str], key: str) -> list[str]:
    """`ids` in the order of their hashes under `key`: the same in every process, whatever order they came in."""
    prefix = hashlib.blake2b(key.encode(), digest_size=16, person=b"grpo-shuffle").digest()

    def rank(row_id: str) -> bytes:
        return hashlib.blake2b(row_id.encode("utf-8", "surrogatepass"), digest_size=16, key=prefix).digest()

    return sorted(ids, key=rank)


def _listed(weights: Mapping[str, float]) -> str:
    return ", ".join(f"{label}:{weight:g}" for label, weight in weights.items())
