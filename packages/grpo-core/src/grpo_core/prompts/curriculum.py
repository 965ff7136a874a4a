"""Row orders that learn from results: a pass-rate curriculum within a task, and a ladder of tasks."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from grpo_sdk.errors import DataError, UserError
from grpo_sdk.task.mixture import ShuffledEpochs, shuffled
from grpo_sdk.task.quotas import Quotas
from grpo_sdk.task.row import Row

Bucket = Literal["hard", "normal", "easy"]
BUCKETS: tuple[Bucket, ...] = ("hard", "normal", "easy")

INITIAL_PASS_RATE = 0.5
"""Pass rate of an unseen prompt: in the middle, so that it starts as `normal`."""

MIN_HELD_OUT = 32
"""Held-out rows that the rate of a rung must rest on."""

CURRENT_SHARE = 0.75
"""Share of the draws that the highest unlocked rung gets; those below share the rest, so that they aren't forgotten."""

_WHEN_EMPTY: tuple[Bucket, ...] = ("normal", "hard", "easy")
_NEVER = -1


class PassRateCurriculum:
    """Draws hard, normal and easy prompts in fixed proportion, round-robin within each.

    A prompt's pass rate is `p ← (1 − ema_alpha)·p + ema_alpha·value`, from 0.5; it is hard below the first boundary,
    easy above the second. Turns go to the buckets by exact quotas (see `Quotas`), not by chance; within a bucket, the
    prompt whose last turn is longest ago is next. A bucket with nothing left to give passes its turn to normal, hard,
    easy, in this order.

    Args:
        rows: The rows of one task; at least one.
        key: Seed of the order of first turns, e.g. `f"{seed}/{label}"`.
        ema_alpha: Weight of the newest value, in (0, 1].
        boundaries: Pass rates that separate hard from normal and normal from easy.
        weights: Shares of hard, normal and easy.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        key: str,
        *,
        ema_alpha: float = 0.05,
        boundaries: tuple[float, float] = (0.2, 0.8),
        weights: tuple[float, float, float] = (1.0, 1.0, 1.0),
    ) -> None:
        self._alpha, self._boundaries = ema_alpha, boundaries
        self._rows = {row.id: row for row in rows}
        self._rank = {row_id: rank for rank, row_id in enumerate(shuffled(self._rows, key))}
        self._quotas = Quotas(weights)
        self._turn = 0
        self._pass_rate: dict[str, float] = {}
        self._last_turn: dict[str, int] = {}
        self._fill_buckets()

    def _fill_buckets(self) -> None:
        # Each bucket is a heap of (last turn, rank, id). An entry is stale once the row moved on or had another turn.
        self._bucket = {row_id: self._bucket_of(row_id) for row_id in self._rows}
        self._heaps: dict[Bucket, list[tuple[int, int, str]]] = {bucket: [] for bucket in BUCKETS}
        for row_id, bucket in self._bucket.items():
            self._heaps[bucket].append(self._entry(row_id))
        for heap in self._heaps.values():
            heapq.heapify(heap)

    def _bucket_of(self, row_id: str) -> Bucket:
        rate, (low, high) = self.pass_rate(row_id), self._boundaries
        return "hard" if rate < low else "easy" if rate > high else "normal"

    def _entry(self, row_id: str) -> tuple[int, int, str]:
        return (self._last_turn.get(row_id, _NEVER), self._rank[row_id], row_id)

    def pass_rate(self, row_id: str) -> float:
        """The moving average of a prompt."""
        return self._pass_rate.get(row_id, INITIAL_PASS_RATE)

    def sizes(self) -> dict[Bucket, int]:
        """Number of prompts in each bucket."""
        members = list(self._bucket.values())
        return {bucket: members.count(bucket) for bucket in BUCKETS}

    def next(self, taken: Collection[str]) -> Row:
        """The next row; one whose id is in `taken` only if there is no other."""
        if len(taken) >= len(self._rows) and self._rows.keys() <= set(taken):
            taken = ()
        (turn,) = self._quotas.take(1)
        for bucket in (BUCKETS[turn], *_WHEN_EMPTY):
            row_id = self._longest_ago(bucket, taken)
            if row_id is not None:
                break
        assert row_id is not None, "some row is not taken, and every row is in a bucket"
        self._last_turn[row_id] = self._turn
        self._turn += 1
        heapq.heappush(self._heaps[self._bucket[row_id]], self._entry(row_id))
        return self._rows[row_id]

    def _longest_ago(self, bucket: Bucket, taken: Collection[str]) -> str | None:
        heap, passed_over, result = self._heaps[bucket], [], None
        while heap and result is None:
            entry = heapq.heappop(heap)
            row_id = entry[2]
            if self._bucket[row_id] != bucket or entry != self._entry(row_id):
                continue
            if row_id in taken:
                passed_over.append(entry)
            else:
                result = row_id
        for entry in passed_over:
            heapq.heappush(heap, entry)
        return result

    def update(self, row_id: str, value: float) -> None:
        """Learn a group's solved rate (or mean reward): in prompt order, after the gather, before the next draw."""
        assert math.isfinite(value), f"the pass rate of {row_id!r} cannot learn {value}"
        self._pass_rate[row_id] = (1 - self._alpha) * self.pass_rate(row_id) + self._alpha * value
        bucket = self._bucket_of(row_id)
        if bucket != self._bucket[row_id]:
            self._bucket[row_id] = bucket
            heapq.heappush(self._heaps[bucket], self._entry(row_id))

    def state(self) -> dict[str, Any]:
        """Pass rates and turns of the prompts seen so far."""
        return {
            "turn": self._turn,
            "quotas": list(self._quotas.counts),
            "pass_rate": dict(self._pass_rate),
            "last_turn": dict(self._last_turn),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`.

        Raises:
            UserError: the rows are others than those of the checkpoint.
        """
        unknown = (state["pass_rate"].keys() | state["last_turn"].keys()) - self._rows.keys()
        if unknown:
            raise UserError(
                f"the checkpoint's curriculum knows {len(unknown)} rows that this run has not, e.g. {min(unknown)!r}; "
                "resume with the same data."
            )
        self._turn = int(state["turn"])
        self._quotas.counts = [int(count) for count in state["quotas"]]
        self._pass_rate = {row_id: float(rate) for row_id, rate in state["pass_rate"].items()}
        self._last_turn = {row_id: int(turn) for row_id, turn in state["last_turn"].items()}
        self._fill_buckets()


class LadderCurriculum:
    """Draws from the easiest rung until it is mastered on held-out rows, then also from the next, and so on.

    A rung is a distinct `difficulty` of the rows (in `math.ladder`, a task). It is mastered when the last held-out
    solved rate of it is at least `threshold`. This is the plain rate, not a lower confidence bound: with 64 rows a 95%
    Wilson bound of 0.9 would ask for 63 solved, so the bar would move with the number of rows; a step taken too early
    costs little, since the rungs below stay in the draw, and `MIN_HELD_OUT` keeps luck small (a standard error of at
    most 0.09, that of 16 solved of 32).

    Args:
        rows: The rows of one task, each with a difficulty.
        key: Seed of the shuffling, e.g. `f"{seed}/{label}"`.
        threshold: Held-out solved rate that unlocks the next rung, in (0, 1].

    Raises:
        DataError: a row has no difficulty.
    """

    def __init__(self, rows: Sequence[Row], key: str, *, threshold: float = 0.9) -> None:
        by_rung: dict[float, list[Row]] = {}
        for row in rows:
            if row.difficulty is None:
                raise DataError(f"row {row.id!r} has no difficulty, so it is on no rung of the ladder.")
            by_rung.setdefault(row.difficulty, []).append(row)
        self.rungs = tuple(sorted(by_rung))
        self._threshold = threshold
        self._ids = [frozenset(row.id for row in by_rung[rung]) for rung in self.rungs]
        self._orders = [ShuffledEpochs(by_rung[rung], f"{key}/{rung:g}") for rung in self.rungs]
        self.mastered = False
        self._unlock(0)

    def _unlock(self, index: int) -> None:
        self._current = index
        below = (1 - CURRENT_SHARE) / index if index else 0.0
        self._quotas = Quotas([below] * index + [CURRENT_SHARE])

    @property
    def rung(self) -> float:
        """Difficulty of the highest unlocked rung: the one to evaluate next."""
        return self.rungs[self._current]

    def check_held_out(self, rows: Sequence[Row]) -> None:
        """Check before a run that held-out rows can unlock every rung.

        Raises:
            UserError: a rung has fewer than `MIN_HELD_OUT` of them.
        """
        counts = Counter(row.difficulty for row in rows)
        for rung in self.rungs:
            if counts[rung] < MIN_HELD_OUT:
                raise UserError(
                    f"rung {rung:g} of the ladder has {counts[rung]} held-out rows; it takes {MIN_HELD_OUT} to "
                    f"tell skill from luck, so {MIN_HELD_OUT} × {len(self.rungs)} rungs in all. Raise eval.size."
                )

    def report_held_out(self, rung: float, solved_rate: float, n: int) -> bool:
        """Take the solved rate of a rung on n held-out rows; returns whether that unlocked the next rung.

        Only the current rung's report counts, and only one of at least `MIN_HELD_OUT` rows (abstentions may leave
        fewer). At the top, it sets `mastered`.
        """
        if rung != self.rung or n < MIN_HELD_OUT:
            return False
        reached = solved_rate >= self._threshold
        if reached and self._current + 1 < len(self.rungs):
            self._unlock(self._current + 1)
            return True
        self.mastered = reached
        return False

    def next(self, taken: Collection[str]) -> Row:
        """The next row; one whose id is in `taken` only if no unlocked rung has another."""
        (turn,) = self._quotas.take(1)
        unlocked = range(self._current, -1, -1)
        free = (index for index in (turn, *unlocked) if not self._ids[index] <= set(taken))
        return self._orders[next(free, turn)].next(taken)

    def update(self, row_id: str, value: float) -> None:
        """Do nothing: only held-out results unlock a rung."""

    def state(self) -> dict[str, Any]:
        """The current rung and where each rung's shuffled epochs are."""
        return {
            "rung": self.rung,
            "mastered": self.mastered,
            "quotas": list(self._quotas.counts),
            "orders": {f"{rung:g}": order.state() for rung, order in zip(self.rungs, self._orders, strict=True)},
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`.

        Raises:
            UserError: the rungs or rows are others than those of the checkpoint.
        """
        names = [f"{rung:g}" for rung in self.rungs]
        if list(state["orders"]) != names:
            raise UserError(
                f"the checkpoint's ladder has rungs {', '.join(state['orders'])}, this run's has {', '.join(names)}; "
                "resume with the same data."
            )
        for name, order in zip(names, self._orders, strict=True):
            order.load_state(state["orders"][name])
        self._unlock(self.rungs.index(state["rung"]))
        self._quotas.counts = [int(count) for count in state["quotas"]]
        self.mastered = bool(state["mastered"])
