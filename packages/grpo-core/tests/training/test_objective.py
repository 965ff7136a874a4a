"""Each term of the loss, checked against its formula written out on whole logits."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from small_policies import ADVANTAGES, LENGTH, LENGTHS, batch, model, policy_of, settings, update
from torch import Tensor
from transformers import LlamaForCausalLM

from grpo_core.algorithms.causal_lm import evaluating
from grpo_core.algorithms.kl import full_kl
from grpo_core.algorithms.logprobs import full_entropy
from grpo_core.config import TrainerConfig
from grpo_core.engines.completion import Completion
from grpo_core.policy.policy import Policy
from grpo_core.rollouts.rollout import Rollout, Turn
from grpo_core.task.row import Row
from grpo_core.task.score import Score
from grpo_core.training.algorithm import Algorithm
from grpo_core.training.batch import TrainBatch, collate
from grpo_core.training.statistics import UpdateStatistics
from grpo_core.training.update import Updater

MODEL_PRECISION = 1e-6
"""Llama's RMSNorm computes in float32, where a batch and a row alone may round differently."""


@pytest.fixture
def policy() -> Policy:
    """A policy that has moved away from its reference."""
    made = policy_of(model(1))
    made.freeze_reference()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)))
    return made


def with_dropout(network: LlamaForCausalLM) -> LlamaForCausalLM:
    """The model with dropout in its attention."""
    network.config.attention_dropout = 0.5
    for layer in network.model.layers:
        layer.self_attn.attention_dropout = 0.5
    return network


def logits(network: LlamaForCausalLM, made: TrainBatch, row: int) -> Tensor:
    """Logits [T, V] that predict a row's completion."""
    n_prompt, n = LENGTHS[row]
    return network(made.input_ids[row : row + 1, : n_prompt + n]).logits[0, n_prompt - 1 : -1]


def tokens(made: TrainBatch, row: int) -> Tensor:
    n_prompt, n = LENGTHS[row]
    return made.input_ids[row, n_prompt : n_prompt + n]


def gradient_norm(policy: Policy, loss_of_row: object) -> float:
    """Norm of the gradient of Σ_rows loss_of_row / (B · L): each token weighs 1 / (4 · 8)."""
    network = copy.deepcopy(policy.model)
    total = sum(loss_of_row(network, row) for row in range(len(LENGTHS))) / (len(LENGTHS) * LENGTH)
    total.backward()
    return math.sqrt(sum(float(p.grad.square().sum()) for p in network.parameters()))


def updated(policy: Policy, config: TrainerConfig, made: TrainBatch | None = None) -> dict[str, float]:
    updater = Updater(policy, Algorithm.of(config), total_steps=4)
    return update(updater, updater.forward.freeze(batch() if made is None else made))


def logp_of(network: LlamaForCausalLM, made: TrainBatch, row: int) -> Tensor:
    return logits(network, made, row).log_softmax(-1).gather(-1, tokens(made, row)[:, None])[:, 0]


def test_the_entropy_bonus_is_that_of_the_whole_vocabulary(policy: Policy) -> None:
    made = batch()

    def loss(network: LlamaForCausalLM, row: int) -> Tensor:
        return (
            -(ADVANTAGES[row] * logp_of(network, made, row)).sum()
            - 0.3 * full_entropy(logits(network, made, row)).sum()
        )

    expected = gradient_norm(policy, loss)
    count = sum(n for _, n in LENGTHS)
    entropy = sum(float(full_entropy(logits(policy.model, made, row)).detach().sum()) for row in range(4)) / count
    metrics = updated(policy, settings(entropy_coef=0.3))
    # On-policy the gradient of ρA is that of A·log π.
    assert metrics["grad_norm"] == pytest.approx(expected, rel=MODEL_PRECISION)
    assert metrics["entropy"] == pytest.approx(entropy, rel=MODEL_PRECISION)
    assert metrics["entropy_coef"] == 0.3


