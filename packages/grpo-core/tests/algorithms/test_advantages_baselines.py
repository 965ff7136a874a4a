import json
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grpo_core.algorithms.advantages.baselines import (
    adaptive,
    adaptive_shrink,
    batch_mean,
    ema,
    gpg,
    group_mean,
    group_median,
    leave_one_out,
    none,
    opo,
    remax,
    role,
)
from grpo_core.algorithms.advantages.normalised import scale_advantages
from grpo_core.errors import UserError

NAN = math.nan
ONE_GROUP = torch.zeros(3, dtype=torch.long)

reward_lists = st.lists(st.one_of(st.floats(-10, 10), st.just(NAN)), min_size=1, max_size=8)


def rewards(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def groups(*indices: int) -> Tensor:
    return torch.tensor(indices)


GROUP_BASELINES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "group_mean": group_mean,
    "leave_one_out": leave_one_out,
    "group_median": group_median,
    "adaptive": adaptive,
    "gpg": gpg,
    "opo": lambda r, g: opo(r, g, lengths=torch.arange(1, len(r) + 1)),
}


def test_group_mean_centres_each_group_by_itself() -> None:
    # means: (0 + 1)/2 = 0.5 and (2 + 4)/2 = 3
    assert group_mean(rewards(0, 1, 2, 4), groups(0, 0, 1, 1)).tolist() == [-0.5, 0.5, -1.0, 1.0]


def test_group_median_is_not_moved_by_an_outlier() -> None:
    # of (0, 1, 9) the median is 1; of (0, 1, 2, 9) 1.5
    assert group_median(rewards(0, 1, 9), ONE_GROUP).tolist() == [-1.0, 0.0, 8.0]
    assert group_median(rewards(9, 0, 2, 1, NAN), groups(0, 0, 0, 0, 0)).tolist() == [7.5, -1.5, 0.5, -0.5, 0.0]


def test_none_leaves_rewards_as_they_are() -> None:
    assert none(rewards(0.5, NAN, -1), ONE_GROUP).tolist() == [0.5, 0.0, -1.0]


def test_an_abstention_leaves_the_baseline_and_gets_no_advantage() -> None:
    # the mean of the two that were scored is 0.5
    assert group_mean(rewards(0, NAN, 1), ONE_GROUP).tolist() == [-0.5, 0.0, 0.5]


@pytest.mark.parametrize("name", GROUP_BASELINES)
def test_a_lone_survivor_and_equal_rewards_have_advantage_exactly_0(name: str) -> None:
    # the mean of three times 0.1 is not 0.1 in floating point
    out = GROUP_BASELINES[name](rewards(1, NAN, NAN, 0.1, 0.1, 0.1), groups(0, 0, 0, 1, 1, 1))
    assert out.tolist() == [0.0] * 6


@pytest.mark.parametrize("name", GROUP_BASELINES)
@given(values=reward_lists, data=st.data())
def test_an_advantage_does_not_depend_on_the_order_of_rows(name: str, values: list[float], data: st.DataObject) -> None:
    order = torch.tensor(data.draw(st.permutations(range(len(values)))))
    index, given_rewards = torch.arange(len(values)) % 3, rewards(*values)
    lengths = torch.arange(1, len(values) + 1)
    baseline = GROUP_BASELINES[name]
    if name == "opo":
        straight = opo(given_rewards, index, lengths=lengths)
        shuffled = opo(given_rewards[order], index[order], lengths=lengths[order])
    else:
        straight, shuffled = baseline(given_rewards, index), baseline(given_rewards[order], index[order])
    assert torch.allclose(shuffled, straight[order], atol=1e-9)
    assert not straight[given_rewards.isnan()].any()


@pytest.mark.parametrize("baseline", [group_mean, leave_one_out, batch_mean])
@given(values=reward_lists, shift=st.floats(-5, 5), factor=st.floats(-3, 3))
def test_a_shift_changes_nothing_and_a_factor_scales(
    baseline: Callable[[Tensor, Tensor], Tensor], values: list[float], shift: float, factor: float
) -> None:
    index = torch.zeros(len(values), dtype=torch.long)
    before = baseline(rewards(*values), index)
    assert torch.allclose(baseline(rewards(*values) + shift, index), before, atol=1e-9)
    assert torch.allclose(baseline(rewards(*values) * factor, index), before * factor, atol=1e-9)
    assert abs(float(before.sum())) < 1e-9


@given(values=st.lists(st.floats(-10, 10), min_size=2, max_size=8))
def test_leave_one_out_is_the_group_mean_times_g_over_g_minus_1(values: list[float]) -> None:
    index, size = torch.zeros(len(values), dtype=torch.long), len(values)
    out = leave_one_out(rewards(*values), index)
    assert torch.allclose(out, size / (size - 1) * group_mean(rewards(*values), index), atol=1e-9)
    others = [(sum(values) - value) / (size - 1) for value in values]
    assert out.tolist() == pytest.approx([v - o for v, o in zip(values, others, strict=True)], abs=1e-9)


