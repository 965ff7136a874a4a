"""Disk space that is reserved in a test."""

import os

import pytest

from grpo_core.checkpoints import reservation


def reserved_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes that are reserved from now on, each really held, by a file that nobody else sees."""
    allocate, sizes = reservation.allocate, list[int]()

    def reserving(file: int, size: int) -> int:
        assert allocate(file, size) == 0
        assert os.fstat(file).st_blocks * 512 >= size and os.fstat(file).st_nlink == 0
        sizes.append(size)
        return 0

    monkeypatch.setattr(reservation, "allocate", reserving)
    return sizes
