"""The rows of a batch as one sequence per rollout, over which advantages per token run, and back.

A rollout of several turns may have several rows. For T tokens a row and at most K rows a rollout:

    rows of rollout 0    a a .     b b b        [B, T]
    joined               a a . b b b            [N, K·T]
"""

from __future__ import annotations

import torch
from torch import Tensor


class Episodes:
    """Joins rows by their rollout.

    Args:
        owners: [B] index of each row's rollout, never falling.
        count: N, rollouts of the batch.
    """

    def __init__(self, owners: Tensor, count: int) -> None:
        self._owners, self._count = owners, count
        self._places = torch.arange(len(owners)) - torch.searchsorted(owners, owners)
        self._rows = int(self._places.max()) + 1 if len(owners) else 1

    def join(self, rows: Tensor) -> Tensor:
        """[B, T] -> [N, K·T], 0 or false where a rollout has fewer rows."""
        joined = rows.new_zeros(self._count, self._rows, rows.shape[1])
        joined[self._owners, self._places] = rows
        return joined.flatten(1)

    def split(self, joined: Tensor) -> Tensor:
        """[N, K·T] -> [B, T]."""
        rows: Tensor = joined.view(self._count, self._rows, -1)[self._owners, self._places]
        return rows

    def total(self, values: Tensor) -> Tensor:
        """[B] -> [N], the sum over the rows of each rollout."""
        return values.new_zeros(self._count).index_add(0, self._owners, values)
