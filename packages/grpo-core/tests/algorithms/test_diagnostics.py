import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grpo_core.algorithms.diagnostics import clip_fractions, effective_sample_size, ratio_statistics
from grpo_core.algorithms.entropy_probe import predicted_entropy_change, probe_coefficients
from grpo_core.algorithms.noise_scale import NoiseScale, gns_pair
from grpo_sdk.errors import UserError


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


# --- effective sample size


@given(st.lists(st.floats(-700, 700), min_size=1, max_size=20))
def test_effective_sample_size_lies_between_1_and_n(log_weights: list[float]) -> None:
    ess, share = effective_sample_size(tensor(*log_weights))
    assert 1 - 1e-9 <= ess <= len(log_weights) * (1 + 1e-9)
    assert share == pytest.approx(ess / len(log_weights))
    for without_weight in (tensor(), tensor(-math.inf, -math.inf)):
        assert effective_sample_size(without_weight) == (0.0, 0.0)


# --- clip fractions


def test_masked_tokens_and_advantage_0_are_not_clipped() -> None:
    # Ratios e^5, NaN, 0 and three of e^5; advantages are per token. Clipped: the first token and the one with A = 1.
    logp = torch.tensor([[0.0, math.nan, -math.inf], [0.0, 0.0, 0.0]], dtype=torch.float64)
    old = torch.full_like(logp, -5.0)
    mask = torch.tensor([[True, False, False], [True, True, True]])
    advantages = torch.tensor([[1.0, 1.0, -1.0], [0.0, 1.0, -1.0]], dtype=torch.float64)
    assert clip_fractions(logp, old, advantages, mask, epsilon=0.2, epsilon_high=None) == (0.0, 2.0, 2.0)


# --- ratio statistics


def test_ratio_statistics() -> None:
    # Ratios 1/4, 1, 1, 3: mean 5.25 / 4, median 1, two of four outside [1/2, 2].
    log_ratio = tensor(0.25, 1.0, 1.0, 3.0, math.nan).log()[None]
    found = ratio_statistics(log_ratio, torch.tensor([[True, True, True, True, False]]))
    mean = 5.25 / 4
    assert found["mean"] == pytest.approx(mean)
    assert found["std"] == pytest.approx(math.sqrt((0.0625 + 1 + 1 + 9) / 4 - mean**2))
    assert found["median"] == pytest.approx(1.0)
    assert found["p90"] == pytest.approx(1 + 0.7 * 2)  # position 0.9 · 3 = 2.7, between 1 and 3
    assert found["p99"] == pytest.approx(1 + 0.97 * 2)
    assert (found["max"], found["outliers"], found["clamped"]) == pytest.approx((3.0, 0.5, 0.0))

    # What the clamp cuts is counted.
    log_ratio, mask = tensor(0.0, 20.0, 30.0, -25.0)[None], torch.ones(1, 4, dtype=torch.bool)
    found = ratio_statistics(log_ratio, mask)
    assert (found["clamped"], found["max"]) == pytest.approx((0.5, math.exp(20)))
    assert ratio_statistics(log_ratio, mask, max_log_ratio=None)["max"] == pytest.approx(math.exp(30))
    assert ratio_statistics(log_ratio, ~mask) == {}, "without tokens there are none"


# --- the gradient's noise scale


def test_one_batch_size_says_nothing() -> None:
    for small, big in ((4, 4), (8, 4), (0, 4)):
        with pytest.raises(UserError, match="needs two batch sizes"):
            gns_pair(1.0, 1.0, b_small=small, b_big=big)


def test_there_is_no_ratio_before_both_means_are_above_0_and_failed_steps_are_left_out() -> None:
    scale = NoiseScale()
    assert math.isnan(scale.g2) and math.isnan(scale.trace) and math.isnan(scale.b_simple)
    assert math.isnan(scale.update(-1.0, 10.0)), "one step's |G|² may come out negative"
    before = scale.update(9.0, 10.0)
    assert before > 0
    assert scale.update(math.nan, 1.0) == scale.update(1.0, math.inf) == before
    resumed = NoiseScale()
    resumed.load_state(json.loads(json.dumps(scale.state())))
    assert resumed.update(1.0, 3.0) == scale.update(1.0, 3.0)


# --- the entropy probe


EPSILON = 1e-8


def policy(features: Tensor, theta: Tensor) -> Tensor:
    """Log-probs of six completions: a softmax whose logits share three parameters."""
    return (features @ theta).log_softmax(0)


def entropy(features: Tensor, theta: Tensor) -> float:
    logp = policy(features, theta)
    return float(-(logp.exp() * logp).sum())


def test_the_prediction_is_the_change_of_entropy_to_first_order() -> None:
    # Every completion once, weighted by 3 times its probability: sums over the weights are exact expectations, times 3.
    generator = torch.Generator().manual_seed(0)
    features, theta, advantages = (
        torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((6, 3), (3,), (6,))
    )
    theta.requires_grad_()
    v = torch.tensor([0.04, 1.0, 4.0], dtype=torch.float64)  # Adam's second moments, two orders of magnitude apart
    sequence_logp = policy(features, theta)
    weights = 3 * sequence_logp.detach().exp()
    gradients = [
        torch.autograd.grad((coefficients * sequence_logp).sum(), theta, retain_graph=True)[0]
        for coefficients in probe_coefficients(sequence_logp, advantages, weights)
    ]
    total = float(weights.sum())
    residuals = []
    for learning_rate in (1e-3, 5e-4):
        predicted = predicted_entropy_change(
            *([gradient] for gradient in gradients), [v],
            learning_rate=learning_rate, epsilon=EPSILON, total_weight=total,
        )  # fmt: skip
        # Adam without momentum climbs J = Σ p·A, whose gradient is Σ p·A·∇S = g_A / 3.
        moved = theta.detach() + learning_rate * (gradients[1] / total) / (v.sqrt() + EPSILON)
        measured = entropy(features, moved) - entropy(features, theta.detach())
        assert measured == pytest.approx(predicted, rel=1e-2)
        residuals.append(abs(measured - predicted))
    # What is left is of second order: half the step, a quarter of the error.
    assert residuals[1] == pytest.approx(residuals[0] / 4, rel=0.05)


def test_parameters_add_up_and_one_without_a_gradient_adds_nothing() -> None:
    one, two = torch.tensor([1.0, 2.0]), torch.tensor([[3.0]])
    # −0.1 · (1·2/2 + 2·1/2 + 3·3/1) / 2² with v = 4 and 1, ε = 0
    change = predicted_entropy_change(
        [one, two, None], [torch.tensor([2.0, 1.0]), two, one],
        [torch.full((2,), 4.0), torch.ones(1, 1), torch.zeros(2)],
        learning_rate=0.1, epsilon=0.0, total_weight=2.0,
    )  # fmt: skip
    assert change == pytest.approx(-0.1 * (1 + 1 + 9) / 4)
