import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grpo_core.algorithms.advantages import baselines, normalised
from grpo_sdk.errors import UserError

NAN = math.nan


def rewards(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def groups(*indices: int) -> Tensor:
    return torch.tensor(indices, dtype=torch.long)


WITHIN_GROUPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "group_mean": baselines.group_mean,
    "leave_one_out": baselines.leave_one_out,
    "group_median": baselines.group_median,
    "adaptive": baselines.adaptive,
    "gpg": baselines.gpg,
    "opo": lambda r, g: baselines.opo(r, g, lengths=torch.full((len(r),), 5)),
    "grpo": lambda r, g: normalised.scale_advantages(baselines.group_mean(r, g), r, g, "group"),
    "maxrl": normalised.maxrl,
    "pass_at_k": lambda r, g: normalised.pass_at_k(r, g, k=1),
    "pass_at_k_best": normalised.pass_at_k_best,
    "bnpo": normalised.bnpo,
    "gdpo": lambda r, g: normalised.gdpo(r, g, reward_parts=torch.stack([r, r], dim=1), part_weights=rewards(1, 0.5)),
}
"""Advantages that compare a completion with those of its group alone."""


def in_group_of_one(given_rewards: Tensor, index: Tensor) -> Tensor:
    """What is left of a running mean of 0.5, divided by the standard deviation of one reward."""
    return normalised.scale_advantages(given_rewards - 0.5, given_rewards, index, "group", epsilon=1e-4)


@pytest.mark.parametrize(("baseline", "given_rewards", "options", "expected"), [
    (baselines.none, (0.5, NAN, -1), {}, [0.5, 0.0, -1.0]),
    (baselines.group_mean, (0, NAN, 1), {}, [-0.5, 0.0, 0.5]),  # the mean of the two that were scored
    (baselines.group_mean, (3, NAN), {"singleton": "raw"}, [3.0, 0.0]),
    (baselines.leave_one_out, (0, NAN, 1, 5), {}, [-3.0, 0.0, -1.5, 4.5]),  # the others' means are 3, 2.5 and 0.5
    (baselines.leave_one_out, (3, NAN), {"singleton": "raw"}, [3.0, 0.0]),
    (baselines.group_median, (0, 1, 9), {}, [-1.0, 0.0, 8.0]),  # an outlier does not move it
    (baselines.group_median, (9, 0, 2, 1, NAN), {}, [7.5, -1.5, 0.5, -0.5, 0.0]),  # the middle two are 1 and 2
    (baselines.remax, (1, NAN, 1), {"greedy_rewards": rewards(0, 1, NAN)}, [1.0, 0.0, 0.0]),
    (baselines.opo, (1, 0, NAN), {"lengths": rewards(1, 3, 100)}, [0.75, -0.25, 0.0]),  # (1·1 + 3·0) / 4 = 0.25
    (baselines.gpg, (0, 1, NAN), {"f_norm": 2.0}, [-0.25, 0.25, 0.0]),
    (baselines.ema, (0, 1, NAN), {"keys": ["a"] * 3, "state": {}}, [-0.5, 0.5, 0.0]),  # starts at its first batch
    (baselines.ema, (1, 1), {"keys": ["a", "b"], "state": {"a": 0.5}}, [0.5, 0.0]),  # one mean each, read before
    (baselines.ema, (2,), {"keys": ["a"], "state": {}, "alpha": 0.5, "init": 0.0, "order": "after"}, [1.0]),
    # from 0 on; the second event of "x" is compared with 0.75·0 + 0.25·1
    (baselines.role, (1, 1, NAN, 1), {"roles": ["x", "y", "x", "x"], "state": {}, "alpha": 0.75}, [1, 1, 0, 0.75]),
    (baselines.role, (1,), {"roles": ["x"], "state": {}, "alpha": 0.75, "order": "after"}, [0.75]),
    # n = 2, kappa = 2: half of the group's mean 1 and half of the running mean 0 → b = 0.5; without kappa b = 1
    (baselines.adaptive_shrink, (0, 2), {"keys": ["a"] * 2, "state": {"a": 0.0}, "kappa": 2.0}, [-0.5, 1.5]),
    (baselines.adaptive_shrink, (0, 2), {"keys": ["a"] * 2, "state": {"a": 0.0}, "kappa": 0.0}, [-1.0, 1.0]),
    (baselines.adaptive_shrink, (NAN,), {"keys": ["a"], "state": {}, "kappa": 0.0}, [0.0]),
    (in_group_of_one, (1,), {}, [0.5 / 1.0001]),  # and not blown up to 0.5 / 0.0001
    # A reward of 1.1 (with a bonus) is solved, one of 0.4 is not; of two that are scored there is no set of three.
    (normalised.pass_at_k, (1.1, 0.4, NAN), {"k": 1, "epsilon": 0.0}, [1.0, -1.0, 0.0]),
    (normalised.pass_at_k, (1.1, 0.4, NAN), {"k": 3}, [0.0, 0.0, 0.0]),
    # 5 − 3 over the std of 5, 3, 1, which is 2
    (normalised.pass_at_k_best, (5, 3, 1, NAN), {"scale": "group", "epsilon": 0.0}, [1, 0, 0, 0]),
])  # fmt: skip
def test_what_no_golden_case_has(
    baseline: Callable[..., Tensor], given_rewards: tuple[float, ...], options: dict[str, Any], expected: list[float]
) -> None:
    index = torch.zeros(len(given_rewards), dtype=torch.long)
    assert baseline(rewards(*given_rewards), index, **options).tolist() == expected


