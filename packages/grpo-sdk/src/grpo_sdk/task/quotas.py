"""Whole numbers in exact proportion to weights, at every moment of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from grpo_sdk.errors import UserError


class Quotas:
    """Deals turns to kinds (tasks, buckets) so that no count is ever off by one whole turn.

    After N turns, `|counts[i] − N·weight_i/Σweights| ≤ 1 − 1/(2k−2) < 1` for each of k kinds and every N; where all
    N·weight_i/Σweights are whole, the counts equal them. For two kinds this is the cumulative largest remainder with
    ties by order. For more, the largest remainder of a growing total may take back a turn that it gave (the Alabama
    paradox), so the turns follow the earliest deadline instead: R. Tijdeman, "The chairman assignment problem",
    Discrete Mathematics 32 (1980), which keeps the bound without taking anything back.

    Args:
        weights: One per kind, 0 or above, not all 0; read as the decimals that they print as, so 0.1 is a tenth.
    """

    def __init__(self, weights: Sequence[float]) -> None:
        if not all(math.isfinite(weight) and weight >= 0 for weight in weights) or not any(weights):
            raise UserError(f"weights {list(weights)} must be numbers of 0 or above, at least one of them above 0.")
        exact = [Fraction(str(weight)) for weight in weights]
        self.shares = tuple(weight / sum(exact) for weight in exact)
        self.counts = [0] * len(exact)
        # The shares and the slack 1 / (2k − 2) in whole numbers: fractions take thirty times as long.
        self._whole = math.lcm(*(share.denominator for share in self.shares))
        self._parts = [int(share * self._whole) for share in self.shares]
        self._slacks = max(1, 2 * sum(part > 0 for part in self._parts) - 2)

    def take(self, turns: int) -> list[int]:
        """Deal the next turns: the index of the kind that each belongs to, in order."""
        return [self._next() for _ in range(turns)]

    def _next(self) -> int:
        total = sum(self.counts) + 1
        chosen, earliest = -1, 0
        for index, part in enumerate(self._parts):
            owed = self._slacks * (total * part - self.counts[index] * self._whole)
            if part == 0 or owed < self._whole:  # a turn given earlier than this would be off by more than the bound
                continue
            left = (self._slacks - 1) * self._whole - owed  # left / part turns until going without breaks the bound
            if chosen < 0 or left * self._parts[chosen] < earliest * part:
                chosen, earliest = index, left
        assert chosen >= 0, "Tijdeman: somebody is always owed the slack"
        self.counts[chosen] += 1
        return chosen
