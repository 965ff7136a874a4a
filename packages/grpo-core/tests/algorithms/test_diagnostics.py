import math
from fractions import Fraction
from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grpo_core.algorithms.diagnostics import clip_fractions, effective_sample_size, pass_at_k, ratio_statistics
from grpo_core.errors import UserError


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


# --- effective sample size


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ([1, 1, 1, 1], 4.0),
        ([5, 5], 2.0),
        ([1, 0, 0], 1.0),
        ([1, 2, 3], 36 / 14),  # 6² / (1 + 4 + 9)
    ],
)
def test_effective_sample_size(weights: list[float], expected: float) -> None:
    ess, share = effective_sample_size(tensor(*weights).log())
    assert (ess, share) == pytest.approx((expected, expected / len(weights)))


def test_effective_sample_size_of_weights_no_float_can_hold() -> None:
    assert effective_sample_size(tensor(900.0, 900.0, -900.0)) == pytest.approx((2.0, 2 / 3))


@pytest.mark.parametrize("log_weights", [tensor(), tensor(-math.inf, -math.inf)])
def test_without_weight_there_is_no_sample(log_weights: torch.Tensor) -> None:
    assert effective_sample_size(log_weights) == (0.0, 0.0)


@given(st.lists(st.floats(-700, 700), min_size=1, max_size=20))
def test_effective_sample_size_lies_between_1_and_n(log_weights: list[float]) -> None:
    ess, share = effective_sample_size(tensor(*log_weights))
    assert 1 - 1e-9 <= ess <= len(log_weights) * (1 + 1e-9)
    assert share == pytest.approx(ess / len(log_weights))


# --- clip fractions


def test_clipped_tokens_are_those_without_a_gradient() -> None:
    # ε = 0.2, ε_high = 0.28. Row 0 has A > 0: only ρ = 1.3 is clipped; row 1 has A < 0: only ρ = 0.7 is.
    ratios = torch.tensor([[0.7, 1.25, 1.3], [0.7, 0.85, 1.3]], dtype=torch.float64)
    old = torch.full((2, 3), -2.0, dtype=torch.float64)
    mask = torch.ones(2, 3, dtype=torch.bool)
    counts = clip_fractions(old + ratios.log(), old, tensor(1.0, -1.0), mask, epsilon=0.2, epsilon_high=0.28)
    assert counts == (1.0, 1.0, 2.0)
    # Without epsilon_high the upper bound is 1.2, and ρ = 1.25 is clipped too.
    assert clip_fractions(
        old + ratios.log(), old, tensor(1.0, -1.0), mask, epsilon=0.2, epsilon_high=None
    ) == (1.0, 2.0, 3.0)  # fmt: skip


def test_masked_tokens_and_advantage_0_are_not_clipped() -> None:
    # Ratios e^5, NaN, 0 and three of e^5; advantages are per token. Clipped: the first token and the one with A = 1.
    logp = torch.tensor([[0.0, math.nan, -math.inf], [0.0, 0.0, 0.0]], dtype=torch.float64)
    old = torch.full_like(logp, -5.0)
    mask = torch.tensor([[True, False, False], [True, True, True]])
    advantages = torch.tensor([[1.0, 1.0, -1.0], [0.0, 1.0, -1.0]], dtype=torch.float64)
    assert clip_fractions(logp, old, advantages, mask, epsilon=0.2, epsilon_high=None) == (0.0, 2.0, 2.0)


def test_on_policy_nothing_is_clipped() -> None:
    logp = torch.randn(3, 4)
    mask = torch.ones(3, 4, dtype=torch.bool)
    assert clip_fractions(logp, logp, torch.randn(3), mask, epsilon=1e-6, epsilon_high=1e-6) == (0.0, 0.0, 0.0)


# --- ratio statistics


def test_ratio_statistics() -> None:
    # Ratios 1/4, 1, 1, 3: mean 5.25 / 4, median 1, two of four outside [1/2, 2].
    log_ratio = tensor(0.25, 1.0, 1.0, 3.0, 9.0).log()[None]
    found = ratio_statistics(log_ratio, torch.tensor([[True, True, True, True, False]]))
    mean = 5.25 / 4
    assert found["mean"] == pytest.approx(mean)
    assert found["std"] == pytest.approx(math.sqrt((0.0625 + 1 + 1 + 9) / 4 - mean**2))
    assert found["median"] == pytest.approx(1.0)
    assert found["p90"] == pytest.approx(1 + 0.7 * 2)  # position 0.9 · 3 = 2.7, between 1 and 3
    assert (found["max"], found["outliers"], found["clamped"]) == pytest.approx((3.0, 0.5, 0.0))


def test_ratio_statistics_count_what_the_clamp_cuts() -> None:
    log_ratio, mask = tensor(0.0, 20.0, 30.0, -25.0)[None], torch.ones(1, 4, dtype=torch.bool)
    found = ratio_statistics(log_ratio, mask)
    assert (found["clamped"], found["max"]) == pytest.approx((0.5, math.exp(20)))
    assert ratio_statistics(log_ratio, mask, max_log_ratio=None)["max"] == pytest.approx(math.exp(30))


def test_on_policy_ratios_are_1_and_nan_in_the_padding_is_not_seen() -> None:
    found = ratio_statistics(tensor(0.0, 0.0, math.nan)[None], torch.tensor([[True, True, False]]))
    assert found == {
        "mean": 1.0, "std": 0.0, "median": 1.0, "p90": 1.0, "p99": 1.0, "max": 1.0, "outliers": 0.0, "clamped": 0.0,
    }  # fmt: skip


def test_without_tokens_there_are_no_statistics() -> None:
    assert ratio_statistics(torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.bool)) == {}


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=30))
def test_quantiles_are_torchs(log_ratios: list[float]) -> None:
    found = ratio_statistics(tensor(*log_ratios)[None], torch.ones(1, len(log_ratios), dtype=torch.bool))
    for name, q in (("median", 0.5), ("p90", 0.9), ("p99", 0.99)):
        assert found[name] == pytest.approx(float(tensor(*log_ratios).exp().quantile(q)), rel=1e-9)


# --- pass@k


@given(st.integers(1, 7), st.data())
def test_pass_at_k_is_the_share_of_draws_with_a_right_one(n: int, data: st.DataObject) -> None:
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    draws = list(combinations(range(n), k))
    share = Fraction(sum(any(i < c for i in draw) for draw in draws), len(draws))
    assert pass_at_k(n, c, k) == pytest.approx(float(share), abs=1e-14)


def test_pass_at_1_is_the_share_and_small_chances_keep_their_digits() -> None:
    assert pass_at_k(200, 50, 1) == pytest.approx(0.25)
    assert pass_at_k(10, 0, 5) == 0.0 and math.copysign(1, pass_at_k(10, 0, 5)) == 1
    assert pass_at_k(10**9, 1, 3) == pytest.approx(3e-9, rel=1e-12)


@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, -1, 1), (4, 2, 0), (4, 2, 5), (0, 0, 1)])
def test_pass_at_k_of_what_was_not_drawn_is_refused(n: int, c: int, k: int) -> None:
    with pytest.raises(UserError, match="needs 0 <= c <= n and 1 <= k <= n"):
        pass_at_k(n, c, k)
