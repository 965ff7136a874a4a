import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_core.algorithms.advantages.baselines import group_mean, leave_one_out
from grpo_core.algorithms.advantages.normalised import scale_advantages
from grpo_core.algorithms.aggregation import token_weights
from grpo_core.algorithms.diagnostics import clip_fractions
from grpo_core.algorithms.losses import (
    Objective,
    cispo,
    dppo,
    dro,
    importance_ratio,
    policy_loss,
    ppo_clip,
    reinforce,
    sapo,
)
from grpo_core.errors import UserError
from grpo_core.plugins import variants as registry

MASK = torch.tensor([[True, True, True], [True, False, False]])
EVERY_LOSS = registry.names("loss")


def tensor(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def one_token(objective: Objective, log_ratio: float, advantage: float, **options: object) -> tuple[float, float]:
    """Value and gradient of an objective at one token with log π_old = −1."""
    logp = tensor([log_ratio - 1]).requires_grad_()
    arguments = (logp, tensor([-1.0]), torch.tensor([advantage], dtype=torch.float64), torch.ones(1, 1).bool())
    value = objective(*arguments, **options)
    (gradient,) = torch.autograd.grad(value.sum(), logp)
    return float(value.detach()), float(gradient)


def loss_of(name: str, logp: torch.Tensor, advantages: torch.Tensor, **options: object) -> torch.Tensor:
    """Loss at `MASK` with the variant's own aggregation and B·L = 2 · 10, off-policy by 0.1."""
    how = registry.get("loss", name).aggregation
    assert how is not None
    weights = token_weights(MASK, how, max_completion_length=10)
    return policy_loss(registry.resolve("loss", name), logp, logp.detach() - 0.1, advantages, MASK, weights, **options)


@pytest.mark.parametrize("name", EVERY_LOSS)
def test_a_loss_says_whether_it_is_0_without_advantage(name: str) -> None:
    logp = tensor([-1.0, -2.0, -0.5], [-3.0, -0.1, -0.2]).requires_grad_()
    loss = loss_of(name, logp, torch.zeros(2, dtype=torch.float64))
    (gradient,) = torch.autograd.grad(loss, logp)
    assert registry.get("loss", name).zero_without_advantage == (not loss and not gradient.any())


# --- the clipped surrogate


@pytest.mark.parametrize(
    ("log_ratio", "advantage", "value", "gradient"),
    [
        (0.0, 2.0, -2.0, -2.0),  # ratio 1: −A, and ∇ρ = ρ
        (math.log(1.5), 1.0, -1.2, 0.0),  # clipped above: −1.2·A
        (math.log(0.5), 1.0, -0.5, -0.5),  # below the range with A > 0: the pessimistic −ρA
        (math.log(0.5), -1.0, 0.8, 0.0),  # clipped below: −0.8·A
        (math.log(1.5), -1.0, 1.5, 1.5),  # above the range with A < 0: the pessimistic −ρA
    ],
)
def test_the_surrogate_is_pessimistic(log_ratio: float, advantage: float, value: float, gradient: float) -> None:
    assert one_token(ppo_clip, log_ratio, advantage) == pytest.approx((value, gradient))


def test_exactly_on_the_bound_the_gradient_is_whole() -> None:
    assert one_token(ppo_clip, 0.0, 1.0, epsilon=0.0) == (-1.0, -1.0)


def test_dapo_clips_higher_above() -> None:
    assert one_token(registry.resolve("loss", "dapo"), math.log(2), 1.0)[0] == pytest.approx(-1.28)


def test_delta_bounds_a_negative_advantage() -> None:
    # ρ = 10 with A = −1: PPO says 10, δ = 4 says 4 and stops the gradient; A > 0 is clipped at 1.2 as before.
    assert one_token(ppo_clip, math.log(10), -1.0) == pytest.approx((10.0, 10.0))
    assert one_token(ppo_clip, math.log(10), -1.0, delta=4.0) == pytest.approx((4.0, 0.0))
    assert one_token(ppo_clip, math.log(10), 1.0, delta=4.0)[0] == pytest.approx(-1.2)


def test_dual_clip_bounds_a_negative_advantage() -> None:
    # At most −c·A = 3 where A = −1; below that nothing changes, nor for A > 0.
    assert one_token(ppo_clip, math.log(10), -1.0, dual_clip=3.0) == pytest.approx((3.0, 0.0))
    assert one_token(ppo_clip, math.log(2), -1.0, dual_clip=3.0) == pytest.approx((2.0, 2.0))
    assert one_token(ppo_clip, math.log(10), 1.0, dual_clip=3.0)[0] == pytest.approx(-1.2)


def test_of_delta_and_dual_clip_the_tighter_bound_holds() -> None:
    assert one_token(ppo_clip, math.log(10), -1.0, dual_clip=3.0, delta=2.0)[0] == pytest.approx(2.0)
    assert one_token(ppo_clip, math.log(10), -1.0, dual_clip=3.0, delta=4.0)[0] == pytest.approx(3.0)


def test_a_dual_clip_that_stops_ordinary_tokens_is_refused() -> None:
    with pytest.raises(UserError, match=r"dual_clip=0\.9: must be above 1"):
        ppo_clip(tensor([0.0]), tensor([0.0]), torch.tensor([1.0]), torch.ones(1, 1).bool(), dual_clip=0.9)


def test_an_extreme_ratio_is_clamped_unless_told_otherwise() -> None:
    assert one_token(ppo_clip, 25.0, -1.0) == pytest.approx((math.exp(20), 0.0))
    assert one_token(ppo_clip, 25.0, -1.0, max_log_ratio=None) == pytest.approx((math.exp(25), math.exp(25)))
    assert ppo_clip(tensor([500.0]), tensor([-500.0]), torch.tensor([-1.0]), torch.ones(1, 1).bool()).isfinite().all()


# --- the others


def test_reinforce_has_no_ratio() -> None:
    # −A·log π at log π = −1 + 0.3
    assert one_token(reinforce, 0.3, 2.0) == pytest.approx((1.4, -2.0))


def test_cispo_truncates_the_weight_and_keeps_the_gradient() -> None:
    # −sg(min(ρ, 5))·A·log π: at ρ = 10, log π = log 10 − 1
    assert one_token(cispo, math.log(10), 1.0) == pytest.approx((-5 * (math.log(10) - 1), -5.0))
    # No lower bound: ρ = 0.1 weighs 0.1.
    assert one_token(cispo, math.log(0.1), -2.0)[1] == pytest.approx(0.2)


def test_cispo_has_a_lower_bound_where_one_is_given() -> None:
    # clip(0.1, 1 − 0.2, 5) = 0.8, and the gradient stays: −0.8·A = 1.6
    assert one_token(cispo, math.log(0.1), -2.0, epsilon_low=0.2)[1] == pytest.approx(1.6)
    assert one_token(cispo, math.log(10), 1.0, epsilon_low=0.2)[1] == pytest.approx(-5.0)
    with pytest.raises(UserError, match=r"epsilon_low=-9, epsilon_high=5: .*must be below"):
        one_token(cispo, 0.0, 1.0, epsilon_low=-9.0)


def test_sapo_is_the_policy_gradient_at_ratio_one() -> None:
    # −4/τ·σ(0)·A = −2A/τ; slope −4·σ'(0)·A·ρ = −A, for either τ
    assert one_token(sapo, 0.0, 3.0) == pytest.approx((-6.0, -3.0))
    assert one_token(sapo, 0.0, -3.0) == pytest.approx((6 / 1.05, 3.0), rel=1e-12)  # τ₋ is not rounded to float32
    # Far off the gate closes: ρ = 20, slope 4·σ(19)·σ(−19)·20 = 80·e^−19 = 4.5e−7
    assert abs(one_token(sapo, math.log(20), 1.0)[1]) < 1e-6


def test_dro_pulls_back_to_the_policy_that_sampled() -> None:
    # −(A·log π − β/2·d²) with log π = −0.5, d = 0.5, β = 0.8: 0.5·A + 0.1; gradient −A + β·d
    assert one_token(dro, 0.5, 1.0, beta=0.8) == pytest.approx((0.6, -0.6))


@pytest.mark.parametrize(
    ("log_ratio", "advantage", "gradient"),
    [
        # π_old = e^−1 = 0.368; log ρ = 0.3 gives π = 0.497, further by 0.129; log ρ = 0.5 gives 0.607, by 0.239 > 0.15
        (0.3, 1.0, -math.exp(0.3)),
        (0.5, 1.0, 0.0),
        (0.5, -1.0, math.exp(0.5)),  # moves back: kept however far
        (-0.7, -1.0, 0.0),  # 0.183, by 0.185
        (-0.7, 1.0, -math.exp(-0.7)),
    ],
)
def test_dppo_looks_at_the_probability(log_ratio: float, advantage: float, gradient: float) -> None:
    value, slope = one_token(dppo, log_ratio, advantage)
    assert slope == pytest.approx(gradient)
    assert value == pytest.approx(gradient * (log_ratio - 1))


def test_dppo_with_the_binary_kl() -> None:
    # KL of (0.368, 0.632) to (0.607, 0.393): 0.368·(−0.5) + 0.632·log(0.632/0.393) = −0.184 + 0.300 = 0.116
    assert one_token(dppo, 0.5, 1.0, divergence="kl", epsilon=0.11)[1] == 0.0
    assert one_token(dppo, 0.5, 1.0, divergence="kl", epsilon=0.12)[1] == pytest.approx(-math.exp(0.5))


def test_dppo_truncates_the_weight() -> None:
    # π 25 times π_old, but both are tiny: no divergence to speak of.
    logp, old = tensor([math.log(25) - 10]).requires_grad_(), tensor([-10.0])
    value = dppo(logp, old, torch.tensor([1.0]), torch.ones(1, 1).bool())
    assert float(torch.autograd.grad(value.sum(), logp)[0]) == pytest.approx(-20.0)


# --- laws


@pytest.mark.parametrize("name", EVERY_LOSS)
def test_every_loss_says_what_it_is(name: str) -> None:
    variant = registry.get("loss", name)
    assert variant.formula and variant.source and variant.aggregation
    assert registry.validate_arguments("loss", name, {}, "trainer.loss_args") is not None


@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize("name", EVERY_LOSS)
def test_padding_that_holds_nan_has_no_value_and_no_gradient(name: str, per_token: bool) -> None:
    objective = registry.resolve("loss", name)
    weights = token_weights(MASK, "sequence_mean", max_completion_length=10)
    clean = [tensor([-1.0, -2.0, -0.5], [-0.3, 0.0, 0.0]), tensor([-1.1, -1.9, -0.6], [-0.4, 0.0, 0.0])]
    advantages = tensor([1.0, -0.5, 0.3], [-2.0, 0.0, 0.0]) if per_token else tensor([1.0, -2.0])[0]
    dirty = [clean[0].clone(), clean[1].clone()]
    dirty[0][1, 1:] = torch.tensor([math.nan, -math.inf])
    dirty[1][1, 1:] = torch.tensor([math.inf, math.nan])
    unsafe = advantages.clone()
    if per_token:
        unsafe[1, 1:] = math.nan
    correction = torch.full_like(clean[0], 0.5)
    correction[1, 1:] = math.nan
    results = []
    for (logp, old), given_advantages in ((clean, advantages), (dirty, unsafe)):
        logp = logp.requires_grad_()
        loss = policy_loss(objective, logp, old, given_advantages, MASK, weights, correction=correction)
        results.append((loss.detach(), torch.autograd.grad(loss, logp)[0]))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    assert results[1][1][1, 1:].tolist() == [0.0, 0.0]
    assert (results[1][1][MASK] != 0).all() or name in ("dppo", "gspo", "gspo_token", "luspo")  # clipped there


@pytest.mark.parametrize("name", EVERY_LOSS)
def test_a_batch_without_a_token_has_loss_zero(name: str) -> None:
    mask = torch.zeros(2, 3, dtype=torch.bool)
    weights = token_weights(mask, "sequence_mean", max_completion_length=10)
    logp = torch.full((2, 3), math.nan, dtype=torch.float64, requires_grad=True)
    loss = policy_loss(registry.resolve("loss", name), logp, logp.detach(), torch.ones(2), mask, weights)
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert logp.grad is not None and (logp.grad == 0).all()


@pytest.mark.parametrize("name", EVERY_LOSS)
def test_on_policy_every_loss_is_a_weighted_policy_gradient(name: str) -> None:
    # ρ = 1: the gradient is −A per token, whatever clips, gates or averages; a completion's ratio shares it out.
    objective = registry.resolve("loss", name)
    logp = tensor([-1.0, -2.0, -0.5]).requires_grad_()
    advantages = torch.tensor([1.5], dtype=torch.float64)
    value = objective(logp, logp.detach(), advantages, torch.ones(1, 3).bool())
    (gradient,) = torch.autograd.grad(value.sum(), logp)
    # A sum over 3 tokens of a product of 3 ratios counts each token 3 times.
    assert gradient.tolist() == [pytest.approx([-4.5 if name == "seq_ppo" else -1.5] * 3)]


@given(st.lists(st.floats(-20, 0), min_size=4, max_size=4), st.floats(-3, 3))
def test_on_policy_the_ratio_is_one_and_nothing_is_clipped(row: list[float], advantage: float) -> None:
    logp, mask = tensor(row), torch.ones(1, 4).bool()
    assert importance_ratio(logp, logp).eq(1).all()
    counts = clip_fractions(logp, logp, torch.tensor([advantage]), mask, epsilon=0.2, epsilon_high=None)
    assert tuple(counts) == (0.0, 0.0, 0.0)


REWARDS = st.lists(st.integers(-5, 5), min_size=2, max_size=2).filter(lambda pair: pair[0] != pair[1])


@settings(deadline=None)
@given(REWARDS, st.floats(0.1, 10), st.lists(st.floats(-5, 0), min_size=6, max_size=6))
def test_scaling_rewards_scales_dr_grpo_and_leaves_grpo(pair: list[int], factor: float, logps: list[float]) -> None:
    groups = torch.zeros(2, dtype=torch.int64)

    def gradient(name: str, scale: str, rewards: torch.Tensor) -> torch.Tensor:
        advantages = scale_advantages(group_mean(rewards, groups), rewards, groups, scale, epsilon=0.0)  # type: ignore[arg-type] # a name
        logp = torch.tensor(logps, dtype=torch.float64).reshape(2, 3).requires_grad_()
        return torch.autograd.grad(loss_of(name, logp, advantages), logp)[0]

    rewards = torch.tensor(pair, dtype=torch.float64)
    unscaled = gradient("dr_grpo", "none", rewards)
    torch.testing.assert_close(gradient("dr_grpo", "none", factor * rewards), factor * unscaled)
    torch.testing.assert_close(gradient("grpo", "group", factor * rewards), gradient("grpo", "group", rewards))


@settings(deadline=None)
@given(st.lists(st.integers(-5, 5), min_size=2, max_size=2), st.lists(st.floats(-5, 0), min_size=6, max_size=6))
def test_rloo_is_dr_grpo_times_g_over_g_minus_one(pair: list[int], logps: list[float]) -> None:
    rewards, groups = torch.tensor(pair, dtype=torch.float64), torch.zeros(2, dtype=torch.int64)
    logp = torch.tensor(logps, dtype=torch.float64).reshape(2, 3).requires_grad_()
    (ours,) = torch.autograd.grad(loss_of("dr_grpo", logp, leave_one_out(rewards, groups)), logp)
    (dr,) = torch.autograd.grad(loss_of("dr_grpo", logp, group_mean(rewards, groups)), logp)
    torch.testing.assert_close(ours, 2 * dr)  # G = 2
    # With its own denominator, B in place of B·L, it is L = 10 times that.
    (summed,) = torch.autograd.grad(loss_of("rloo", logp, leave_one_out(rewards, groups)), logp)
    torch.testing.assert_close(summed, 20 * dr)


def test_a_correction_multiplies_token_by_token() -> None:
    logp = tensor([-1.0, -2.0, -0.5], [-0.3, 0.0, 0.0])
    weights = token_weights(MASK, "sequence_sum", max_completion_length=10)
    correction = tensor([2.0, 0.0, 1.0], [0.5, 9.0, 9.0])
    loss = policy_loss(ppo_clip, logp, logp, torch.tensor([1.0, -1.0]), MASK, weights, correction=correction)
    assert float(loss) == pytest.approx((-2 - 1 + 0.5) / 2)  # −A·correction at ratio 1, over B = 2


def test_float32_stays_within_its_precision_and_sums_in_float64() -> None:
    logp, advantages = torch.tensor([[-1.0, -2.0, -0.5], [-0.3, 0.0, 0.0]]), torch.tensor([1.0, -3.0])
    loss = loss_of("grpo", logp, advantages)
    assert loss.dtype is torch.float64
    assert float(loss) == pytest.approx(float(loss_of("grpo", logp.double(), advantages)), rel=1e-6)
