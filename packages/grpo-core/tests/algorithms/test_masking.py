import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grpo_core.algorithms.masking import completion_mask, masked_mean, masked_sum

VALUES = torch.tensor([[1.0, 2.0, math.nan], [4.0, math.inf, -math.inf]])
MASK = torch.tensor([[True, True, False], [True, False, False]])


def test_a_completion_mask_is_true_at_real_tokens() -> None:
    assert completion_mask(torch.tensor([3, 1, 0])).tolist() == [[True] * 3, [True, False, False], [False] * 3]
    assert completion_mask(torch.tensor([1]), 2).tolist() == [[True, False]]


def test_masks_of_nothing() -> None:
    assert completion_mask(torch.tensor([0, 0])).shape == (2, 0)
    assert completion_mask(torch.tensor([], dtype=torch.long)).shape == (0, 0)


def test_sums_and_means_do_not_see_what_is_masked() -> None:
    assert masked_sum(VALUES, MASK).item() == 7  # 1 + 2 + 4
    assert masked_sum(VALUES, MASK, 1).tolist() == [3, 4]
    assert masked_mean(VALUES, MASK).item() == pytest.approx(7 / 3)
    assert masked_mean(VALUES, MASK, 1).tolist() == [1.5, 4]
    assert masked_mean(VALUES, MASK, (0, 1)).item() == pytest.approx(7 / 3)


def test_an_empty_mask_gives_zero_and_no_gradient() -> None:
    values = torch.full((2, 2), math.nan, requires_grad=True)
    mean = masked_mean(values, torch.zeros(2, 2, dtype=torch.bool))
    mean.backward()
    assert mean.item() == 0
    assert values.grad is not None and values.grad.tolist() == [[0, 0], [0, 0]]


def test_gradients_are_the_weights_of_the_mean() -> None:
    values = VALUES.clone().requires_grad_()
    masked_mean(values, MASK).backward()
    third = pytest.approx(1 / 3)
    assert values.grad is not None and values.grad.tolist() == [[third, third, 0], [third, 0, 0]]


def test_a_mask_may_be_broadcast() -> None:
    # One mask for both rows: means of (1, 2) and (3, 4), not of half as many tokens.
    values = torch.tensor([[1.0, 2.0, 9.0], [3.0, 4.0, 9.0]])
    assert masked_mean(values, torch.tensor([[True, True, False]])).item() == 2.5


@given(st.lists(st.integers(0, 6), min_size=1, max_size=5))
def test_a_mean_over_real_tokens_is_that_of_the_ragged_rows(lengths: list[int]) -> None:
    mask = completion_mask(torch.tensor(lengths), 6)
    values = torch.arange(mask.numel(), dtype=torch.float64).view_as(mask)
    real = [float(values[row, column]) for row, n in enumerate(lengths) for column in range(n)]
    expected = sum(real) / len(real) if real else 0.0
    assert masked_mean(values.where(mask, math.nan), mask).item() == pytest.approx(expected)
