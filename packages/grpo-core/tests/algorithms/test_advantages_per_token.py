import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grpo_core.algorithms.advantages.per_token import (
    gae,
    reinforce_pp,
    reinforce_pp_baseline,
    returns_to_go,
    token_rewards,
    value,
    whitened,
)

NAN = math.nan


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


def test_the_score_comes_at_the_last_token_that_counts_and_penalties_at_all() -> None:
    out = token_rewards(
        torch.tensor([1.0, 2.0, 3.0]),
        mask_of([1, 1, 0], [1, 0, 1], [0, 0, 0]),
        wide([0.1, 0.2, NAN], [0.1, NAN, 0.3], [NAN] * 3),
    )
    assert out.tolist() == [[-0.1, pytest.approx(0.8), 0], [-0.1, 0, pytest.approx(1.7)], [0, 0, 0]]
    assert out.dtype == torch.float64


def test_no_token_at_all_is_no_error() -> None:
    assert token_rewards(torch.ones(2), torch.ones(2, 0).bool()).shape == (2, 0)
    assert gae(torch.ones(2, 0), torch.ones(2, 0), torch.ones(2, 0).bool(), gamma=1, lam=1)[0].shape == (2, 0)
    assert whitened(wide([1.0]), mask_of([0])).tolist() == [[0.0]]


def test_gae_bootstraps_across_a_hole_from_the_next_token_that_counts() -> None:
    # δ of the last: 1 − 0.5 = 0.5. Of the first: 0 + 0.9·0.5 − 0.2 = 0.25; A = 0.25 + 0.9·0.8·0.5 = 0.61
    advantages, returns = gae(wide([0, NAN, 1]), wide([0.2, NAN, 0.5]), mask_of([1, 0, 1]), gamma=0.9, lam=0.8)
    assert advantages.tolist()[0] == pytest.approx([0.61, 0, 0.5])
    assert returns.tolist()[0] == pytest.approx([0.81, 0, 1.0])


def test_a_cut_sequence_bootstraps_from_its_last_value() -> None:
    # δ = 0 + 0.5·4 − 1 = 1
    advantages, _ = gae(
        wide([0, 0]), wide([1, NAN]), mask_of([1, 0]), gamma=0.5, lam=1.0, last_value=torch.tensor([4.0])
    )
    assert advantages.tolist() == [[1.0, 0.0]]


@given(sequences(), st.floats(0, 1))
def test_lambda_1_is_the_return_less_the_value_and_0_the_one_step_error(
    given_sequences: tuple[Tensor, Tensor, Tensor], gamma: float
) -> None:
    rewards, values, mask = given_sequences
    monte_carlo, returns = gae(rewards, values, mask, gamma=gamma, lam=1.0)
    one_step, _ = gae(rewards, values, mask, gamma=gamma, lam=0.0)
    for row in range(len(mask)):
        at = mask[row].nonzero().flatten().tolist()
        for position, t in enumerate(at):
            future = sum(gamma**age * float(rewards[row, u]) for age, u in enumerate(at[position:]))
            following = float(values[row, at[position + 1]]) if position + 1 < len(at) else 0.0
            assert float(monte_carlo[row, t]) == pytest.approx(future - float(values[row, t]), abs=1e-9)
            assert float(returns[row, t]) == pytest.approx(future, abs=1e-9)
            error = float(rewards[row, t]) + gamma * following - float(values[row, t])
            assert float(one_step[row, t]) == pytest.approx(error, abs=1e-9)
    assert not monte_carlo[~mask].any()
    assert not returns[~mask].any()


@given(sequences(), st.floats(0, 1), st.floats(0, 1))
def test_a_sequence_sees_no_other(given_sequences: tuple[Tensor, Tensor, Tensor], gamma: float, lam: float) -> None:
    rewards, values, mask = given_sequences
    together, returns = gae(rewards, values, mask, gamma=gamma, lam=lam)
    to_go = returns_to_go(rewards, mask, gamma=gamma)
    for row in range(len(mask)):
        one = slice(row, row + 1)
        alone, its_returns = gae(rewards[one], values[one], mask[one], gamma=gamma, lam=lam)
        assert torch.equal(alone, together[one])
        assert torch.equal(its_returns, returns[one])
        assert torch.equal(returns_to_go(rewards[one], mask[one], gamma=gamma), to_go[one])


@given(sequences())
def test_whitening_gives_mean_0_and_variance_1_over_the_tokens_that_count(
    given_sequences: tuple[Tensor, Tensor, Tensor],
) -> None:
    values, _, mask = given_sequences
    out = whitened(values, mask, epsilon=0.0)
    assert not out[~mask].any()
    chosen = values[mask]
    if len(chosen) < 2 or float(chosen.max() - chosen.min()) < 1e-6:
        return
    assert float(out[mask].mean()) == pytest.approx(0, abs=1e-7)
    assert float(out[mask].var()) == pytest.approx(1)


