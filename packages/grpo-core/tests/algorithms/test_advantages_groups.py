import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grpo_core.algorithms.advantages.groups import (
    deviations,
    group_counts,
    group_std,
    kept_indices,
    reward_spread,
    zero_std_fraction,
)

NAN = math.nan


def rewards(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def groups(*indices: int) -> torch.Tensor:
    return torch.tensor(indices)


def test_interleaved_groups_keep_their_own_statistics() -> None:
    # group 0: 1, 3 (std √2); group 1: 0, 0
    index = groups(0, 1, 0, 1)
    assert deviations(rewards(1, 0, 3, 0), index).tolist() == [-1.0, 0.0, 1.0, 0.0]
    assert group_std(rewards(1, 0, 3, 0), index).tolist() == pytest.approx([math.sqrt(2), 0, math.sqrt(2), 0])
    assert group_counts(rewards(1, NAN, 3, 0), index).tolist() == [2, 1, 2, 1]


def test_ddof_0_divides_by_n() -> None:
    # squares 1 + 1 over 2 instead of over 1
    assert group_std(rewards(1, 3), groups(0, 0), ddof=0).tolist() == [1.0, 1.0]


def test_weights_move_the_mean() -> None:
    # (1·0 + 3·4) / 4 = 3
    assert deviations(rewards(0, 4), groups(0, 0), weights=torch.tensor([1, 3])).tolist() == [-3.0, 1.0]


def test_a_large_offset_costs_no_digit() -> None:
    small = rewards(0.1, 0.2, 0.4)
    offset = deviations(small + 1e9, groups(0, 0, 0))
    # the offset rewards are rounded to 1e9 · 2^-53 ≈ 1e-7 themselves; their own deviations are exact beyond that
    assert offset.sum().abs() < 1e-15
    assert torch.allclose(offset, deviations(small, groups(0, 0, 0)), atol=3e-7, rtol=0)


@given(st.floats(-1e6, 1e6), st.integers(1, 9))
def test_equal_rewards_deviate_by_exactly_0(value: float, count: int) -> None:
    index = torch.zeros(count, dtype=torch.long)
    assert deviations(rewards(*[value] * count), index).tolist() == [0.0] * count
    assert group_std(rewards(*[value] * count), index).tolist() == [0.0] * count


def test_float32_rewards_are_widened_first() -> None:
    narrow = torch.tensor([16777216.0, 16777217.0 - 1, 16777218.0])  # float32 ends at 2^24
    assert deviations(narrow, groups(0, 0, 0)).dtype == torch.float64
    # 0, 0, 2 above the lowest: mean 2/3
    assert deviations(narrow, groups(0, 0, 0)).tolist() == pytest.approx([-2 / 3, -2 / 3, 4 / 3])


def test_groups_of_equal_rewards_are_counted_and_dropped_wherever_they_stand() -> None:
    # group 0 differs; group 1 is equal but for an abstention; group 2 abstained; rows of 0 stay, with their abstention
    index = groups(1, 0, 2, 0, 1, 0, 1)
    given_rewards = rewards(1, 0, NAN, 1, NAN, NAN, 1)
    assert kept_indices(given_rewards, index).tolist() == [1, 3, 5]
    assert zero_std_fraction(given_rewards, index) == pytest.approx(2 / 3)


def test_a_minimum_drops_groups_that_hardly_differ() -> None:
    # std of (0, 1e-9) is 7e-10
    assert kept_indices(rewards(0, 1e-9), groups(0, 0)).tolist() == [0, 1]
    assert kept_indices(rewards(0, 1e-9), groups(0, 0), minimum=1e-8).tolist() == []


@pytest.mark.parametrize(
    ("values", "expected"), [((), 0.0), ((1,), 0.0), ((NAN, NAN), 0.0), ((NAN, 0, 2), math.sqrt(2))]
)
def test_the_spread_of_one_group(values: tuple[float, ...], expected: float) -> None:
    assert reward_spread(rewards(*values)) == pytest.approx(expected)


def test_no_group_has_no_share() -> None:
    assert zero_std_fraction(rewards(), groups().long()) == 0.0
