import math

import pytest
import torch

from grpo_core.algorithms.losses import Objective
from grpo_core.algorithms.sequence_losses import gmpo, gspo, gspo_token, seq_ppo, sequence_log_ratio, vespo
from grpo_core.plugins.built_in import BUILT_IN

MASK = torch.tensor([[True, True, False]])


def row(
    objective: Objective, log_ratios: list[float], advantages: list[float], **options: object
) -> tuple[list[float], list[float]]:
    """Values and gradients of one completion, whose log π_old is −1 at each token."""
    logp = torch.tensor([[ratio - 1 for ratio in log_ratios]], dtype=torch.float64, requires_grad=True)
    mask = torch.ones_like(logp).bool()
    given = torch.tensor([advantages] if len(advantages) > 1 else advantages, dtype=torch.float64)
    values = objective(logp, torch.full_like(logp, -1).detach(), given, mask, **options)
    assert values.shape == logp.shape
    (gradient,) = torch.autograd.grad(values.sum(), logp)
    return values.detach()[0].tolist(), gradient[0].tolist()


def test_a_completions_log_ratio_is_a_sum_or_a_mean_over_its_own_tokens() -> None:
    logp, old = torch.tensor([[1.0, 2.0, 9.0]]), torch.zeros(1, 3)
    assert sequence_log_ratio(logp, old, MASK, mean=False).tolist() == [[3.0]]
    assert sequence_log_ratio(logp, old, MASK, mean=True).tolist() == [[1.5]]
    assert sequence_log_ratio(logp, old, torch.zeros_like(MASK), mean=True).tolist() == [[0.0]]


def test_gspo_normalises_by_length_and_seq_ppo_does_not() -> None:
    # mean 0.1, sum 0.2
    wide = {"epsilon": 0.5, "epsilon_high": 0.5}
    mean, total = math.exp(0.1), math.exp(0.2)
    values, gradients = row(gspo, [0.3, -0.1], [2.0], **wide)
    assert values == pytest.approx([-2 * mean] * 2)
    assert gradients == pytest.approx([-2 * mean] * 2)  # Σ over 2 tokens of −A·s·(1/2)
    values, gradients = row(seq_ppo, [0.3, -0.1], [2.0], **wide)
    assert values == pytest.approx([-2 * total] * 2)
    assert gradients == pytest.approx([-4 * total] * 2)  # Σ over 2 tokens of −A·s


def test_gspo_clips_a_completion_as_a_whole() -> None:
    # The second token moved down, but the mean is above 1.0004: no token has a gradient.
    values, gradients = row(gspo, [0.3, -0.1], [1.0])
    assert values == pytest.approx([-1.0004] * 2)
    assert gradients == [0.0, 0.0]


def test_gspo_token_has_gspos_value_and_a_gradient_per_token() -> None:
    wide = {"epsilon": 0.5, "epsilon_high": 0.5}
    s = math.exp(0.1)
    values, gradients = row(gspo_token, [0.3, -0.1], [2.0, -1.0], **wide)
    assert values == pytest.approx([-2 * s, s])
    assert gradients == pytest.approx([-2 * s, s])
    assert row(gspo_token, [0.3, -0.1], [2.0], **wide)[1] == pytest.approx(row(gspo, [0.3, -0.1], [2.0], **wide)[1])


def test_luspo_is_gspo_summed_over_tokens() -> None:
    assert BUILT_IN["loss"]["luspo"].target == BUILT_IN["loss"]["gspo"].target
    assert (BUILT_IN["loss"]["luspo"].aggregation, BUILT_IN["loss"]["gspo"].aggregation) == (
        "sequence_sum",
        "sequence_mean",
    )


def test_gmpo_clips_tokens_one_sidedly_inside_the_geometric_mean() -> None:
    # A > 0: 0.6 is clipped to 0.4, −0.6 is not; the mean is −0.1
    values, gradients = row(gmpo, [0.6, -0.6], [1.0])
    assert values == pytest.approx([-math.exp(-0.1)] * 2)
    assert gradients == pytest.approx([0.0, -math.exp(-0.1)])
    # A < 0: the other way round
    values, gradients = row(gmpo, [0.6, -0.6], [-1.0])
    assert values == pytest.approx([math.exp(0.1)] * 2)
    assert gradients == pytest.approx([math.exp(0.1), 0.0])


def test_gmpo_takes_the_mean_of_advantages_per_token() -> None:
    assert row(gmpo, [0.0, 0.0], [1.0, 3.0])[0] == pytest.approx([-2.0, -2.0])


def test_vespo_weighs_by_the_whole_ratio_and_is_one_on_policy() -> None:
    # w = e^0.2; A > 0: φ = w²·e^{3(1−w)}
    w = math.exp(0.2)
    phi = w**2 * math.exp(3 * (1 - w))
    values, gradients = row(vespo, [0.3, -0.1], [2.0])
    assert values == pytest.approx([-phi * 2 * -0.7, -phi * 2 * -1.1])
    assert gradients == pytest.approx([-2 * phi] * 2)
    # A < 0: φ = w³·e^{2(1−w)}
    assert row(vespo, [0.3, -0.1], [-2.0])[1] == pytest.approx([2 * w**3 * math.exp(2 * (1 - w))] * 2)
    assert row(vespo, [0.0, 0.0], [2.0])[1] == [-2.0, -2.0]


def test_vespo_forgets_a_completion_that_is_far_off() -> None:
    assert row(vespo, [30.0] * 3, [1.0])[1] == [0.0] * 3
    # w = e^−30 counts as 1e−8: φ = 1e−16·e^{3(1 − 1e−8)}
    assert row(vespo, [-15.0] * 2, [1.0])[1] == pytest.approx([-1e-16 * math.exp(3)] * 2, rel=1e-6, abs=0)


@pytest.mark.parametrize("objective", [gspo, gspo_token, seq_ppo, gmpo])
def test_a_mad_completion_is_clamped(objective: Objective) -> None:
    values, gradients = row(objective, [500.0, 500.0], [-1.0])
    assert values == pytest.approx([math.exp(20)] * 2)
    assert gradients == [0.0, 0.0]


def test_delta_and_dual_clip_bound_a_completion() -> None:
    # s = e: PPO's loss at A = −1 is e.
    assert row(gspo, [1.0, 1.0], [-1.0])[0] == pytest.approx([math.e] * 2)
    assert row(gspo, [1.0, 1.0], [-1.0], delta=2.0)[0] == pytest.approx([2.0] * 2)
    assert row(seq_ppo, [0.5, 0.5], [-1.0], dual_clip=1.5)[0] == pytest.approx([1.5] * 2)


@pytest.mark.parametrize("objective", [gspo, seq_ppo, gmpo])
def test_gradients_are_those_of_the_value(objective: Objective) -> None:
    logp = torch.tensor([[-1.0, -2.0, -0.7], [-0.3, -0.9, -1.4]], dtype=torch.float64, requires_grad=True)
    old = logp.detach() + torch.tensor([[0.03, -0.02, 0.0], [0.01, 0.02, -0.05]])
    mask = torch.tensor([[True, True, True], [True, True, False]])
    advantages = torch.tensor([1.0, -2.0], dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda x: objective(x, old, advantages, mask, epsilon=0.5, epsilon_high=0.5).where(mask, 0.0), logp
    )
