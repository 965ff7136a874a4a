import json
import math

import pytest
import torch

from grpo_core.algorithms.noise_scale import NoiseScale, gns_from_micro, gns_pair
from grpo_core.errors import UserError


def test_two_batch_sizes_give_both_unknowns() -> None:
    # |G|² = 3 and tr Σ = 8: E‖g_2‖² = 3 + 8/2 = 7, E‖g_16‖² = 3 + 8/16 = 3.5.
    assert gns_pair(7.0, 3.5, b_small=2, b_big=16) == pytest.approx((3.0, 8.0))


def test_the_trace_is_the_sum_of_unbiased_variances() -> None:
    gradients = torch.tensor([[1.0, 2.0], [3.0, 2.0], [5.0, -1.0]], dtype=torch.float64)
    # Means of 4 prompts have a quarter of the variance of one: tr Σ = 4·(var(1, 3, 5) + var(2, 2, −1)) = 4·(4 + 3).
    g2, trace = gns_from_micro(gradients, b_small=4)
    assert trace == pytest.approx(28.0)
    # ‖mean‖² = 3² + 1² has the noise tr Σ / 12 too much.
    assert g2 == pytest.approx(10 - 28 / 12)


@pytest.mark.parametrize(("small", "big"), [(4, 4), (8, 4), (0, 4)])
def test_one_batch_size_says_nothing(small: int, big: int) -> None:
    with pytest.raises(UserError, match="needs two batch sizes"):
        gns_pair(1.0, 1.0, b_small=small, b_big=big)
    with pytest.raises(UserError, match="needs two batch sizes"):
        gns_from_micro(torch.ones(1, 3), b_small=2)


def test_the_noise_scale_of_known_covariance_is_within_a_tenth() -> None:
    # G of norm 2 and a diagonal Σ of trace 32, uneven: B_simple = 32 / 4 = 8 prompts.
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(64, generator=generator, dtype=torch.float64)
    mean *= 2 / mean.norm()
    deviation = torch.linspace(0.1, 1.0, 64, dtype=torch.float64)
    deviation *= math.sqrt(32) / deviation.norm()
    by_step, by_pair = NoiseScale(decay=0.995), NoiseScale(decay=0.995)
    for _ in range(1000):
        prompts = mean + deviation * torch.randn(16, 64, generator=generator, dtype=torch.float64)
        by_step.update(*gns_from_micro(prompts.view(8, 2, 64).mean(1), b_small=2))
        other = mean + deviation * torch.randn(4, 64, generator=generator, dtype=torch.float64)
        small_sq, big_sq = (float(batch.mean(0).square().sum()) for batch in (other, prompts))
        by_pair.update(*gns_pair(small_sq, big_sq, b_small=4, b_big=16))
    for scale in (by_step, by_pair):
        assert scale.g2 == pytest.approx(4.0, rel=0.1)
        assert scale.trace == pytest.approx(32.0, rel=0.1)
        assert scale.b_simple == pytest.approx(8.0, rel=0.1)


def test_the_mean_is_corrected_for_its_start() -> None:
    scale = NoiseScale(decay=0.9)
    assert scale.update(2.0, 10.0) == pytest.approx(5.0), "the first estimate counts in full"
    # (0.9·0.1·2 + 0.1·4) / (1 − 0.81) and (0.9·0.1·10 + 0.1·40) / 0.19
    assert scale.update(4.0, 40.0) == pytest.approx((0.09 * 10 + 4) / (0.09 * 2 + 0.4))
    assert scale.g2 == pytest.approx(0.58 / 0.19)


def test_there_is_no_ratio_before_both_means_are_above_0() -> None:
    scale = NoiseScale()
    assert math.isnan(scale.g2) and math.isnan(scale.trace) and math.isnan(scale.b_simple)
    assert math.isnan(scale.update(-1.0, 10.0)), "one step's |G|² may come out negative"
    assert scale.update(9.0, 10.0) > 0


def test_a_failed_step_is_left_out() -> None:
    scale = NoiseScale()
    before = scale.update(2.0, 10.0)
    assert scale.update(math.nan, 1.0) == scale.update(1.0, math.inf) == before


def test_state_survives_json() -> None:
    scale, resumed = NoiseScale(), NoiseScale()
    scale.update(2.0, 10.0)
    resumed.load_state(json.loads(json.dumps(scale.state())))
    assert resumed.update(1.0, 3.0) == scale.update(1.0, 3.0)
