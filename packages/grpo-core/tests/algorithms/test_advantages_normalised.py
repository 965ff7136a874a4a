import math
from collections.abc import Callable
from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grpo_core.algorithms.advantages.baselines import group_mean
from grpo_core.algorithms.advantages.normalised import (
    bnpo,
    gdpo,
    maxrl,
    pass_at_k,
    pass_at_k_best,
    scale_advantages,
)
from grpo_core.errors import UserError

NAN = math.nan


def rewards(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def groups(*indices: int) -> Tensor:
    return torch.tensor(indices)


def grpo(values: Tensor, index: Tensor, **options: float) -> Tensor:
    return scale_advantages(group_mean(values, index), values, index, "group", **options)  # type: ignore[arg-type] # ddof is an int


ALL: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "grpo": grpo,
    "maxrl": maxrl,
    "pass_at_k": lambda r, g: pass_at_k(r, g, k=1),
    "pass_at_k_best": pass_at_k_best,
    "bnpo": bnpo,
    "gdpo": lambda r, g: gdpo(r, g, reward_parts=torch.stack([r, r], dim=1), part_weights=rewards(1, 0.5)),
}


@pytest.mark.parametrize("name", ALL)
def test_equal_rewards_a_lone_survivor_and_an_abstention_have_exactly_0(name: str) -> None:
    values = rewards(0.1, 0.1, 0.1, NAN, NAN, 0.3, 0, 1)
    out = ALL[name](values, groups(0, 0, 0, 0, 1, 1, 2, 2))
    assert out[:6].tolist() == [0.0] * 6
    assert out[7] > 0


@pytest.mark.parametrize("name", ALL)
@given(values=st.lists(st.sampled_from([0.0, 0.5, 1.0, NAN]), min_size=1, max_size=9), data=st.data())
def test_an_advantage_does_not_depend_on_the_order_of_rows(name: str, values: list[float], data: st.DataObject) -> None:
    order = torch.tensor(data.draw(st.permutations(range(len(values)))))
    index, given_rewards = torch.arange(len(values)) % 3, rewards(*values)
    straight = ALL[name](given_rewards, index)
    shuffled = ALL[name](given_rewards[order], index[order])
    assert straight.isfinite().all()
    assert torch.allclose(shuffled, straight[order], atol=1e-9)


@given(
    values=st.lists(st.integers(-8, 8), min_size=2, max_size=8),
    factor=st.floats(0.5, 100),
    shift=st.floats(-1e3, 1e3),
)
def test_a_deviation_without_epsilon_removes_scale_and_shift(values: list[int], factor: float, shift: float) -> None:
    given_rewards, index = rewards(*values), torch.zeros(len(values), dtype=torch.long)
    out = grpo(given_rewards, index, epsilon=0.0)
    moved = grpo(given_rewards * factor + shift, index, epsilon=0.0)
    assert torch.allclose(out, moved, atol=1e-6) or len(set(values)) == 1
    assert out.isfinite().all()


def test_scaling_rewards_scales_dr_grpo_and_leaves_grpo_unchanged() -> None:
    index = groups(0, 0, 0, 1, 1, 1)
    values = rewards(0, 1, 1, 2, 3, 7) * 1e3  # far above the ε of the standard deviation
    assert torch.allclose(group_mean(10 * values, index), 10 * group_mean(values, index))
    assert torch.allclose(grpo(10 * values, index), grpo(values, index), rtol=1e-5)


def test_group_and_batch_divide_by_their_own_deviation() -> None:
    # group std of 0, 2 is √2; the batch 0, 2, 1, 1 has squares 1 + 1 over 3
    values, index = rewards(0, 2, 1, 1), groups(0, 0, 1, 1)
    centred = group_mean(values, index)
    assert scale_advantages(centred, values, index, "none").tolist() == [-1, 1, 0, 0]
    in_group = scale_advantages(centred, values, index, "group", epsilon=0.0)
    assert in_group.tolist() == pytest.approx([-1 / math.sqrt(2), 1 / math.sqrt(2), 0, 0])
    in_batch = scale_advantages(centred, values, index, "batch", epsilon=0.0)
    assert in_batch.tolist() == pytest.approx([-math.sqrt(1.5), math.sqrt(1.5), 0, 0])
    # ddof 0 divides the squares by 4
    population = scale_advantages(centred, values, index, "batch", epsilon=0.0, ddof=0)
    assert population.tolist() == pytest.approx([-math.sqrt(2), math.sqrt(2), 0, 0])


