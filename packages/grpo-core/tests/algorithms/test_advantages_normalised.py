import math
from collections.abc import Callable
from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grpo_core.algorithms.advantages import normalised, per_token
from grpo_core.algorithms.advantages.baselines import group_mean
from grpo_sdk.errors import UserError

NAN = math.nan


def rewards(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def groups(*indices: int) -> Tensor:
    return torch.tensor(indices)


ALL: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "grpo": lambda r, g: normalised.scale_advantages(group_mean(r, g), r, g, "group"),
    "maxrl": normalised.maxrl,
    "pass_at_k": lambda r, g: normalised.pass_at_k(r, g, k=1),
    "pass_at_k_best": normalised.pass_at_k_best,
    "bnpo": normalised.bnpo,
    "gdpo": lambda r, g: normalised.gdpo(r, g, reward_parts=torch.stack([r, r], dim=1), part_weights=rewards(1, 0.5)),
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


def test_an_advantage_against_a_running_mean_is_not_blown_up_in_a_group_of_one() -> None:
    out = normalised.scale_advantages(rewards(0.5), rewards(1), groups(0), "group", epsilon=1e-4)
    assert out.tolist() == pytest.approx([0.5 / 1.0001])


@given(solved=st.lists(st.booleans(), min_size=2, max_size=6), k=st.integers(1, 6))
def test_pass_at_k_is_the_mean_over_all_sets_of_k(solved: list[bool], k: int) -> None:
    # A reward of 1.1 (with a bonus) is solved, one of 0.4 is not.
    given_rewards = rewards(*(1.1 if each else 0.4 for each in solved))
    out = normalised.pass_at_k(given_rewards, torch.zeros(len(solved), dtype=torch.long), k=k)
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


@pytest.mark.parametrize(("call", "said"), [
    (lambda: normalised.maxrl(rewards(-1, 0), groups(0, 0)), r"one is -0\.5"),  # a mean that turns the sign
    (lambda: normalised.bnpo(rewards(-1, 0), groups(0, 0)), r"minimum and advantage_args\.maximum"),
])  # fmt: skip
def test_what_cannot_be_is_refused(call: Callable[[], Tensor], said: str) -> None:
    with pytest.raises(UserError, match=said):
        call()


def test_only_a_single_best_raises_the_maximum() -> None:
    # 5 − 3 over the std of 5, 3, 1, which is 2; two equal best ones raise nothing; alone there is no second
    values, index = rewards(5, 3, 1, 2, 2, 0, 9, NAN), groups(0, 0, 0, 1, 1, 1, 2, 2)
    assert normalised.pass_at_k_best(values, index, scale="group", epsilon=0.0).tolist() == [1, 0, 0, 0, 0, 0, 0, 0]


def test_a_weight_of_bnpo_has_a_limit_and_it_takes_another_range_of_rewards() -> None:
    # the mean of the middle group is far outside the narrow density around the others
    values = rewards(*[0.5] * 40, 0.001, 0.003)
    index = torch.tensor([*[i // 2 for i in range(40)], 20, 20])
    free, limited = normalised.bnpo(values, index), normalised.bnpo(values, index, max_weight=2.0)
    assert abs(float(free[-1])) > abs(float(limited[-1])) == pytest.approx(0.001 * 2)

    values, index = rewards(1, 0, 0, 1, 1, 0), groups(0, 0, 0, 1, 1, 1)
    assert torch.allclose(
        normalised.bnpo(values * 4 - 2, index, minimum=-2.0, maximum=2.0), normalised.bnpo(values, index)
    )


def test_a_part_that_does_not_apply_is_left_out() -> None:
    parts = torch.tensor([[0, NAN], [1, NAN], [NAN, 3.0], [NAN, 4.0], [NAN, NAN]], dtype=torch.float64)
    weights = rewards(1, 1)
    out = normalised.gdpo(
        rewards(0, 1, 3, 4, 5), groups(0, 0, 1, 1, 1), reward_parts=parts, part_weights=weights, epsilon=0.0
    )
    # each group has one function, of z = ∓1/√2; the batch of four has std √(2/3), the fifth row was not scored
    half = math.sqrt(0.75)
    assert out.tolist() == pytest.approx([-half, half, -half, half, 0])


# --- advantages per token


def wide(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def mask_of(*rows: list[int]) -> Tensor:
    return torch.tensor(rows).bool()


@st.composite
def sequences(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor]:
    """Rewards, values and a mask with holes, [N, T]; what is masked holds NaN."""
    rows, tokens = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    numbers = st.lists(st.floats(-3, 3), min_size=rows * tokens, max_size=rows * tokens)
    bits = st.lists(st.booleans(), min_size=rows * tokens, max_size=rows * tokens)
    mask = torch.tensor(draw(bits)).view(rows, tokens)
    rewards, values = (torch.tensor(draw(numbers), dtype=torch.float64).view(rows, tokens) for _ in range(2))
    return rewards.where(mask, NAN), values.where(mask, NAN), mask


def test_no_token_at_all_is_no_error() -> None:
    nothing = torch.ones(2, 0)
    assert per_token.token_rewards(torch.ones(2), nothing.bool()).shape == (2, 0)
    assert per_token.gae(nothing, nothing, nothing.bool(), gamma=1, lam=1)[0].shape == (2, 0)
    assert per_token.whitened(wide([1.0]), mask_of([0])).tolist() == [[0.0]]
    assert per_token.token_rewards(torch.ones(1), mask_of([0, 0]), wide([NAN, NAN])).tolist() == [[0.0, 0.0]]


def test_a_cut_sequence_bootstraps_from_its_last_value() -> None:
    rewards, values, mask = wide([0, 0]), wide([1, NAN]), mask_of([1, 0])
    advantages, _ = per_token.gae(rewards, values, mask, gamma=0.5, lam=1.0, last_value=torch.tensor([4.0]))
    assert advantages.tolist() == [[1.0, 0.0]]  # δ = 0 + 0.5·4 − 1


@given(sequences(), st.floats(0, 1))
def test_lambda_1_is_the_return_and_0_the_one_step_error(
    given_sequences: tuple[Tensor, Tensor, Tensor], gamma: float
) -> None:
    rewards, values, mask = given_sequences
    monte_carlo, returns = per_token.gae(rewards, values, mask, gamma=gamma, lam=1.0)
    one_step, _ = per_token.gae(rewards, values, mask, gamma=gamma, lam=0.0)
    assert not monte_carlo[~mask].any() and not returns[~mask].any()
    for row, counts in enumerate(mask):
        reward, value = rewards[row][counts].tolist(), [*values[row][counts].tolist(), 0.0]
        to_go = [sum(gamma**age * each for age, each in enumerate(reward[t:])) for t in range(len(reward))]
        errors = [reward[t] + gamma * value[t + 1] - value[t] for t in range(len(reward))]
        assert returns[row][counts].tolist() == pytest.approx(to_go, abs=1e-9)
        assert monte_carlo[row][counts].tolist() == pytest.approx(
            [each - of for each, of in zip(to_go, value[:-1], strict=True)], abs=1e-9
        )
        assert one_step[row][counts].tolist() == pytest.approx(errors, abs=1e-9)


@given(sequences())
def test_whitening_gives_mean_0_and_variance_1_over_what_counts(given_sequences: tuple[Tensor, Tensor, Tensor]) -> None:
    values, _, mask = given_sequences
    equal = torch.full_like(values, float(values.nansum()))
    assert not per_token.whitened(equal, mask).any(), "equal values give exactly 0"
    out = per_token.whitened(values, mask, epsilon=0.0)
    assert not out[~mask].any()
    chosen = values[mask]
    if len(chosen) < 2 or float(chosen.max() - chosen.min()) < 1e-6:
        return
    assert float(out[mask].mean()) == pytest.approx(0, abs=1e-7)
    assert float(out[mask].var()) == pytest.approx(1)


PER_TOKEN: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "reinforce_pp": lambda r, g, m, p: per_token.reinforce_pp(r, g, mask=m, token_penalties=p),
    "reinforce_pp_baseline": lambda r, g, m, p: per_token.reinforce_pp_baseline(r, g, mask=m, token_penalties=p),
    "value": lambda r, g, m, p: per_token.value(r, g, values=torch.zeros(m.shape), mask=m, token_penalties=p),
}


@pytest.mark.parametrize("name", PER_TOKEN)
def test_a_completion_that_abstained_has_no_advantage_and_moves_no_other(name: str) -> None:
    rewards, groups = torch.tensor([1.0, 0.0, NAN]), torch.tensor([0, 0, 0])
    mask, penalties = torch.ones(3, 2).bool(), torch.zeros(3, 2)
    out = PER_TOKEN[name](rewards, groups, mask, penalties)
    assert not out[2].any()
    assert torch.equal(out[:2], PER_TOKEN[name](rewards[:2], groups[:2], mask[:2], penalties[:2]))


@pytest.mark.parametrize("objective", [per_token.reinforce_pp, per_token.reinforce_pp_baseline])
def test_equal_rewards_and_a_lone_survivor_give_exactly_0(objective: Callable[..., Tensor]) -> None:
    def advantages(rewards: list[float], groups: list[int]) -> Tensor:
        mask = torch.ones(len(rewards), 2).bool()
        without = {"mask": mask, "token_penalties": torch.zeros(mask.shape)}
        return objective(torch.tensor(rewards), torch.tensor(groups), **without)

    assert not advantages([0.1] * 3, [0] * 3).any()
    if objective is per_token.reinforce_pp_baseline:  # which whitening would give an advantage
        assert advantages([1.0, 0.0, 7.0, NAN], [0, 0, 1, 1]).any(dim=1).tolist() == [True, True, False, False]


def test_the_value_baseline_is_gae_of_token_rewards() -> None:
    mask, values = mask_of([1, 1], [1, 0]), wide([0.5, 0.25], [0.125, NAN]).requires_grad_()
    batch = {"values": values, "mask": mask, "token_penalties": wide([0.1, 0.2], [0.3, NAN]), "gamma": 0.9, "lam": 0.5}
    raw, white = (
        per_token.value(torch.tensor([1.0, 0.0]), torch.tensor([0, 1]), **batch, whiten=each) for each in (False, True)
    )
    # row 0: δ₁ = (1 − 0.2) − 0.25 = 0.55, δ₀ = −0.1 + 0.9·0.25 − 0.5 = −0.375, A₀ = −0.375 + 0.45·0.55 = −0.1275
    assert raw.tolist() == [pytest.approx([-0.1275, 0.55]), pytest.approx([-0.3 - 0.125, 0])]
    assert not raw.requires_grad
    assert torch.allclose(white, per_token.whitened(raw, mask))
