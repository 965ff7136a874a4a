"""Probes measure what they say, and leave weights and random numbers exactly as they would be without them."""

import copy
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_policies import LENGTHS, batch, model, policy_of, settings, update

from grpo_core.algorithms.noise_scale import gns_from_micro
from grpo_core.policy.policy import Policy
from grpo_core.training.algorithm import Algorithm
from grpo_core.training.batch import TrainBatch
from grpo_core.training.statistics import UpdateStatistics
from grpo_core.training.update import Updater

PROBES = [
    {"gradient_noise_scale": True},
    {"gns_probe_steps": 1, "gns_probe_prompts": 2},
    {"entropy_probe_steps": 1},
]


def with_dropout() -> Policy:
    from peft import LoraConfig, get_peft_model

    network = get_peft_model(
        model(3).float(), LoraConfig(task_type="CAUSAL_LM", r=2, lora_dropout=0.3, init_lora_weights=False)
    )
    return policy_of(network)


def three_updates(policy: Policy, folder: Path | None = None, **options: object) -> list[dict[str, float]]:
    torch.manual_seed(7)
    fixed = {"learning_rate": 0.01, "num_generations": 1, "prompts_per_step": 4, "baseline": "ema"}
    config = settings(**{**fixed, "micro_batch_prompts": 1, **options})
    updater = Updater(policy, Algorithm.of(config), total_steps=4, probe_dir=folder)
    return [update(updater, updater.forward.freeze(batch())) for _ in range(3)]


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: next(iter(probe)))
@pytest.mark.parametrize("dropout", [False, True])
def test_a_probe_leaves_the_weights_bit_identical(probe: dict, dropout: bool) -> None:
    start = with_dropout() if dropout else policy_of(model(3))
    plain, probed = (policy_of(copy.deepcopy(start.model)) for _ in range(2))
    without = three_updates(plain)
    with_probe = three_updates(probed, **probe)
    for one, other in zip(plain.model.parameters(), probed.model.parameters(), strict=True):
        assert torch.equal(one, other)
    for one, other in zip(without, with_probe, strict=True):
        assert {name: other[name] for name in one} == one
    assert set(with_probe[-1]) > set(without[-1])


def _gradient(parameter: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def gradients_of_prompts(made: TrainBatch) -> torch.Tensor:
    """The gradient [4, D] of each prompt's own mean loss."""
    found = []
    for row in range(len(LENGTHS)):
        network = model(3)
        updater = Updater(policy_of(network), Algorithm.of(settings()), total_steps=1)
        part = updater.gradient.weighted(made.rows(torch.tensor([row])))
        updater.gradient.add(part, updater.coefficients(), UpdateStatistics())
        found.append(torch.cat([_gradient(parameter).flatten() for parameter in network.parameters()]))
    return torch.stack(found)


def test_the_noise_scale_comes_from_each_prompts_own_gradient() -> None:
    g2, trace = gns_from_micro(gradients_of_prompts(batch()), b_small=1)
    metrics = three_updates(policy_of(model(3)), gradient_noise_scale=True)[0]
    assert metrics["gns/g2"] == pytest.approx(g2, rel=1e-6)
    assert metrics["gns/trace"] == pytest.approx(trace, rel=1e-6)


def test_a_prompt_that_is_skipped_in_compute_counts_as_a_gradient_of_zero() -> None:
    made = batch()
    made = replace(made, advantages=torch.tensor([0.5, 0.0, 0.75, 0.0], dtype=torch.float64))
    g2, trace = gns_from_micro(gradients_of_prompts(made), b_small=1)
    config = settings(
        num_generations=1, prompts_per_step=4, baseline="ema", micro_batch_prompts=1, gradient_noise_scale=True
    )
    updater = Updater(policy_of(model(3)), Algorithm.of(config), total_steps=1)
    metrics = update(updater, made)
    assert (metrics["gns/g2"], metrics["gns/trace"]) == pytest.approx((g2, trace), rel=1e-6)


def test_micro_batches_of_several_prompts_are_those_that_were_drawn() -> None:
    gradients = gradients_of_prompts(batch())
    pairs = torch.stack([gradients[:2].mean(0), gradients[2:].mean(0)])
    g2, trace = gns_from_micro(pairs, b_small=2)
    metrics = three_updates(policy_of(model(3)), gradient_noise_scale=True, micro_batch_prompts=2)[0]
    assert (metrics["gns/g2"], metrics["gns/trace"]) == pytest.approx((g2, trace), rel=1e-6)


def test_without_whole_prompts_nothing_is_measured() -> None:
    metrics = three_updates(policy_of(model(3)), gradient_noise_scale=True, micro_batch_prompts=None)[0]
    assert not any(name.startswith("gns/") for name in metrics)


def test_the_two_batch_probe_compares_the_first_prompts_with_the_step() -> None:
    gradients = gradients_of_prompts(batch())
    small, big = gradients[:2].mean(0).square().sum(), gradients.mean(0).square().sum()
    metrics = three_updates(policy_of(model(3)), gns_probe_steps=2, gns_probe_prompts=2)
    assert "gns_probe/g2" not in metrics[0]
    first = three_updates(policy_of(model(3)), gns_probe_steps=1, gns_probe_prompts=2)[0]
    assert first["gns_probe/small_squared_norm"] == pytest.approx(float(small), rel=1e-6)
    assert first["gns_probe/big_squared_norm"] == pytest.approx(float(big), rel=1e-6)
    # |G|² = (B‖g_B‖² − b‖g_b‖²) / (B − b) with b = 2 and B = 4.
    assert first["gns_probe/g2"] == pytest.approx(float(4 * big - 2 * small) / 2, rel=1e-6)


def test_the_entropy_probe_saves_what_it_saw(tmp_path: Path) -> None:
    metrics = three_updates(policy_of(model(3)), tmp_path, entropy_probe_steps=2)
    folder = tmp_path / "entropy_probes" / "step_2"
    assert [each.name for each in (tmp_path / "entropy_probes").iterdir()] == ["step_2"]
    assert json.loads((folder / "deltaH_pred.json").read_text())["deltaH_pred"] == pytest.approx(
        metrics[1]["entropy_probe/predicted_change"]
    )
    assert np.load(folder / "S.npy") == pytest.approx([-2.0 * n for _, n in LENGTHS])  # −2 for every token
    assert np.load(folder / "A.npy") == pytest.approx([0.5, -1.0, 0.75, 0.25])
    assert np.load(folder / "entropy_tok_mean.npy") == pytest.approx([2.0] * 4)
    assert json.loads((folder / "meta.json").read_text())["rows"] == 4