def test_an_advantage_against_a_running_mean_is_not_blown_up_in_a_group_of_one() -> None:
    out = scale_advantages(rewards(0.5), rewards(1), groups(0), "group", epsilon=1e-4)
    assert out.tolist() == pytest.approx([0.5 / 1.0001])


def test_maxrl_divides_by_the_success_rate() -> None:
    # mean 1/4: (1 − 1/4) / (1/4) = 3 and −1; mean 1/2: ±1
    out = maxrl(rewards(1, 0, 0, 0, 1, 0), groups(0, 0, 0, 0, 1, 1), epsilon=0.0)
    assert out.tolist() == pytest.approx([3, -1, -1, -1, 1, -1])


def test_maxrl_refuses_a_mean_that_turns_the_sign() -> None:
    with pytest.raises(UserError, match=r"one is -0\.5"):
        maxrl(rewards(-1, 0), groups(0, 0))


@given(solved=st.lists(st.booleans(), min_size=2, max_size=6), k=st.integers(1, 6))
def test_pass_at_k_is_the_mean_over_all_sets_of_k(solved: list[bool], k: int) -> None:
    out = pass_at_k(rewards(*map(float, solved)), torch.zeros(len(solved), dtype=torch.long), k=k)
    sets = list(combinations(range(len(solved)), k))
    if not sets:
        assert not out.any()
        return
    passes = {chosen: float(any(solved[i] for i in chosen)) for chosen in sets}
    mean = sum(passes.values()) / len(sets)
    deviation = math.sqrt(mean * (1 - mean))
    for i, advantage in enumerate(out.tolist()):
        with_i = [value for chosen, value in passes.items() if i in chosen]
        assert advantage == pytest.approx((sum(with_i) / len(with_i) - mean) / (deviation + 1e-6), abs=1e-6)


def test_pass_at_k_counts_what_reaches_solved_at() -> None:
    # a reward of 1.1 (with a bonus) is solved, one of 0.4 is not: as for 1 and 0
    index = groups(0, 0, 0)
    assert pass_at_k(rewards(1.1, 0.4, NAN), index, k=1).tolist() == pass_at_k(rewards(1, 0, NAN), index, k=1).tolist()


def test_pass_at_k_refuses_sets_of_none() -> None:
    with pytest.raises(UserError, match="k=0"):
        pass_at_k(rewards(1, 0), groups(0, 0), k=0)


def test_only_a_single_best_raises_the_maximum() -> None:
    # 5 − 3 for the best; two equal best ones raise nothing; alone there is no second
    out = pass_at_k_best(rewards(5, 3, 1, 2, 2, 0, 9, NAN), groups(0, 0, 0, 1, 1, 1, 2, 2))
    assert out.tolist() == [2, 0, 0, 0, 0, 0, 0, 0]
    # std of 5, 3, 1 is 2
    scaled = pass_at_k_best(rewards(5, 3, 1), groups(0, 0, 0), scale="group", epsilon=0.0)
    assert scaled.tolist() == [1, 0, 0]


def test_bnpo_divides_by_the_beta_density_of_the_means() -> None:
    # means 1/4 and 3/4: mean 1/2, variance 1/8 (ddof 1), concentration (1/4)/(1/8) − 1 = 1, a = b = 1/2,
    # α = β = 7/6. The density at both, by symmetry the same: (3/16)^(1/6) / B(7/6, 7/6)
    log_beta = 2 * math.lgamma(7 / 6) - math.lgamma(7 / 3)
    density = (3 / 16) ** (1 / 6) / math.exp(log_beta)
    out = bnpo(rewards(1, 0, 0, 0, 1, 1, 1, 0), groups(0, 0, 0, 0, 1, 1, 1, 1))
    expected = [0.75, -0.25, -0.25, -0.25, 0.25, 0.25, 0.25, -0.75]
    assert out.tolist() == pytest.approx([each / density for each in expected])