@given(st.floats(-1e3, 1e3), st.integers(1, 5))
def test_whitening_equal_values_gives_exactly_0(number: float, count: int) -> None:
    assert whitened(wide([number] * count), torch.ones(1, count).bool()).tolist() == [[0.0] * count]


def test_reinforce_pp_whitens_what_is_still_to_come() -> None:
    # returns to go: [1 − 0.3, 1 − 0.1] for the first (penalties 0.2, 0.1), [0] for the second
    mask = mask_of([1, 1], [1, 0])
    out = reinforce_pp(
        torch.tensor([1.0, 0.0]), torch.tensor([0, 1]), mask=mask, token_penalties=wide([0.2, 0.1], [0.0, NAN])
    )
    assert torch.allclose(out, whitened(wide([0.7, 0.9], [0.0, 0.0]), mask))


def test_the_baseline_form_takes_the_mean_of_the_group_off_first() -> None:
    mask = mask_of([1, 1], [1, 0], [1, 1], [1, 1])
    zero = torch.zeros(4, 2)
    out = reinforce_pp_baseline(
        torch.tensor([1.0, 0.0, 5.0, 5.0]), torch.tensor([0, 0, 1, 1]), mask=mask, token_penalties=zero
    )
    assert torch.allclose(out, whitened(wide([0.5, 0.5], [-0.5, 0], [0, 0], [0, 0]), mask))


PER_TOKEN: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "reinforce_pp": lambda r, g, m, p: reinforce_pp(r, g, mask=m, token_penalties=p),
    "reinforce_pp_baseline": lambda r, g, m, p: reinforce_pp_baseline(r, g, mask=m, token_penalties=p),
    "value": lambda r, g, m, p: value(r, g, values=torch.zeros(m.shape), mask=m, token_penalties=p),
}


@pytest.mark.parametrize("name", PER_TOKEN)
def test_a_completion_that_abstained_has_no_advantage_and_moves_no_other(name: str) -> None:
    rewards, groups = torch.tensor([1.0, 0.0, NAN]), torch.tensor([0, 0, 0])
    mask, penalties = torch.ones(3, 2).bool(), torch.zeros(3, 2)
    out = PER_TOKEN[name](rewards, groups, mask, penalties)
    assert not out[2].any()
    assert torch.equal(out[:2], PER_TOKEN[name](rewards[:2], groups[:2], mask[:2], penalties[:2]))
    assert out.isfinite().all()


@pytest.mark.parametrize("name", PER_TOKEN)
def test_equal_rewards_without_penalties_give_exactly_0(name: str) -> None:
    rewards, groups = torch.full((3,), 0.1), torch.tensor([0, 0, 0])
    if name == "value":  # a return is worth what it is, until the values say so too
        out = value(
            rewards,
            groups,
            values=torch.full((3, 2), 0.1),
            mask=torch.ones(3, 2).bool(),
            token_penalties=torch.zeros(3, 2),
        )
    else:
        out = PER_TOKEN[name](rewards, groups, torch.ones(3, 2).bool(), torch.zeros(3, 2))
    assert out.tolist() == [[0.0, 0.0]] * 3


def test_a_lone_survivor_is_not_whitened_into_an_advantage() -> None:
    out = reinforce_pp_baseline(
        torch.tensor([1.0, 0.0, 7.0, NAN]),
        torch.tensor([0, 0, 1, 1]),
        mask=mask_of([1, 1], [1, 0], [1, 1], [1, 1]),
        token_penalties=torch.zeros(4, 2),
    )
    assert out[0, 0] > 0
    assert not out[2:].any()


def test_the_value_baseline_is_gae_of_token_rewards() -> None:
    mask, values = mask_of([1, 1], [1, 0]), wide([0.5, 0.25], [0.125, NAN]).requires_grad_()
    rewards, penalties = torch.tensor([1.0, 0.0]), wide([0.1, 0.2], [0.3, NAN])
    index = torch.tensor([0, 1])
    raw = value(rewards, index, values=values, mask=mask, token_penalties=penalties, gamma=0.9, lam=0.5, whiten=False)
    # row 0: δ₁ = (1 − 0.2) − 0.25 = 0.55, δ₀ = −0.1 + 0.9·0.25 − 0.5 = −0.375, A₀ = −0.375 + 0.45·0.55 = −0.1275
    assert raw.tolist() == [pytest.approx([-0.1275, 0.55]), pytest.approx([-0.3 - 0.125, 0])]
    assert not raw.requires_grad
    white = value(rewards, index, values=values, mask=mask, token_penalties=penalties, gamma=0.9, lam=0.5)
    assert torch.allclose(white, whitened(raw, mask))