@pytest.mark.parametrize("placement", ["ratio_loss", "loss"])
def test_k3_in_the_loss_with_and_without_the_ratio(policy: Policy, placement: str) -> None:
    made, reference = batch(), policy._reference.frozen

    def loss(network: LlamaForCausalLM, row: int) -> Tensor:
        logp, ref_logp = logp_of(network, made, row), logp_of(reference, made, row).detach()
        k3 = (ref_logp - logp).exp() - 1 - (ref_logp - logp)
        ratio = (logp - logp.detach()).exp() if placement == "ratio_loss" else 1.0
        return -(ADVANTAGES[row] * logp).sum() + 0.2 * (ratio * k3).sum()

    expected = gradient_norm(policy, loss)
    metrics = updated(policy, settings(beta=0.2, kl_placement=placement))
    assert metrics["grad_norm"] == pytest.approx(expected, rel=MODEL_PRECISION)
    assert metrics["kl_coef"] == 0.2
    assert metrics["kl"] == metrics["kl/k3"] > 0


def test_the_penalty_of_dro_holds_for_rows_without_advantage(policy: Policy) -> None:
    advantages = torch.tensor([0.0, 0.0, 0.75, 0.25], dtype=torch.float64)
    options = {"loss_type": "dro", "loss_args": {"beta": 0.5}, "aggregation": "constant"}
    updater = Updater(policy, Algorithm.of(settings(**options, num_iterations=2, learning_rate=0.0)), total_steps=4)
    made = updater.forward.freeze(batch())
    made = replace(made, advantages=advantages, old_logprobs=made.old_logprobs - 0.7)

    def loss(network: LlamaForCausalLM, row: int) -> Tensor:
        logp = logp_of(network, made, row)
        return -(advantages[row] * logp - 0.5 / 2 * (logp - logp.detach() + 0.7) ** 2).sum()

    assert update(updater, made)["grad_norm"] == pytest.approx(gradient_norm(policy, loss), rel=MODEL_PRECISION)


def every_token(policy: Policy, config: TrainerConfig, sampler: Tensor | None = None) -> tuple[Updater, TrainBatch]:
    """Every token of the vocabulary once after one prompt, weighed by its probability [V] under the sampler.

    Args:
        policy: The policy, which is the sampler too if none is given.
        config: Settings of the updater.
        sampler: Log-probs of the sampler.
    """
    tokens = torch.arange(13)
    rollouts = [
        Rollout(
            "t", Row(id="x"), 0, "", (Turn((3, 1), Completion((token,), (-2.0,), "", "stop", 0)),), Score(0.0), "scored"
        )
        for token in tokens.tolist()
    ]
    updater = Updater(policy, Algorithm.of(config), total_steps=4)
    made = updater.forward.freeze(collate(rollouts, pad_id=0, mask_truncated=False))
    old = made.old_logprobs if sampler is None else sampler[:, None]
    return updater, replace(made, old_logprobs=old, weights=old.exp())


@pytest.mark.parametrize("is_on_policy", [True, False])
@pytest.mark.parametrize("placement", ["ratio_loss", "loss"])
@pytest.mark.parametrize("kl", ["k1", "k3"])
def test_a_straight_through_kl_has_the_gradient_of_the_kl(
    policy: Policy, kl: str, placement: str, *, is_on_policy: bool
) -> None:
    config = settings(beta=1.0, kl=kl, kl_placement=placement, kl_args={"straight_through": True}, num_iterations=2)
    sampler = None if is_on_policy else torch.linspace(-1, 1, 13, dtype=torch.float64).log_softmax(0)
    updater, made = every_token(policy, config, sampler)
    updater.gradient.add(made, updater.coefficients(), UpdateStatistics())
    found = [parameter.grad.clone() for parameter in policy.parameters()]
    inputs = made.input_ids[:1, :2]
    exact = full_kl(policy.model(inputs).logits[0, -1], policy._reference.frozen(inputs).logits[0, -1].detach())
    gradients = torch.autograd.grad(exact, policy.parameters())
    is_exact = is_on_policy or placement == "ratio_loss"
    is_close = [
        torch.allclose(ours, theirs, rtol=1e-5, atol=1e-8) for ours, theirs in zip(found, gradients, strict=True)
    ]
    assert all(is_close) == is_exact


