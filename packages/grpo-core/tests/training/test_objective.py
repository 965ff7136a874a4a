"""Each term of the loss, checked against its formula written out on whole logits."""

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch
from peft import LoraConfig, get_peft_model
from small_policies import ADVANTAGES, LENGTH, LENGTHS, batch, frozen, model, policy_of, settings, update
from torch import Tensor
from transformers import LlamaForCausalLM

from grpo_core.algorithms.causal_lm import evaluating
from grpo_core.algorithms.kl import full_kl
from grpo_core.algorithms.logprobs import full_entropy
from grpo_core.algorithms.packing import pair_cost
from grpo_core.policy.policy import Policy
from grpo_core.training.algorithm import Algorithm
from grpo_core.training.batch import Snapshot, TokenBatch, micro_batches
from grpo_core.training.statistics import UpdateStatistics
from grpo_core.training.update import Updater
from grpo_sdk.plugins import variants as registry

MODEL_PRECISION = 1e-6
"""Llama's RMSNorm computes in float32, where a batch and a row alone may round differently."""


class Row(NamedTuple):
    """What the policy and its reference predict where the tokens of one row's completion stand: logits [T, V]."""

    advantage: Tensor
    logp: Tensor
    logits: Tensor
    ref_logp: Tensor
    ref_logits: Tensor


Loss = Callable[[Row], Tensor]


@pytest.fixture
def policy() -> Policy:
    """A policy that has moved away from its reference."""
    made = policy_of(model(1))
    made.freeze_reference()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)))
    return made


def rows_of(policy: Policy, network: LlamaForCausalLM, made: TokenBatch, advantages: Tensor = ADVANTAGES) -> list[Row]:
    """The rows of a batch as a copy of the policy predicts them."""
    rows = []
    for index, (n_prompt, n) in enumerate(LENGTHS):
        ids = made.input_ids[index, : n_prompt + n]
        own, reference = (each(ids[None]).logits[0, n_prompt - 1 : -1] for each in (network, policy.anchor.frozen))
        logp, ref_logp = (each.log_softmax(-1).gather(-1, ids[n_prompt:, None])[:, 0] for each in (own, reference))
        rows.append(Row(advantages[index], logp, own, ref_logp.detach(), reference.detach()))
    return rows


def updater_of(policy: Policy, **options: object) -> Updater:
    return Updater(policy, Algorithm.of(settings(**options)), total_steps=4)


def updated(policy: Policy, made: TokenBatch | None = None, **options: object) -> dict[str, float]:
    updater = updater_of(policy, **options)
    return update(updater, frozen(updater, made))


def gradient_norm(policy: Policy, loss: Loss, advantages: Tensor = ADVANTAGES) -> float:
    """Norm of the gradient of Σ_rows loss / (B · L): each token weighs 1 / (4 · 8)."""
    network = copy.deepcopy(policy.model)
    rows = rows_of(policy, network, batch(), advantages)
    (sum(map(loss, rows)) / (len(rows) * LENGTH)).backward()
    return math.sqrt(sum(float(p.grad.square().sum()) for p in network.parameters()))


def policy_loss(row: Row) -> Tensor:
    """On-policy the gradient of ρA is that of A·log π."""
    return -(row.advantage * row.logp).sum()


def updated_by(policy: Policy, loss: Loss, made: TokenBatch | None = None, **options: object) -> dict[str, float]:
    """Metrics of an update whose gradient must be that of the loss."""
    expected = gradient_norm(policy, loss)
    metrics = updated(policy, made, **options)
    assert metrics["grad_norm"] == pytest.approx(expected, rel=MODEL_PRECISION)
    return metrics


# How a batch is divided


@pytest.mark.parametrize("loss_type", ["dr_grpo", "grpo", "dapo"])
def test_any_split_into_micro_batches_gives_the_same_update(policy: Policy, loss_type: str) -> None:
    def result(**options: object) -> tuple[dict[str, float], Tensor]:
        alone = policy_of(copy.deepcopy(policy.model))
        metrics = updated(alone, loss_type=loss_type, learning_rate=1e-2, **options)
        return metrics, torch.cat([parameter.detach().flatten() for parameter in alone.parameters()])

    whole, weights = result(micro_batch_size=4)
    for options in ({"micro_batch_size": 1}, {"micro_batch_size": 2}, {"micro_batch_tokens": 9}):
        metrics, other = result(**options)
        assert metrics["loss"] == pytest.approx(whole["loss"], rel=1e-9)
        assert metrics["grad_norm"] == pytest.approx(whole["grad_norm"], rel=MODEL_PRECISION)
        assert torch.allclose(weights, other, atol=1e-6, rtol=0)


def test_steps_per_generation_split_the_batch_and_keep_the_old_log_probs(policy: Policy) -> None:
    updater = updater_of(policy, learning_rate=1e-2, steps_per_generation=2)
    metrics = update(updater)
    assert updater.optimizer.updates == 2
    assert metrics["ratio_mean"] != 1.0  # the second half was sampled by the policy before the first half's update