@pytest.mark.parametrize("baseline", [group_mean, leave_one_out])
def test_a_group_of_one_keeps_its_raw_reward_on_request(baseline: Callable[..., Tensor]) -> None:
    given_rewards, index = rewards(3, NAN, 1, 2), groups(0, 0, 1, 1)
    expected = [3.0, 0.0, *baseline(rewards(1, 2), groups(0, 0)).tolist()]
    raw = baseline(given_rewards, index, singleton="raw")
    assert raw.tolist() == expected
    # verl divides it by 1 + ε
    scaled = scale_advantages(raw, given_rewards, index, "group", epsilon=0.5)
    assert float(scaled[0]) == pytest.approx(3 / 1.5)


def test_the_batch_mean_spans_prompts() -> None:
    assert batch_mean(rewards(0, 1, 2, NAN), groups(0, 0, 1, 1)).tolist() == [-1.0, 0.0, 1.0, 0.0]


def test_adaptive_takes_the_lower_median_above_the_threshold_and_the_mean_below() -> None:
    # std of 0, 0, 1, 1 is 0.577: lower median 0. Std of .1, .2, .3 is 0.1, not above it: mean 0.2
    out = adaptive(rewards(0, 0.1, 0, 0.2, 1, 0.3, 1), groups(0, 1, 0, 1, 0, 1, 0), threshold=0.1 + 1e-12)
    assert out.tolist() == pytest.approx([0, -0.1, 0, 0, 1, 0.1, 1])
    assert (
        adaptive(rewards(0, 0, 1), ONE_GROUP, threshold=10).tolist() == group_mean(rewards(0, 0, 1), ONE_GROUP).tolist()
    )


def test_ema_is_read_before_its_update_and_kept_per_key() -> None:
    state: dict[str, float] = {}
    index = groups(0, 0)
    first = ema(rewards(0, 1), index, keys=["a", "a"], state=state, alpha=0.1)
    assert first.tolist() == [-0.5, 0.5]  # the first batch initialises: b = 0.5
    assert state == {"a": 0.5}
    second = ema(rewards(1, 1), index, keys=["a", "b"], state=state, alpha=0.1)
    assert second.tolist() == [0.5, 0.0]
    assert state == {"a": pytest.approx(0.9 * 0.5 + 0.1), "b": 1.0}


def test_ema_after_its_update_lowers_its_own_advantage() -> None:
    # b = 0 + 0.5·(2 − 0) = 1 before it is read
    state: dict[str, float] = {}
    out = ema(rewards(2), groups(0), keys=["a"], state=state, alpha=0.5, init=0.0, order="after")
    assert out.tolist() == [1.0]


@given(means=st.lists(st.floats(-5, 5), min_size=1, max_size=6), alpha=st.floats(0.05, 1), init=st.floats(-5, 5))
def test_a_debiased_ema_weighs_what_was_seen_only(means: list[float], alpha: float, init: float) -> None:
    state: dict[str, float] = {}
    for mean in means:
        out = ema(rewards(mean), groups(0), keys=["a"], state=state, alpha=alpha, init=init, order="after", debias=True)
    weights = [(1 - alpha) ** age for age in range(len(means) - 1, -1, -1)]
    expected = sum(w * m for w, m in zip(weights, means, strict=True)) / sum(weights)
    assert float(out) == pytest.approx(means[-1] - expected, abs=1e-9)


def test_an_abstained_batch_moves_no_running_mean() -> None:
    state = {"a": 0.25}
    assert ema(rewards(NAN, NAN), groups(0, 0), keys=["a", "a"], state=state).tolist() == [0.0, 0.0]
    assert state == {"a": 0.25}


def test_shrinkage_mixes_the_group_and_the_running_mean() -> None:
    # n = 2, kappa = 2: half of the group's mean 1 and half of the running mean 0 → b = 0.5
    state = {"a": 0.0}
    out = adaptive_shrink(rewards(0, 2), groups(0, 0), keys=["a", "a"], state=state, kappa=2.0, alpha=0.5)
    assert out.tolist() == [-0.5, 1.5]
    assert state == {"a": 0.5}  # 0 + 0.5·(1 − 0), after it was read


@given(values=reward_lists)
def test_shrinkage_without_kappa_is_the_group_mean_and_with_much_of_it_the_running_mean(values: list[float]) -> None:
    index, keys = torch.arange(len(values)) % 2, ["a"] * len(values)
    given_rewards = rewards(*values)
    none = adaptive_shrink(given_rewards, index, keys=keys, state={"a": 1.0}, kappa=0.0)
    assert torch.allclose(none, group_mean(given_rewards, index), atol=1e-9)
    much = adaptive_shrink(given_rewards, index, keys=keys, state={"a": 1.0}, kappa=1e15)
    assert torch.allclose(much, ema(given_rewards, index, keys=keys, state={"a": 1.0}), atol=1e-9)


