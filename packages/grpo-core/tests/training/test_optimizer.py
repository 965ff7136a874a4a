"""Steps that are not finite are skipped, and the loss of float16 is scaled."""

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from small_policies import frozen, model, policy_of, settings, update

from grpo_core.policy.policy import Policy
from grpo_core.training.algorithm import Algorithm
from grpo_core.training.batch import TrainBatch
from grpo_core.training.optimizer import MAX_SKIPPED_IN_A_ROW
from grpo_core.training.state import OPTIMIZER_FILE, load_optimizer, optimizer_tensors
from grpo_core.training.update import Updater
from grpo_sdk.errors import NonFiniteError


def with_advantages(updater: Updater, value: float) -> TrainBatch:
    return frozen(updater, advantages=torch.full((4,), value, dtype=torch.float64))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_step_that_is_not_finite_is_skipped_and_counted_and_at_last_an_error(value: float) -> None:
    policy = policy_of(model(0))
    updater = Updater(policy, Algorithm.of(settings()), total_steps=20)
    broken = with_advantages(updater, value)
    before = [parameter.detach().clone() for parameter in policy.parameters()]
    for _ in range(MAX_SKIPPED_IN_A_ROW - 1):
        update(updater, broken)
    assert updater.optimizer.skipped == MAX_SKIPPED_IN_A_ROW - 1
    assert all(torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))
    with pytest.raises(NonFiniteError, match="learning_rate"):
        update(updater, broken)


def test_stored_step_counts_go_where_a_fused_kernel_reads_them(tmp_path: Path) -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    saved = torch.optim.AdamW([parameter])
    parameter.grad = torch.ones(2)
    saved.step()
    save_file(optimizer_tensors(saved), tmp_path / OPTIMIZER_FILE)
    for fused, place in ((True, "meta"), (None, "cpu")):
        away = torch.nn.Parameter(torch.ones(2, device="meta"))
        loaded = torch.optim.AdamW([away], fused=fused)
        load_optimizer(loaded, tmp_path / OPTIMIZER_FILE)
        devices = {name: each.device.type for name, each in loaded.state[away].items()}
        assert devices == {"step": place, "exp_avg": "meta", "exp_avg_sq": "meta"}


# --- float16


def half(scale: float | None = None, **options: object) -> Updater:
    """An updater that trains a small model in float16, with a scale of its own."""
    network = model(0).float()
    policy = Policy(network, None, policy_of(network).source, torch.device("cpu"), torch.float16)
    updater = Updater(policy, Algorithm.of(settings(**{"learning_rate": 1e-2, **options})), total_steps=40)
    if scale is not None:
        updater.optimizer.scaler.load_state_dict({**updater.optimizer.scaler.state_dict(), "scale": scale})
    return updater


def weights(updater: Updater) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in updater.optimizer.parameters]


def test_the_scale_leaves_no_trace_in_a_step_and_in_probes() -> None:
    # A power of two: taking it out again is exact, so far as nothing under- or overflows.
    probes = {"gns_probe_steps": 1, "gns_probe_prompts": 1, "entropy_probe_steps": 1, "micro_batch_prompts": 1}
    found = []
    for scale in (2.0**12, 2.0**15):
        updater = half(scale, max_grad_norm=0.001, **probes)
        metrics = update(updater)
        assert metrics["loss_scale"] == scale
        found.append((metrics["grad_norm"], weights(updater), update(updater)))
    (one, ours, probed), (other, theirs, probed_too) = found
    assert one == pytest.approx(other, rel=1e-3)
    assert one > 0.001, "clipping goes by the norm without the scale"
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(ours, theirs, strict=True))
    for name in ("gns_probe/small_squared_norm", "entropy_probe/predicted_change"):
        assert probed[name] == pytest.approx(probed_too[name], rel=0.2), name  # a scale left in would be a factor of 8


def test_a_step_that_overflows_is_skipped_counted_and_halves_the_scale() -> None:
    updater = half(2.0**60)
    before = weights(updater)
    metrics = update(updater)
    assert updater.optimizer.skipped == 1
    assert (metrics["loss_scale"], updater.optimizer.scaler.get_scale()) == (2.0**60, 2.0**59)
    assert "grad_norm" not in metrics, "it has none, and a checkpoint holds no infinity"
    assert all(torch.equal(a, b) for a, b in zip(before, weights(updater), strict=True))
    assert updater.optimizer.adam.state == {}


def test_finding_the_scale_ends_no_run_but_a_broken_model_does() -> None:
    updater = half(2.0**60)
    for _ in range(MAX_SKIPPED_IN_A_ROW + 5):
        update(updater)
    assert updater.optimizer.skipped == MAX_SKIPPED_IN_A_ROW + 5
    updater = half()
    with pytest.raises(NonFiniteError, match="precision=float32"):
        for _ in range(16 + MAX_SKIPPED_IN_A_ROW):
            update(updater, with_advantages(updater, 1e30))  # beyond any scale
    assert updater.optimizer.scaler.get_scale() <= 1
    updater = half()
    update(updater, with_advantages(updater, math.nan))  # a loss that is not finite says nothing about the scale
    assert (updater.optimizer.skipped, updater.optimizer.scaler.get_scale()) == (1, 2.0**16)
    update(updater)
    assert updater.optimizer.skipped == 1