# The policy's loss


def test_the_loss_is_the_formula(policy: Policy) -> None:
    # On-policy the ratio is 1, so Σ −A_i · T_i / (B · L) with T = 4, 2, 5, 1, B = 4 and L = 8.
    metrics = updated_by(policy, policy_loss)
    assert metrics["loss"] == pytest.approx(-(0.5 * 4 - 1.0 * 2 + 0.75 * 5 + 0.25 * 1) / (4 * 8), rel=1e-12)
    assert metrics["ratio_mean"] == 1.0
    assert metrics["clip_ratio/low"] == metrics["clip_ratio/high"] == 0.0


@pytest.mark.parametrize("loss_type", registry.names("loss"))
def test_every_loss_has_a_ratio_of_one_on_policy(policy: Policy, loss_type: str) -> None:
    metrics = updated(policy, loss_type=loss_type)
    assert metrics["grad_norm"] > 0
    assert metrics["ratio_mean"] == metrics["ratio_max"] == 1.0
    assert metrics["ess"] == pytest.approx(1.0)
    assert metrics.get("clip_ratio/region", 0.0) == 0.0


def test_the_penalty_of_dro_holds_for_rows_without_advantage(policy: Policy) -> None:
    advantages = torch.tensor([0.0, 0.0, 0.75, 0.25], dtype=torch.float64)
    options = {"loss_type": "dro", "loss_args": {"beta": 0.5}, "aggregation": "constant"}
    updater = updater_of(policy, **options, num_iterations=2, learning_rate=0.0)
    made = frozen(updater, advantages=advantages)
    made = replace(made, snapshot=replace(made.snapshot, old_logprobs=made.snapshot.old_logprobs - 0.7))

    def loss(row: Row) -> Tensor:
        return -(row.advantage * row.logp - 0.5 / 2 * (row.logp - row.logp.detach() + 0.7) ** 2).sum()

    expected = gradient_norm(policy, loss, advantages)
    assert update(updater, made)["grad_norm"] == pytest.approx(expected, rel=MODEL_PRECISION)


def test_the_entropy_bonus_is_that_of_the_whole_vocabulary(policy: Policy) -> None:
    entropy = sum(float(full_entropy(row.logits).detach().sum()) for row in rows_of(policy, policy.model, batch()))
    metrics = updated_by(policy, lambda row: policy_loss(row) - 0.3 * full_entropy(row.logits).sum(), entropy_coef=0.3)
    assert metrics["entropy"] == pytest.approx(entropy / sum(n for _, n in LENGTHS), rel=MODEL_PRECISION)
    assert metrics["entropy_coef"] == 0.3


def test_only_the_tokens_of_highest_entropy_are_trained(policy: Policy) -> None:
    entropies = [full_entropy(row.logits).detach() for row in rows_of(policy, policy.model, batch())]
    threshold = torch.quantile(torch.cat(entropies), 0.75)

    def loss(row: Row) -> Tensor:
        return -(row.advantage * row.logp)[full_entropy(row.logits) >= threshold].sum()

    updated_by(policy, loss, top_entropy_quantile=0.25)


def test_truncated_importance_weights_against_the_sampler(policy: Policy) -> None:
    def loss(row: Row) -> Tensor:
        weight = (row.logp.detach() + 2.0).exp().clamp(max=1.5)  # the sampler reported −2 for every token
        return -(row.advantage * weight * row.logp).sum()

    updated_by(policy, loss, rollout_correction="token_truncate", rollout_correction_max=1.5)


def test_rows_of_negative_advantage_that_left_the_sampler_are_left_out(policy: Policy) -> None:
    made = batch(sampler_shift=5.0)  # the sampler found every token far likelier than the policy does
    updated_by(policy, lambda row: policy_loss(row) * (row.advantage > 0), made, off_policy_mask_threshold=0.5)


# The penalty


@pytest.mark.parametrize("kl", registry.names("kl"))
def test_every_kl_is_zero_until_the_policy_has_moved(kl: str) -> None:
    policy = policy_of(model(1))
    policy.freeze_reference()
    updater = updater_of(policy, beta=0.05, kl=kl, learning_rate=1e-2)
    first, second = (update(updater)["kl"] for _ in range(2))
    assert first == pytest.approx(0.0, abs=1e-6)
    assert second != 0.0 if kl in ("k1", "fkl") else second > 0


