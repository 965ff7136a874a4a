import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grpo_core.algorithms.advantages import per_token

NAN = math.nan


def wide(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def mask_of(*rows: list[int]) -> Tensor:
    return torch.tensor(rows).bool()


@st.composite
def masked(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Values and a mask with holes, [N, T]; what is masked holds NaN."""
    rows, tokens = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    numbers = draw(st.lists(st.floats(-3, 3), min_size=rows * tokens, max_size=rows * tokens))
    bits = draw(st.lists(st.booleans(), min_size=rows * tokens, max_size=rows * tokens))
    mask = torch.tensor(bits).view(rows, tokens)
    return torch.tensor(numbers, dtype=torch.float64).view(rows, tokens).where(mask, NAN), mask


def test_no_token_at_all_is_no_error() -> None:
    nothing = torch.ones(2, 0)
    assert per_token.token_rewards(torch.ones(2), nothing.bool()).shape == (2, 0)
    assert per_token.gae(nothing, nothing, nothing.bool(), gamma=1, lam=1)[0].shape == (2, 0)
    assert per_token.whitened(wide([1.0]), mask_of([0])).tolist() == [[0.0]]
    assert per_token.token_rewards(torch.ones(1), mask_of([0, 0]), wide([NAN, NAN])).tolist() == [[0.0, 0.0]]


def test_a_cut_sequence_bootstraps_from_its_last_value() -> None:
    rewards, values, mask = wide([0, 0]), wide([1, NAN]), mask_of([1, 0])
    advantages, returns = per_token.gae(rewards, values, mask, gamma=0.5, lam=1.0, last_value=torch.tensor([4.0]))
    assert (advantages.tolist(), returns.tolist()) == ([[1.0, 0.0]], [[2.0, 0.0]])  # δ = 0 + 0.5·4 − 1


@given(masked())
def test_whitening_gives_mean_0_and_variance_1_over_what_counts(given_values: tuple[Tensor, Tensor]) -> None:
    values, mask = given_values
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


def test_a_lone_survivor_gets_no_advantage_from_whitening() -> None:
    rewards, groups, mask = torch.tensor([1.0, 0.0, 7.0, NAN]), torch.tensor([0, 0, 1, 1]), torch.ones(4, 2).bool()
    out = per_token.reinforce_pp_baseline(rewards, groups, mask=mask, token_penalties=torch.zeros(4, 2))
    assert out.any(dim=1).tolist() == [True, True, False, False]


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
