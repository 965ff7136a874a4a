import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grpo_core.algorithms.kl import k1, k2, k3
from grpo_core.algorithms.losses import clip_fractions, dapo, dr_grpo, grpo, importance_ratio, ppo_clip, token_weights

MASK = torch.tensor([[True, True, True], [True, False, False]])


def tensor(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def test_the_three_denominators() -> None:
    # B = 2 rows, lengths 3 and 1, max_completion_length 10
    assert token_weights(MASK, "constant", max_completion_length=10).sum() == pytest.approx(4 / 20)
    assert token_weights(MASK, "token_mean", max_completion_length=10).sum() == pytest.approx(1)
    per_sequence = token_weights(MASK, "sequence_mean", max_completion_length=10)
    assert per_sequence[0].tolist() == pytest.approx([1 / 6] * 3)
    assert per_sequence[1].tolist() == pytest.approx([1 / 2, 0, 0])


def test_a_row_without_tokens_counts_in_b_and_makes_no_infinity() -> None:
    mask = torch.tensor([[True, True], [False, False]])
    for how in ("constant", "token_mean", "sequence_mean"):
        assert token_weights(mask, how, max_completion_length=2).isfinite().all()
    assert token_weights(mask, "sequence_mean", max_completion_length=2).sum() == pytest.approx(1 / 2)


def test_each_loss_carries_its_papers_aggregation() -> None:
    assert (dr_grpo.aggregation, grpo.aggregation, dapo.aggregation) == ("constant", "sequence_mean", "token_mean")


@pytest.mark.parametrize(
    ("log_ratio", "advantage", "expected"),
    [
        (0.0, 2.0, -2.0),  # ratio 1: −A
        (math.log(1.5), 1.0, -1.2),  # clipped above: −1.2·A
        (math.log(0.5), 1.0, -0.5),  # below the range with A > 0: the pessimistic −ρA
        (math.log(0.5), -1.0, 0.8),  # clipped below: −0.8·A
        (math.log(1.5), -1.0, 1.5),  # above the range with A < 0: the pessimistic −ρA
    ],
)
def test_ppo_clip_is_pessimistic(log_ratio: float, advantage: float, expected: float) -> None:
    loss = ppo_clip(tensor([log_ratio]), tensor([0.0]), torch.tensor([advantage]))
    assert float(loss) == pytest.approx(expected)


def test_dapo_clips_higher_above() -> None:
    assert float(dapo(tensor([math.log(2)]), tensor([0.0]), torch.tensor([1.0]))) == pytest.approx(-1.28)


def test_on_policy_the_ratio_is_one_and_nothing_is_clipped() -> None:
    logp = tensor([-1.0, -2.0, -0.5], [-3.0, -1.0, -1.0])
    assert importance_ratio(logp, logp).eq(1).all()
    counts = clip_fractions(logp, logp, torch.tensor([1.0, -1.0]), MASK, epsilon=0.2, epsilon_high=None)
    assert counts == (0.0, 0.0)


def test_an_absurd_log_ratio_stays_finite() -> None:
    loss = ppo_clip(tensor([500.0]), tensor([-500.0]), torch.tensor([-1.0]))
    assert loss.isfinite().all()


@given(st.floats(-5, 0), st.floats(-5, 0))
def test_k2_and_k3_are_at_least_zero_and_all_vanish_at_the_reference(a: float, b: float) -> None:
    x, y = tensor([a]), tensor([b])
    assert float(k2(x, y)) >= 0
    assert float(k3(x, y)) >= -1e-12
    assert [float(kl(x, x)) for kl in (k1, k2, k3)] == [0.0, 0.0, 0.0]