@pytest.mark.parametrize("straight_through", [False, True])
@pytest.mark.parametrize("placement", ["ratio_loss", "loss"])
def test_k3_in_the_loss_with_and_without_the_ratio(policy: Policy, placement: str, straight_through: bool) -> None:
    def loss(row: Row) -> Tensor:
        log_r = row.ref_logp - row.logp
        ratio = (row.logp - row.logp.detach()).exp() if placement == "ratio_loss" else 1.0
        kl = log_r.square() / 2 if straight_through else ratio * (log_r.exp() - 1 - log_r)  # the gradient is that of k2
        return policy_loss(row) + 0.2 * kl.sum()

    options = {"kl_placement": placement, "kl_args": {"straight_through": straight_through}}
    metrics = updated_by(policy, loss, beta=0.2, **options)
    assert metrics["kl_coef"] == 0.2
    assert metrics["kl"] == metrics["kl/k3"] > 0


@pytest.mark.parametrize("direction", ["reverse", "forward", "symmetric"])
def test_the_full_kl_in_the_loss(policy: Policy, direction: Any) -> None:
    def loss(row: Row) -> Tensor:
        return policy_loss(row) + 0.2 * full_kl(row.logits, row.ref_logits, direction=direction).sum()

    assert updated_by(policy, loss, beta=0.2, kl="full", kl_args={"direction": direction})["kl"] > 0


@pytest.mark.parametrize("kind", ["base", "reference"])
def test_the_full_kl_is_against_a_reference_without_dropout_and_the_policy_keeps_its_own(kind: str) -> None:
    network = model(1)
    network.config.attention_dropout = 0.5
    for layer in network.model.layers:
        layer.self_attn.attention_dropout = 0.5
    lora = LoraConfig(r=2, target_modules=["q_proj"], lora_dropout=0.5, init_lora_weights=kind == "base")
    policy = policy_of(get_peft_model(network, lora, autocast_adapter_dtype=False).double())
    policy.freeze_reference()
    assert policy.anchor.kind == kind
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.3)
    policy.model.train()
    updater = updater_of(policy, beta=0.2, kl="full")
    made = updater.batch(batch(), Snapshot(), ADVANTAGES)
    (micro,) = micro_batches(made, updater.forward.budget.limits, pair_cost(policy.model))
    inputs = (*made.rows(micro.rows).inputs, micro.packs)
    with policy.reference() as reference, evaluating(reference.model):
        ref_states = reference.states(*inputs)
    torch.manual_seed(5)
    expected = policy.states(*inputs).full_kl(ref_states, temperature=1.0, direction="reverse")
    torch.manual_seed(5)
    statistics = UpdateStatistics()
    updater.objective.add_gradient(made, updater.coefficients(), statistics, updater.optimizer)
    assert statistics.sums["kl"] == pytest.approx(float(expected.detach().sum()), rel=1e-9)
    assert all(module.training for module in policy.model.modules())


def test_kl_in_the_reward_leaves_the_loss_alone_and_measures_every_token(policy: Policy) -> None:
    tokens, updater = batch(), updater_of(policy, beta=0.2, kl="k1", kl_placement="reward")
    made = frozen(updater, tokens)
    for row, found in zip(rows_of(policy, policy.model, tokens), made.snapshot.token_kl, strict=True):
        assert torch.allclose(found[: len(row.logp)], row.logp.detach() - row.ref_logp, atol=1e-10)
    assert bool((made.snapshot.token_k3 >= 0).all())
    without = updated(policy_of(copy.deepcopy(policy.model)))
    assert update(updater, made)["grad_norm"] == pytest.approx(without["grad_norm"], rel=1e-12)


def test_the_kl_is_measured_at_beta_0_without_changing_the_update(policy: Policy) -> None:
    plain = policy_of(copy.deepcopy(policy.model))
    updated(plain, learning_rate=0.01)
    updated(policy, learning_rate=0.01, kl_metric=True)
    assert all(torch.equal(*both) for both in zip(plain.parameters(), policy.parameters(), strict=True))


def test_a_warm_up_and_a_controller_move_beta(policy: Policy) -> None:
    rule = {"kl_controller": "ppo_rule", "kl_controller_args": {"target": 1e-9}}
    updater = updater_of(policy, beta=0.4, kl_warmup_steps=4, learning_rate=0.01, **rule)
    seen = [update(updater)["kl_coef"] for _ in range(3)]
    # The KL is far above its target, so β doubles after each update; the warm-up gives 1/4, 2/4, 3/4 of it.
    assert seen == pytest.approx([0.4 / 4, 0.8 * 2 / 4, 1.6 * 3 / 4])


def test_the_value_loss_trains_head_and_model(policy: Policy) -> None:
    policy.add_value_head(seed=0)
    head = policy.value_head.double()
    updater = updater_of(policy, value_head=True, value_loss_coef=0.5, value_clip=None)
    made = frozen(updater, returns=torch.ones(4, 5, dtype=torch.float64))
    assert bool((made.snapshot.old_values == 0).all())  # before it has learnt
    # ½(0 − 1)² on each of 12 tokens, each weighing 1 / (4 · 8).
    assert update(updater, made)["loss/value"] == pytest.approx(0.5 * 12 / 32)
    assert bool((head.outer.bias != 0).all())