@pytest.mark.parametrize("name", WITHIN_GROUPS)
def test_equal_rewards_a_lone_survivor_and_an_abstention_have_exactly_0(name: str) -> None:
    # the mean of three times 0.1 is not 0.1 in floating point
    out = WITHIN_GROUPS[name](rewards(0.1, 0.1, 0.1, NAN, NAN, 0.3, 0, 1), groups(0, 0, 0, 0, 1, 1, 2, 2))
    assert out[:6].tolist() == [0.0] * 6
    assert out[7] > 0


@pytest.mark.parametrize("name", WITHIN_GROUPS)
@given(values=st.lists(st.sampled_from([0.0, 0.3, 0.5, 1.0, NAN]), max_size=9), data=st.data())
def test_an_advantage_does_not_depend_on_the_order_of_rows(name: str, values: list[float], data: st.DataObject) -> None:
    order = groups(*data.draw(st.permutations(range(len(values)))))
    index, given_rewards = torch.arange(len(values)) % 3, rewards(*values)
    straight = WITHIN_GROUPS[name](given_rewards, index)
    shuffled = WITHIN_GROUPS[name](given_rewards[order], index[order])
    assert torch.allclose(shuffled, straight[order], atol=1e-9)
    assert straight.isfinite().all() and not straight[given_rewards.isnan()].any()


def test_what_abstained_moves_no_running_mean() -> None:
    state = {"a": 1.0}
    assert baselines.ema(rewards(NAN), groups(0), keys=["a"], state=state).tolist() == [0.0]
    assert state == {"a": 1.0}


@pytest.mark.parametrize(("variant", "said"), [
    (normalised.maxrl, r"one is -0\.5"),  # a mean that turns the sign
    (normalised.bnpo, r"minimum and advantage_args\.maximum"),
])  # fmt: skip
def test_a_mean_below_0_is_refused(variant: Callable[..., Tensor], said: str) -> None:
    with pytest.raises(UserError, match=said):
        variant(rewards(-1, 0), groups(0, 0))


def test_a_weight_of_bnpo_has_a_limit_and_it_takes_another_range_of_rewards() -> None:
    # the mean of the middle group is far outside the narrow density around the others
    values = rewards(*[0.5] * 40, 0.001, 0.003)
    index = torch.tensor([*[i // 2 for i in range(40)], 20, 20])
    free, limited = normalised.bnpo(values, index), normalised.bnpo(values, index, max_weight=2.0)
    assert abs(float(free[-1])) > abs(float(limited[-1])) == pytest.approx(0.001 * 2)

    values, index = rewards(1, 0, 0, 1, 1, 0), groups(0, 0, 0, 1, 1, 1)
    moved = normalised.bnpo(values * 4 - 2, index, minimum=-2.0, maximum=2.0)
    assert torch.allclose(moved, normalised.bnpo(values, index))


def test_a_part_that_does_not_apply_is_left_out() -> None:
    parts = torch.tensor([[0, NAN], [1, NAN], [NAN, 3.0], [NAN, 4.0], [NAN, NAN]], dtype=torch.float64)
    given = {"reward_parts": parts, "part_weights": rewards(1, 1), "epsilon": 0.0}
    out = normalised.gdpo(rewards(0, 1, 3, 4, 5), groups(0, 0, 1, 1, 1), **given)
    # each group has one function, of z = ∓1/√2; the batch of four has std √(2/3), the fifth row was not scored
    half = math.sqrt(0.75)
    assert out.tolist() == pytest.approx([-half, half, -half, half, 0])
