import pytest
import torch
from torch import Tensor

from grpo_core.algorithms.entropy_probe import predicted_entropy_change, probe_coefficients

EPSILON = 1e-8


def policy(features: Tensor, theta: Tensor) -> Tensor:
    """Log-probs of six completions: a softmax whose logits share three parameters."""
    return (features @ theta).log_softmax(0)


def entropy(features: Tensor, theta: Tensor) -> float:
    logp = policy(features, theta)
    return float(-(logp.exp() * logp).sum())


def problem() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, parameters, advantages and Adam's second moments, which differ by two orders of magnitude."""
    generator = torch.Generator().manual_seed(0)
    features, theta, advantages = (
        torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((6, 3), (3,), (6,))
    )
    return features, theta, advantages, torch.tensor([0.04, 1.0, 4.0], dtype=torch.float64)


def test_the_prediction_is_the_change_of_entropy_to_first_order() -> None:
    # Every completion once, weighted by 3 times its probability: sums over the weights are exact expectations, times 3.
    features, theta, advantages, v = problem()
    theta.requires_grad_()
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


def test_reward_for_the_likeliest_lowers_the_entropy() -> None:
    features, theta, _, v = problem()
    theta.requires_grad_()
    logp = policy(features, theta)
    for advantages, sign in ((logp.detach(), -1), (-logp.detach(), 1)):
        gradients = [
            torch.autograd.grad((coefficients * logp).sum(), theta, retain_graph=True)[0]
            for coefficients in probe_coefficients(logp, advantages, logp.detach().exp())
        ]
        change = predicted_entropy_change(
            *([gradient] for gradient in gradients), [v], learning_rate=1e-3, epsilon=EPSILON, total_weight=1.0
        )
        assert change * sign > 0


def test_coefficients() -> None:
    # S̄ = (1·−1 + 3·−3) / 4 = −2.5
    of_entropy, of_advantage = probe_coefficients(
        torch.tensor([-1.0, -3.0], requires_grad=True), torch.tensor([2.0, -1.0]), torch.tensor([1.0, 3.0])
    )
    assert of_entropy.tolist() == pytest.approx([1.5, -1.5])
    assert of_advantage.tolist() == pytest.approx([2.0, -3.0])
    assert not of_entropy.requires_grad


def test_parameters_add_up_and_one_without_a_gradient_adds_nothing() -> None:
    one, two = torch.tensor([1.0, 2.0]), torch.tensor([[3.0]])
    # −0.1 · (1·2/2 + 2·1/2 + 3·3/1) / 2² with v = 4 and 1, ε = 0
    change = predicted_entropy_change(
        [one, two, None], [torch.tensor([2.0, 1.0]), two, one],
        [torch.full((2,), 4.0), torch.ones(1, 1), torch.zeros(2)],
        learning_rate=0.1, epsilon=0.0, total_weight=2.0,
    )  # fmt: skip
    assert change == pytest.approx(-0.1 * (1 + 1 + 9) / 4)
