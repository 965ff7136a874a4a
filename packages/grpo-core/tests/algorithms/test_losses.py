import math
from typing import Any

import pytest
import torch

from grpo_core.algorithms.aggregation import token_weights
from grpo_core.algorithms.losses import Objective, cispo, dppo, policy_loss, ppo_clip, value_loss
from grpo_core.algorithms.sequence_losses import gmpo, gspo, gspo_token, seq_ppo, vespo
from grpo_sdk.plugins import variants as registry

MASK = torch.tensor([[True, True, True], [True, False, False]])
EVERY_LOSS = registry.names("loss")


def tensor(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def row(
    objective: Objective, log_ratios: list[float], advantages: list[float], **options: Any
) -> tuple[list[float], list[float]]:
    """Values and gradients of one completion, whose log π_old is −1 at each token."""
    logp = tensor([ratio - 1 for ratio in log_ratios]).requires_grad_()
    given = tensor(advantages) if len(advantages) > 1 else tensor(advantages)[0]
    values = objective(logp, torch.full_like(logp, -1).detach(), given, torch.ones_like(logp).bool(), **options)
    assert values.shape == logp.shape
    (gradient,) = torch.autograd.grad(values.sum(), logp)
    return values.detach()[0].tolist(), gradient[0].tolist()


@pytest.mark.parametrize("name", EVERY_LOSS)
def test_a_loss_says_whether_it_is_0_without_advantage(name: str) -> None:
    variant, objective = registry.get("loss", name), registry.resolve("loss", name)
    assert variant.aggregation is not None
    weights = token_weights(MASK, variant.aggregation, max_completion_length=10)
    logp = tensor([-1.0, -2.0, -0.5], [-3.0, -0.1, -0.2]).requires_grad_()
    loss = policy_loss(objective, logp, logp.detach() - 0.1, torch.zeros(2, dtype=torch.float64), MASK, weights)
    (gradient,) = torch.autograd.grad(loss, logp)
    assert variant.zero_without_advantage == (not loss and not gradient.any())


# --- the clipped surrogate


@pytest.mark.parametrize(("objective", "log_ratio", "advantage", "options", "expected"), [
    # ρ = 10 with A = −1: PPO says 10, δ = 4 says 4 and stops the gradient; A > 0 is clipped at 1.2 as before.
    (ppo_clip, math.log(10), -1.0, {}, (10.0, 10.0)),
    (ppo_clip, math.log(10), -1.0, {"delta": 4.0}, (4.0, 0.0)),
    (ppo_clip, math.log(10), 1.0, {"delta": 4.0}, (-1.2, 0.0)),
    # At most −c·A = 3 where A = −1; below that nothing changes. Of both, the tighter one holds.
    (ppo_clip, math.log(2), -1.0, {"dual_clip": 3.0}, (2.0, 2.0)),
    (ppo_clip, math.log(10), -1.0, {"dual_clip": 3.0, "delta": 2.0}, (2.0, 0.0)),
    (ppo_clip, math.log(10), -1.0, {"dual_clip": 3.0, "delta": 4.0}, (3.0, 0.0)),
    # An extreme ratio is clamped unless told otherwise.
    (ppo_clip, 25.0, -1.0, {}, (math.exp(20), 0.0)),
    (ppo_clip, 25.0, -1.0, {"max_log_ratio": None}, (math.exp(25), math.exp(25))),
    # clip(0.1, 1 − 0.2, 5) = 0.8, and the gradient stays: −0.8·A = 1.6, times log π = log 0.1 − 1
    (cispo, math.log(0.1), -2.0, {"epsilon_low": 0.2}, (1.6 * (math.log(0.1) - 1), 1.6)),
    # KL of (0.368, 0.632) to (0.607, 0.393): 0.368·(−0.5) + 0.632·log(0.632/0.393) = −0.184 + 0.300 = 0.116
    (dppo, 0.5, 1.0, {"divergence": "kl", "epsilon": 0.11}, (0.0, 0.0)),
    (dppo, 0.5, 1.0, {"divergence": "kl", "epsilon": 0.12}, (math.exp(0.5) / 2, -math.exp(0.5))),
    # The weight 25 is truncated to 20: 20 times log π = log 25 − 1.
    (dppo, math.log(25), -1.0, {}, (20 * (math.log(25) - 1), 20.0)),
])  # fmt: skip
def test_options_that_no_golden_case_has(
    objective: Objective, log_ratio: float, advantage: float, options: dict[str, Any], expected: tuple[float, float]
) -> None:
    values, gradients = row(objective, [log_ratio], [advantage], **options)
    assert (*values, *gradients) == pytest.approx(expected)


# --- laws


@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize("name", EVERY_LOSS)
def test_padding_that_holds_nan_has_no_value_and_no_gradient(name: str, per_token: bool) -> None:
    mask = torch.cat((MASK, torch.zeros(1, 3, dtype=torch.bool)))  # the last row has no token
    weights = token_weights(mask, "sequence_mean", max_completion_length=10)
    results = []
    for dirt in (0.0, math.nan, -math.inf):
        logp, old, advantages, correction = (
            torch.where(mask, tensor(*rows, [0.0] * 3), dirt)
            for rows in (
                ([-1.0, -2.0, -0.5], [-0.3, 0.0, 0.0]),
                ([-1.1, -1.9, -0.6], [-0.4, 0.0, 0.0]),
                ([1.0, -0.5, 0.3], [-2.0, 0.0, 0.0]),
                ([0.5] * 3, [0.5] * 3),
            )
        )
        given = advantages if per_token else tensor([1.0, -2.0, 1.0])[0]
        logp.requires_grad_()
        loss = policy_loss(registry.resolve("loss", name), logp, old, given, mask, weights, correction=correction)
        results.append((loss.detach(), torch.autograd.grad(loss, logp)[0]))
    torch.testing.assert_close(results[1:], results[:1] * 2, rtol=0, atol=0)
    gradient = results[0][1]
    assert not gradient[~mask].any()
    assert gradient[mask].all() or name in ("dppo", "gspo", "gspo_token", "luspo")  # clipped there


@pytest.mark.parametrize("name", EVERY_LOSS)
def test_on_policy_every_loss_is_a_weighted_policy_gradient(name: str) -> None:
    # ρ = 1: the gradient is −A per token, whatever clips, gates or averages; a completion's ratio shares it out.
    _, gradients = row(registry.resolve("loss", name), [0.0] * 3, [1.5])
    # A sum over 3 tokens of a product of 3 ratios counts each token 3 times.
    assert gradients == pytest.approx([-4.5 if name == "seq_ppo" else -1.5] * 3)


# --- losses whose ratio belongs to a completion


def test_advantages_may_differ_within_a_completion() -> None:
    s = math.exp(0.1)
    values, gradients = row(gspo_token, [0.3, -0.1], [2.0, -1.0], epsilon=0.5, epsilon_high=0.5)
    assert values == gradients == pytest.approx([-2 * s, s])
    assert row(gmpo, [0.0, 0.0], [1.0, 3.0])[0] == pytest.approx([-2.0, -2.0]), "their mean"


def test_delta_and_dual_clip_bound_a_completion_and_vespo_forgets_one_that_is_far_off() -> None:
    # s = e: PPO's loss at A = −1 is e.
    assert row(gspo, [1.0, 1.0], [-1.0])[0] == pytest.approx([math.e] * 2)
    assert row(gspo, [1.0, 1.0], [-1.0], delta=2.0)[0] == pytest.approx([2.0] * 2)
    assert row(seq_ppo, [0.5, 0.5], [-1.0], dual_clip=1.5)[0] == pytest.approx([1.5] * 2)
    assert row(vespo, [30.0] * 3, [1.0])[1] == [0.0] * 3
    # w = e^−30 counts as 1e−8: φ = 1e−16·e^{3(1 − 1e−8)}
    assert row(vespo, [-15.0] * 2, [1.0])[1] == pytest.approx([-1e-16 * math.exp(3)] * 2, rel=1e-6, abs=0)


@pytest.mark.parametrize("objective", [gspo, gspo_token, seq_ppo, gmpo])
def test_a_mad_completion_is_clamped(objective: Objective) -> None:
    values, gradients = row(objective, [500.0, 500.0], [-1.0])
    assert values == pytest.approx([math.exp(20)] * 2)
    assert gradients == [0.0, 0.0]


# --- the value head's loss


def test_padding_of_values_has_no_loss_and_no_gradient() -> None:
    values = torch.tensor([[1.0, math.nan, math.inf]], requires_grad=True)
    other = torch.tensor([[0.0, -math.inf, math.nan]])
    for clip in (None, 0.2):
        loss = value_loss(values, other, other, torch.tensor([[True, False, False]]), clip=clip)
        assert loss[0, 1:].tolist() == [0.0, 0.0]
        (gradient,) = torch.autograd.grad(loss.sum(), values)
        assert gradient.tolist() == [[1.0, 0.0, 0.0]]
