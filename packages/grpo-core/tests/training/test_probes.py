"""Probes measure what they say, and leave weights and random numbers exactly as they would be without them."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from small_policies import ADVANTAGES, LENGTHS, batch, frozen, model, policy_of, settings, update

from grpo_core.algorithms.noise_scale import gns_pair
from grpo_core.policy.policy import Policy
from grpo_core.training.algorithm import Algorithm
from grpo_core.training.statistics import UpdateStatistics
from grpo_core.training.update import Updater

PROBES = [{"gradient_noise_scale": True}, {"gns_probe_steps": 1, "gns_probe_prompts": 2}, {"entropy_probe_steps": 1}]


def updater_of(policy: Policy, folder: Path | None = None, **options: object) -> Updater:
    fixed = {"learning_rate": 0.01, "num_generations": 1, "prompts_per_step": 4, "baseline": "ema"}
    config = settings(**{**fixed, "micro_batch_prompts": 1, **options})
    return Updater(policy, Algorithm.of(config), total_steps=4, probe_dir=folder)


def three_updates(policy: Policy, folder: Path | None = None, **options: object) -> list[dict[str, float]]:
    torch.manual_seed(7)
    updater = updater_of(policy, folder, **options)
    return [update(updater) for _ in range(3)]


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: next(iter(probe)))
@pytest.mark.parametrize("dropout", [False, True])
def test_a_probe_leaves_the_weights_bit_identical(probe: dict, dropout: bool) -> None:
    start = model(3)
    if dropout:
        lora = LoraConfig(task_type="CAUSAL_LM", r=2, lora_dropout=0.3, init_lora_weights=False)
        start = get_peft_model(start.float(), lora)
    plain, probed = (policy_of(copy.deepcopy(start)) for _ in range(2))
    without = three_updates(plain)
    with_probe = three_updates(probed, **probe)
    assert all(torch.equal(*both) for both in zip(plain.model.parameters(), probed.model.parameters(), strict=True))
    for one, other in zip(without, with_probe, strict=True):
        assert {name: other[name] for name in one} == one
    assert set(with_probe[-1]) > set(without[-1])


def gradients_of_prompts(advantages: torch.Tensor = ADVANTAGES) -> torch.Tensor:
    """The gradient [4, D] of each prompt's own mean loss."""
    found = []
    for row in range(len(LENGTHS)):
        network = model(3)
        updater = Updater(policy_of(network), Algorithm.of(settings()), total_steps=1)
        part = frozen(updater, batch().rows(torch.tensor([row])), advantages=advantages[[row]])
        updater.objective.add_gradient(part, updater.coefficients(), UpdateStatistics(), updater.optimizer)
        gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in network.parameters()]
        found.append(torch.cat([each.flatten() for each in gradients]))
    return torch.stack(found)


@pytest.mark.parametrize(("size", "advantages"), [
    (1, [0.5, 0.0, 0.75, 0.0]),  # a prompt that is skipped in compute is a gradient of zero
    (2, [0.5, -1.0, 0.75, 0.25]),
])  # fmt: skip
def test_the_noise_scale_comes_from_the_gradients_of_micro_batches(size: int, advantages: list[float]) -> None:
    given = torch.tensor(advantages, dtype=torch.float64)
    gradients = gradients_of_prompts(given).unflatten(0, (-1, size)).mean(1)
    updater = updater_of(policy_of(model(3)), gradient_noise_scale=True, micro_batch_prompts=size)
    metrics = update(updater, frozen(updater, advantages=given))
    small_sq, big_sq = float(gradients.square().sum(1).mean()), float(gradients.mean(0).square().sum())
    expected = gns_pair(small_sq, big_sq, b_small=size, b_big=size * len(gradients))
    assert (metrics["gns/g2"], metrics["gns/trace"]) == pytest.approx(expected, rel=1e-6)
    (without, *_) = three_updates(policy_of(model(3)), gradient_noise_scale=True, micro_batch_prompts=None)
    assert not any(name.startswith("gns/") for name in without), "without whole prompts"


def test_the_two_batch_probe_compares_the_first_prompts_with_the_step() -> None:
    gradients = gradients_of_prompts()
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
