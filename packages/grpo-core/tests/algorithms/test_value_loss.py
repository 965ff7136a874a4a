import math

import pytest
import torch

from grpo_core.algorithms.value_loss import value_loss


def one(value: float, old: float, target: float, clip: float | None) -> tuple[float, float]:
    values = torch.tensor([[value]], dtype=torch.float64, requires_grad=True)
    loss = value_loss(values, torch.tensor([[old]]), torch.tensor([[target]]), torch.tensor([[True]]), clip=clip)
    (gradient,) = torch.autograd.grad(loss.sum(), values)
    return float(loss.detach()), float(gradient)


def test_without_a_clip_it_is_half_the_squared_error() -> None:
    assert one(3.0, 0.0, 1.0, None) == (2.0, 2.0)


def test_a_value_that_has_moved_far_enough_has_no_gradient() -> None:
    # v = 1 moved from 0 towards R = 1: clipped to 0.2 its error is 0.8, which is larger and constant.
    assert one(1.0, 0.0, 1.0, 0.2) == pytest.approx((0.32, 0.0))


def test_a_value_that_moved_the_wrong_way_is_not_protected() -> None:
    # v = −1 moved away from R = 1: its own error 2 is larger than the clipped 1.2.
    assert one(-1.0, 0.0, 1.0, 0.2) == pytest.approx((2.0, -2.0))


def test_within_the_clip_both_are_the_same() -> None:
    assert one(0.1, 0.0, 1.0, 0.2) == pytest.approx((0.405, -0.9))


def test_padding_that_holds_nan_has_no_value_and_no_gradient() -> None:
    values = torch.tensor([[1.0, math.nan, math.inf]], requires_grad=True)
    other = torch.tensor([[0.0, -math.inf, math.nan]])
    for clip in (None, 0.2):
        loss = value_loss(values, other, other, torch.tensor([[True, False, False]]), clip=clip)
        assert loss[0, 1:].tolist() == [0.0, 0.0]
        (gradient,) = torch.autograd.grad(loss.sum(), values)
        assert gradient.tolist() == [[1.0, 0.0, 0.0]]