@pytest.mark.parametrize("direction", ["reverse", "forward", "symmetric"])
def test_the_full_kl_in_the_loss(policy: Policy, direction: str) -> None:
    made, reference = batch(), policy._reference.frozen

    def loss(network: LlamaForCausalLM, row: int) -> Tensor:
        kl = full_kl(logits(network, made, row), logits(reference, made, row).detach(), direction=direction)
        return -(ADVANTAGES[row] * logp_of(network, made, row)).sum() + 0.2 * kl.sum()

    expected = gradient_norm(policy, loss)
    metrics = updated(policy, settings(beta=0.2, kl="full", kl_args={"direction": direction}))
    assert metrics["grad_norm"] == pytest.approx(expected, rel=MODEL_PRECISION)
    assert metrics["kl"] > 0


@pytest.mark.parametrize("kind", ["base", "reference"])
def test_the_full_kl_is_against_a_reference_without_dropout_and_the_policy_keeps_its_own(kind: str) -> None:
    lora = LoraConfig(r=2, target_modules=["q_proj"], lora_dropout=0.5, init_lora_weights=kind == "base")
    policy = policy_of(get_peft_model(with_dropout(model(1)), lora, autocast_adapter_dtype=False).double())
    policy.freeze_reference()
    assert policy.reference_kind == kind
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.3)
    policy.model.train()
    updater = Updater(policy, Algorithm.of(settings(beta=0.2, kl="full")), total_steps=4)
    made = updater.gradient.weighted(batch())
    ((micro, rows),) = updater.forward.passes(made)
    inputs = (rows.input_ids, rows.prompt_lens, rows.completion_lens, micro.packs)
    with policy.reference() as reference, evaluating(reference.model):
        ref_states = reference.states(*inputs)
    torch.manual_seed(5)
    expected = policy.states(*inputs).full_kl(ref_states, temperature=1.0, direction="reverse")
    torch.manual_seed(5)
    statistics = UpdateStatistics()
    updater.gradient.add(made, updater.coefficients(), statistics)
    assert statistics.sums["kl"] == pytest.approx(float(expected.detach().sum()), rel=1e-9)
    assert all(module.training for module in policy.model.modules())


def test_kl_in_the_reward_leaves_the_loss_alone_and_measures_every_token(policy: Policy) -> None:
    made = batch()
    updater = Updater(policy, Algorithm.of(settings(beta=0.2, kl="k1", kl_placement="reward")), total_steps=4)
    frozen = updater.forward.freeze(made)
    for row in range(4):
        n = LENGTHS[row][1]
        k1 = logp_of(policy.model, made, row) - logp_of(policy._reference.frozen, made, row)
        assert torch.allclose(frozen.token_kl[row, :n], k1.detach(), atol=1e-10)
    assert bool((frozen.token_k3 >= 0).all())
    without = updated(policy_of(copy.deepcopy(policy.model)), settings())
    assert update(updater, frozen)["grad_norm"] == pytest.approx(without["grad_norm"], rel=1e-12)


