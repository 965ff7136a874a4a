import math

import pytest
import torch

from grpo_core.algorithms.advantages.groups import deviations, group_counts, group_std, kept_indices, zero_std_fraction

NAN = math.nan


def rewards(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def groups(*indices: int) -> torch.Tensor:
    return torch.tensor(indices)


def test_interleaved_groups_keep_their_own_statistics_and_leave_abstentions_out() -> None:
    # group 0: 1, 3 (std √2); group 1: 0, and one that has no score
    index, values = groups(0, 1, 0, 1), rewards(1, NAN, 3, 0)
    assert deviations(values, index).tolist() == [-1.0, 0.0, 1.0, 0.0]
    assert group_std(values, index).tolist() == pytest.approx([math.sqrt(2), 0, math.sqrt(2), 0])
    assert group_counts(values, index).tolist() == [2, 1, 2, 1]

    # A large offset costs no digit.
    small = rewards(0.1, 0.2, 0.4)
    offset = deviations(small + 1e9, groups(0, 0, 0))
    # the offset rewards are rounded to 1e9 · 2^-53 ≈ 1e-7 themselves; their own deviations are exact beyond that
    assert offset.sum().abs() < 1e-15
    assert torch.allclose(offset, deviations(small, groups(0, 0, 0)), atol=3e-7, rtol=0)


def test_groups_that_do_not_differ_are_counted_and_dropped() -> None:
    # group 0 differs; group 1 is equal but for an abstention; group 2 abstained; rows of 0 stay, with their abstention
    index, values = groups(1, 0, 2, 0, 1, 0, 1), rewards(1, 0, NAN, 1, NAN, NAN, 1)
    assert kept_indices(values, index).tolist() == [1, 3, 5]
    assert zero_std_fraction(values, index) == pytest.approx(2 / 3)
    assert zero_std_fraction(rewards(), groups().long()) == 0.0
    # std of (0, 1e-9) is 7e-10
    assert kept_indices(rewards(0, 1e-9), groups(0, 0), minimum=6e-10).tolist() == [0, 1]
    assert kept_indices(rewards(0, 1e-9), groups(0, 0), minimum=8e-10).tolist() == []
