import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grpo_core.algorithms.advantages import baselines

NAN = math.nan


def rewards(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def groups(*indices: int) -> Tensor:
    return torch.tensor(indices)


GROUP_BASELINES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "group_mean": baselines.group_mean,
    "leave_one_out": baselines.leave_one_out,
    "group_median": baselines.group_median,
    "adaptive": baselines.adaptive,
    "gpg": baselines.gpg,
    "opo": lambda r, g: baselines.opo(r, g, lengths=torch.full((len(r),), 5)),
}
reward_lists = st.lists(st.one_of(st.floats(-10, 10), st.just(NAN)), max_size=8)


@pytest.mark.parametrize(("baseline", "given_rewards", "options", "expected"), [
    (baselines.none, (0.5, NAN, -1), {}, [0.5, 0.0, -1.0]),
    (baselines.group_mean, (0, NAN, 1), {}, [-0.5, 0.0, 0.5]),  # the mean of the two that were scored
    (baselines.group_mean, (3, NAN), {"singleton": "raw"}, [3.0, 0.0]),
    (baselines.leave_one_out, (3, NAN), {"singleton": "raw"}, [3.0, 0.0]),
    (baselines.group_median, (0, 1, 9), {}, [-1.0, 0.0, 8.0]),  # an outlier does not move it
    (baselines.group_median, (9, 0, 2, 1, NAN), {}, [7.5, -1.5, 0.5, -0.5, 0.0]),  # the middle two are 1 and 2
    (baselines.remax, (1, NAN, 1), {"greedy_rewards": rewards(0, 1, NAN)}, [1.0, 0.0, 0.0]),
    (baselines.opo, (1, 0, NAN), {"lengths": rewards(1, 3, 100)}, [0.75, -0.25, 0.0]),  # (1·1 + 3·0) / 4 = 0.25
    (baselines.gpg, (0, 1, NAN), {"f_norm": 2.0}, [-0.25, 0.25, 0.0]),
    # n = 2, kappa = 2: half of the group's mean 1 and half of the running mean 0 → b = 0.5
    (baselines.adaptive_shrink, (0, 2), {"keys": ["a"] * 2, "state": {"a": 0.0}, "kappa": 2.0}, [-0.5, 1.5]),
])  # fmt: skip
def test_what_no_golden_case_has(
    baseline: Callable[..., Tensor], given_rewards: tuple[float, ...], options: dict[str, Any], expected: list[float]
) -> None:
    index = torch.zeros(len(given_rewards), dtype=torch.long)
    assert baseline(rewards(*given_rewards), index, **options).tolist() == expected


@pytest.mark.parametrize("name", GROUP_BASELINES)
def test_a_lone_survivor_and_equal_rewards_have_advantage_exactly_0(name: str) -> None:
    # the mean of three times 0.1 is not 0.1 in floating point
    out = GROUP_BASELINES[name](rewards(1, NAN, NAN, 0.1, 0.1, 0.1), groups(0, 0, 0, 1, 1, 1))
    assert out.tolist() == [0.0] * 6


@pytest.mark.parametrize("name", GROUP_BASELINES)
@given(values=reward_lists, data=st.data())
def test_an_advantage_does_not_depend_on_the_order_of_rows(name: str, values: list[float], data: st.DataObject) -> None:
    order = torch.tensor(data.draw(st.permutations(range(len(values)))), dtype=torch.long)
    index, given_rewards = torch.arange(len(values)) % 3, rewards(*values)
    straight = GROUP_BASELINES[name](given_rewards, index)
    shuffled = GROUP_BASELINES[name](given_rewards[order], index[order])
    assert torch.allclose(shuffled, straight[order], atol=1e-9)
    assert not straight[given_rewards.isnan()].any()


@given(values=st.lists(st.floats(-10, 10), min_size=2, max_size=8))
def test_leave_one_out_is_the_group_mean_times_g_over_g_minus_1(values: list[float]) -> None:
    index, size = torch.zeros(len(values), dtype=torch.long), len(values)
    out = baselines.leave_one_out(rewards(*values), index)
    assert torch.allclose(out, size / (size - 1) * baselines.group_mean(rewards(*values), index), atol=1e-9)
    others = [(sum(values) - value) / (size - 1) for value in values]
    assert out.tolist() == pytest.approx([v - o for v, o in zip(values, others, strict=True)], abs=1e-9)


def test_ema_is_read_before_its_update_and_kept_per_key() -> None:
    state: dict[str, float] = {}
    index = groups(0, 0)
    first = baselines.ema(rewards(0, 1), index, keys=["a", "a"], state=state, alpha=0.1)
    assert first.tolist() == [-0.5, 0.5]  # the first batch initialises: b = 0.5
    assert state == {"a": 0.5}
    second = baselines.ema(rewards(1, 1), index, keys=["a", "b"], state=state, alpha=0.1)
    assert second.tolist() == [0.5, 0.0]
    assert state == {"a": pytest.approx(0.9 * 0.5 + 0.1), "b": 1.0}
    assert baselines.ema(rewards(NAN), groups(0), keys=["b"], state=state).tolist() == [0.0]
    assert state["b"] == 1.0, "what abstained moves no mean"
    # Read after it, b = 0 + 0.5·(2 − 0) = 1.
    after = baselines.ema(rewards(2), groups(0), keys=["a"], state={}, alpha=0.5, init=0.0, order="after")
    assert after.tolist() == [1.0]


@given(values=reward_lists)
def test_shrinkage_without_kappa_is_the_group_mean_and_with_much_of_it_the_running_mean(values: list[float]) -> None:
    index, keys, given_rewards = torch.arange(len(values)) % 2, ["a"] * len(values), rewards(*values)
    little, much = (
        baselines.adaptive_shrink(given_rewards, index, keys=keys, state={"a": 1.0}, kappa=kappa)
        for kappa in (0.0, 1e15)
    )
    assert torch.allclose(little, baselines.group_mean(given_rewards, index), atol=1e-9)
    assert torch.allclose(much, baselines.ema(given_rewards, index, keys=keys, state={"a": 1.0}), atol=1e-9)


def test_roles_have_their_own_mean_from_0_on_read_before_its_update() -> None:
    state: dict[str, float] = {}
    out = baselines.role(
        rewards(1, 1, NAN, 1), groups(0, 1, 2, 3), roles=["g/0", "g/1", "g/0", "g/0"], state=state, alpha=0.9
    )
    # the second event of g/0 is compared with 0.9·0 + 0.1·1 = 0.1
    assert out.tolist() == pytest.approx([1, 1, 0, 0.9])
    assert state == {"g/0": pytest.approx(0.9 * 0.1 + 0.1), "g/1": pytest.approx(0.1)}
    after = baselines.role(rewards(1), groups(0), roles=["g/0"], state={}, alpha=0.9, order="after")
    assert after.tolist() == pytest.approx([0.9])