def test_bnpo_with_equal_means_is_the_group_mean() -> None:
    values, index = rewards(0, 1, 1, 0), groups(0, 0, 1, 1)
    assert bnpo(values, index).tolist() == group_mean(values, index).tolist()
    assert bnpo(rewards(0.1, 0.2, 0.3, 0.2, 0.2, 0.2), groups(0, 0, 0, 1, 1, 1)).tolist() == pytest.approx(
        [-0.1, 0, 0.1, 0, 0, 0]
    )


def test_bnpo_takes_another_range_of_rewards() -> None:
    values, index = rewards(1, 0, 0, 1, 1, 0), groups(0, 0, 0, 1, 1, 1)
    assert torch.allclose(bnpo(values * 4 - 2, index, minimum=-2.0, maximum=2.0), bnpo(values, index))
    with pytest.raises(UserError, match=r"minimum and advantage_args\.maximum"):
        bnpo(values * 4 - 2, index)
    with pytest.raises(UserError, match="minimum=1 must be below maximum=0"):
        bnpo(values, index, minimum=1.0, maximum=0.0)


def test_a_weight_of_bnpo_has_a_limit() -> None:
    # the mean of the middle group is far outside the narrow density around the others
    values = rewards(*[0.5] * 40, 0.001, 0.003)
    index = torch.tensor([*[i // 2 for i in range(40)], 20, 20])
    free, limited = bnpo(values, index), bnpo(values, index, max_weight=2.0)
    assert abs(float(limited[-1])) == pytest.approx(0.001 * 2)
    assert abs(float(free[-1])) > abs(float(limited[-1]))


def test_gdpo_gives_reward_functions_of_different_size_the_say_of_their_weights() -> None:
    parts = torch.tensor([[0, 1000.0], [1, 0.0], [0, 1000.0], [1, 1000.0]], dtype=torch.float64)
    out = gdpo(parts.sum(dim=1), groups(0, 0, 1, 1), reward_parts=parts, part_weights=rewards(2, 1), epsilon=0.0)
    # With a = 1/√2, group 0 has 2·(∓a) + (±a) = ∓a, group 1 (equal in the second function) ∓2a. Squares 10·a² = 5 over
    # 3 rows: std √(5/3), so a/std = √0.3
    assert out.tolist() == pytest.approx([-math.sqrt(0.3), math.sqrt(0.3), -2 * math.sqrt(0.3), 2 * math.sqrt(0.3)])


def test_a_part_that_does_not_apply_is_left_out() -> None:
    parts = torch.tensor([[0, NAN], [1, NAN], [NAN, 3.0], [NAN, 4.0], [NAN, NAN]], dtype=torch.float64)
    out = gdpo(
        rewards(0, 1, 3, 4, 5), groups(0, 0, 1, 1, 1), reward_parts=parts, part_weights=rewards(1, 1), epsilon=0.0
    )
    # each group has one function, of z = ∓1/√2; the batch of four has std √(2/3), the fifth row was not scored
    assert out.tolist() == pytest.approx([-math.sqrt(0.75), math.sqrt(0.75), -math.sqrt(0.75), math.sqrt(0.75), 0])


@given(st.lists(st.floats(-5, 5), min_size=4, max_size=4))
def test_gdpo_sums_to_0_over_every_group(values: list[float]) -> None:
    parts = torch.tensor([values, values[::-1]], dtype=torch.float64).T
    out = gdpo(rewards(*values), groups(0, 1, 0, 1), reward_parts=parts, part_weights=rewards(1, -0.5))
    assert float(out[[0, 2]].sum()) == pytest.approx(0, abs=1e-9)
    assert float(out[[1, 3]].sum()) == pytest.approx(0, abs=1e-9)