def test_roles_have_their_own_mean_from_0_on_read_before_its_update() -> None:
    state: dict[str, float] = {}
    out = role(rewards(1, 1, NAN, 1), groups(0, 1, 2, 3), roles=["g/0", "g/1", "g/0", "g/0"], state=state, alpha=0.9)
    # the second event of g/0 is compared with 0.9·0 + 0.1·1 = 0.1
    assert out.tolist() == pytest.approx([1, 1, 0, 0.9])
    assert state == {"g/0": pytest.approx(0.9 * 0.1 + 0.1), "g/1": pytest.approx(0.1)}


def test_a_role_read_after_its_update() -> None:
    out = role(rewards(1), groups(0), roles=["g/0"], state={}, alpha=0.9, order="after")
    assert out.tolist() == pytest.approx([0.9])


STATEFUL: dict[str, Callable[[Tensor, dict[str, float]], Tensor]] = {
    "ema": lambda r, state: ema(r, groups(0, 0), keys=["a", "b"], state=state),
    "ema debiased": lambda r, state: ema(r, groups(0, 0), keys=["a", "b"], state=state, debias=True),
    "adaptive_shrink": lambda r, state: adaptive_shrink(r, groups(0, 0), keys=["a", "a"], state=state),
    "role": lambda r, state: role(r, groups(0, 0), roles=["a", "b"], state=state),
}


@pytest.mark.parametrize("name", STATEFUL)
@given(batches=st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=2, max_size=5), data=st.data())
def test_a_state_that_went_through_json_continues_bit_identically(
    name: str, batches: list[tuple[float, float]], data: st.DataObject
) -> None:
    stop = data.draw(st.integers(1, len(batches) - 1))
    straight: dict[str, float] = {}
    resumed: dict[str, float] = {}
    for step, batch in enumerate(batches):
        if step == stop:
            resumed = json.loads(json.dumps(resumed))
        one, other = STATEFUL[name](rewards(*batch), straight), STATEFUL[name](rewards(*batch), resumed)
        assert one.tolist() == other.tolist()
    assert straight == resumed


def test_remax_compares_with_the_greedy_completion() -> None:
    out = remax(rewards(1, 0, NAN, 1), groups(0, 0, 1, 1), greedy_rewards=rewards(1, 1, 0, NAN))
    assert out.tolist() == [0.0, -1.0, 0.0, 0.0]


def test_opo_weighs_the_mean_by_length() -> None:
    # (1·1 + 3·0) / 4 = 0.25; the abstained one counts neither in rewards nor in lengths
    assert opo(rewards(1, 0, NAN), ONE_GROUP, lengths=torch.tensor([1, 3, 100])).tolist() == [0.75, -0.25, 0.0]


@given(values=reward_lists, length=st.integers(1, 50))
def test_opo_of_equal_lengths_is_the_group_mean(values: list[float], length: int) -> None:
    index = torch.arange(len(values)) % 2
    out = opo(rewards(*values), index, lengths=torch.full((len(values),), length))
    assert torch.allclose(out, group_mean(rewards(*values), index), atol=1e-9)


def test_gpg_makes_up_for_groups_without_gradient() -> None:
    # 4 of 6 scored completions are in a group that differs: alpha = 6/4; with f_norm 2: ±0.5 · 1.5 / 2
    given_rewards, index = rewards(0, 1, 1, 1, 0, 1), groups(0, 0, 1, 1, 2, 2)
    assert gpg(given_rewards, index, f_norm=2.0).tolist() == [-0.375, 0.375, 0.0, 0.0, -0.375, 0.375]
    # verl: 4 of 6 rewards are not 0
    assert gpg(given_rewards, index, alpha="nonzero").tolist() == [-0.75, 0.75, 0.0, 0.0, -0.75, 0.75]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: ema(rewards(1), groups(0), keys=["a"], state={}, alpha=0.0), "alpha=0"),
        (lambda: adaptive_shrink(rewards(1), groups(0), keys=["a"], state={}, kappa=-1.0), "kappa=-1"),
        (lambda: role(rewards(1), groups(0), roles=["a"], state={}, alpha=1.0), "alpha=1"),
        (lambda: gpg(rewards(1), groups(0), f_norm=0.0), "f_norm=0"),
    ],
)
def test_an_option_that_cannot_be_is_refused_with_its_range(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        call()


def test_nothing_gives_nothing() -> None:
    empty = torch.zeros(0, dtype=torch.long)
    for name in ("group_mean", "leave_one_out", "adaptive", "gpg"):
        assert GROUP_BASELINES[name](rewards(), empty).tolist() == []