def test_the_kl_is_measured_at_beta_0_without_changing_the_update(policy: Policy) -> None:
    plain = copy.deepcopy(policy.model)
    updated(policy_of(plain), settings(learning_rate=0.01))
    updated(policy, settings(learning_rate=0.01, kl_metric=True))
    for one, other in zip(plain.parameters(), policy.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_only_the_tokens_of_highest_entropy_are_trained(policy: Policy) -> None:
    made = batch()
    entropies = [full_entropy(logits(policy.model, made, row)).detach() for row in range(4)]
    threshold = torch.quantile(torch.cat(entropies), 0.75)

    def loss(network: LlamaForCausalLM, row: int) -> Tensor:
        return -(ADVANTAGES[row] * logp_of(network, made, row))[entropies[row] >= threshold].sum()

    expected = gradient_norm(policy, loss)
    metrics = updated(policy, settings(top_entropy_quantile=0.25))
    assert metrics["grad_norm"] == pytest.approx(expected, rel=MODEL_PRECISION)


def test_truncated_importance_weights_against_the_sampler(policy: Policy) -> None:
    made = batch()

    def loss(network: LlamaForCausalLM, row: int) -> Tensor:
        logp = logp_of(network, made, row)
        weight = (logp.detach() + 2.0).exp().clamp(max=1.5)  # the sampler reported −2 for every token
        return -(ADVANTAGES[row] * weight * logp).sum()

    expected = gradient_norm(policy, loss)
    metrics = updated(policy, settings(rollout_correction="token_truncate", rollout_correction_max=1.5))
    assert metrics["grad_norm"] == pytest.approx(expected, rel=MODEL_PRECISION)


def test_rows_of_negative_advantage_that_left_the_sampler_are_left_out(policy: Policy) -> None:
    made = batch(sampler_shift=5.0)  # the sampler found every token far likelier than the policy does

    def loss(network: LlamaForCausalLM, row: int) -> Tensor:
        kept = float(ADVANTAGES[row] >= 0)
        return -(kept * ADVANTAGES[row] * logp_of(network, made, row)).sum()

    expected = gradient_norm(policy, loss)
    metrics = updated(policy, settings(off_policy_mask_threshold=0.5), made)
    assert metrics["grad_norm"] == pytest.approx(expected, rel=MODEL_PRECISION)


def test_the_value_loss_trains_head_and_model(policy: Policy) -> None:
    policy.add_value_head(seed=0)
    head = policy.value_head.double()
    updater = Updater(
        policy, Algorithm.of(settings(value_head=True, value_loss_coef=0.5, value_clip=None)), total_steps=4
    )
    returns = torch.ones(4, 5, dtype=torch.float64)
    frozen = replace(updater.forward.freeze(batch()), returns=returns)
    assert bool((frozen.old_values == 0).all())  # before it has learnt
    metrics = update(updater, frozen)
    # ½(0 − 1)² on each of 12 tokens, each weighing 1 / (4 · 8).
    assert metrics["loss/value"] == pytest.approx(0.5 * 12 / 32)
    assert bool((head.outer.bias != 0).all())


def test_a_warm_up_and_a_controller_move_beta(policy: Policy) -> None:
    config = settings(
        beta=0.4, kl_warmup_steps=4, kl_controller="ppo_rule", kl_controller_args={"target": 1e-9}, learning_rate=0.01
    )
    updater = Updater(policy, Algorithm.of(config), total_steps=4)
    seen = []
    for _ in range(3):
        seen.append(update(updater, updater.forward.freeze(batch()))["kl_coef"])
    # The KL is far above its target, so β doubles after each update; the warm-up gives 1/4, 2/4, 3/4 of it.
    assert seen == pytest.approx([0.4 / 4, 0.8 * 2 / 4, 1.6 * 3 / 4])


def test_state_of_the_coefficients_survives_a_round_trip(policy: Policy) -> None:
    config = settings(beta=0.4, kl_controller="step_rule", entropy_coef=0.01, entropy_controller="adaptive")
    updater = Updater(policy, Algorithm.of(config), total_steps=4)
    update(updater, updater.forward.freeze(batch()))
    other = Updater(policy_of(copy.deepcopy(policy.model)), Algorithm.of(config), total_steps=4)
    other.load_state(updater.state())
    assert other.state() == updater.state()
    assert other.beta.in_effect == updater.beta.in_effect
