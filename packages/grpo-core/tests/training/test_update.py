import copy
import math
from dataclasses import replace

import pytest
import torch
from small_policies import update
from transformers import LlamaConfig, LlamaForCausalLM

from grpo_core.config import RunConfig, TrainerConfig
from grpo_core.engines.completion import Completion
from grpo_core.plugins.models import ModelSource
from grpo_core.policy.policy import Policy
from grpo_core.rollouts.rollout import Rollout, Turn
from grpo_core.task.row import Row
from grpo_core.task.score import Score
from grpo_core.training.algorithm import Algorithm
from grpo_core.training.batch import TrainBatch, collate, micro_batches
from grpo_core.training.update import Updater

LENGTHS = [(3, 4), (5, 1), (2, 6), (4, 2)]  # (prompt, completion) tokens of each row
ADVANTAGES = [0.5, -1.0, 0.0, 0.25]


@pytest.fixture
def policy() -> Policy:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=17, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=32, tie_word_embeddings=True,
    )  # fmt: skip
    model = LlamaForCausalLM(config).double()
    return Policy(model, None, ModelSource("folder", "x", "x", ""), torch.device("cpu"), None)


def batch(*, truncated: int | None = None, mask_truncated: bool = False) -> TrainBatch:
    generator = torch.Generator().manual_seed(1)
    rollouts = []
    for index, (n_prompt, n_completion) in enumerate(LENGTHS):
        ids = torch.randint(0, 17, (n_prompt + n_completion,), generator=generator).tolist()
        completion = Completion(
            tuple(ids[n_prompt:]), (-1.0,) * n_completion, "", "length" if index == truncated else "stop", 0
        )
        turn = Turn(tuple(ids[:n_prompt]), completion)
        rollouts.append(Rollout("t.t", Row(id=str(index)), index, "", (turn,), Score(0.0), "scored"))
    made = collate(rollouts, pad_id=0, mask_truncated=mask_truncated)
    return replace(made, advantages=torch.tensor(ADVANTAGES, dtype=torch.float64))


def updated(policy: Policy, **options: object) -> tuple[dict[str, float], torch.Tensor]:
    """Metrics of one update and the weights after it."""
    policy = Policy(copy.deepcopy(policy.model), None, policy.source, policy.device, None)
    config = TrainerConfig(**{"learning_rate": 1e-2, "num_generations": 2, "prompts_per_step": 2, **options})
    updater = Updater(policy, Algorithm.of(config), total_steps=4)
    if config.beta:
        policy.freeze_reference()
    metrics = update(updater, updater.forward.freeze(batch()))
    return metrics, torch.cat([parameter.detach().flatten() for parameter in policy.parameters()])


@pytest.mark.parametrize("loss_type", ["dr_grpo", "grpo", "dapo"])
def test_any_split_into_micro_batches_gives_the_same_update(policy: Policy, loss_type: str) -> None:
    whole, weights = updated(policy, loss_type=loss_type, micro_batch_size=4)
    for options in ({"micro_batch_size": 1}, {"micro_batch_size": 2}, {"micro_batch_tokens": 9}):
        metrics, other = updated(policy, loss_type=loss_type, **options)
        assert metrics["loss"] == pytest.approx(whole["loss"], rel=1e-12)
        assert metrics["grad_norm"] == pytest.approx(whole["grad_norm"], rel=1e-12)
        assert torch.allclose(weights, other, atol=1e-12, rtol=0)


def test_the_loss_is_the_formula(policy: Policy) -> None:
    # On-policy the ratio is 1, so Σ −A_i · T_i / (B · L) with T = 4, 1, 6, 2, B = 4 and L = 256.
    metrics, _ = updated(policy)
    expected = -(0.5 * 4 - 1.0 * 1 + 0.0 * 6 + 0.25 * 2) / (4 * 256)
    assert metrics["loss"] == pytest.approx(expected, rel=1e-12)
    assert metrics["ratio_mean"] == 1.0
    assert metrics["clip_ratio/low"] == metrics["clip_ratio/high"] == 0.0


def test_the_gradient_is_the_naive_one(policy: Policy) -> None:
    model, total = copy.deepcopy(policy.model), torch.zeros((), dtype=torch.float64)
    made = batch()
    for row, advantage in enumerate(ADVANTAGES):
        n_prompt, n = int(made.prompt_lens[row]), int(made.prompt_lens[row] + made.completion_lens[row])
        ids = made.input_ids[row : row + 1, :n]
        logp = model(ids).logits[0, n_prompt - 1 : -1].log_softmax(-1).gather(-1, ids[0, n_prompt:, None])[:, 0]
        total = total - advantage * (logp - logp.detach()).exp().sum() / (4 * 256)
    total.backward()
    naive = math.sqrt(sum(float((p.grad**2).sum()) for p in model.parameters()))
    assert updated(policy, max_grad_norm=1e9)[0]["grad_norm"] == pytest.approx(naive, rel=1e-10)


def test_more_iterations_move_the_ratio_away_from_one(policy: Policy) -> None:
    metrics, _ = updated(policy, num_iterations=3)
    assert metrics["ratio_mean"] != 1.0


def test_steps_per_generation_split_the_batch_and_keep_the_old_log_probs(policy: Policy) -> None:
    config = TrainerConfig(learning_rate=1e-2, num_generations=2, prompts_per_step=2, steps_per_generation=2)
    updater = Updater(policy, Algorithm.of(config), total_steps=1)
    metrics = update(updater, updater.forward.freeze(batch()))
    assert updater.optimizer.updates == 2
    assert metrics["ratio_mean"] != 1.0  # the second half was sampled by the policy before the first half's update


def test_kl_is_zero_at_the_start_and_pulls_back_later(policy: Policy) -> None:
    metrics, _ = updated(policy, beta=0.1)
    assert metrics["kl"] == pytest.approx(0.0, abs=1e-12)
    metrics, _ = updated(policy, beta=0.1, num_iterations=4)
    assert metrics["kl"] > 0


def test_a_truncated_completion_is_masked_and_still_counts_as_a_row() -> None:
    made = batch(truncated=0, mask_truncated=True)
    assert made.mask.sum(dim=1).tolist() == [0, 1, 6, 2]
    assert len(made) == 4


@pytest.mark.parametrize("pair_cost", [0.0, 0.01, math.inf])
@pytest.mark.parametrize("limit", [{"max_rows": None, "max_tokens": 14}, {"max_rows": 1, "max_tokens": 99}])
def test_micro_batches_hold_every_row_once(pair_cost: float, limit: dict) -> None:
    made = list(micro_batches(batch(), pair_cost=pair_cost, **limit))
    assert sorted(row for micro in made for row in micro.rows.tolist()) == [0, 1, 2, 3]
    for micro in made:
        assert sorted(place for pack in micro.packs for place in pack) == list(range(len(micro.rows)))
        if limit["max_rows"]:
            assert len(micro.rows) == 1


def test_temperature_divides_the_logits_of_the_trainer_too(policy: Policy) -> None:
    made = batch()
    ids, prompts, completions = made.input_ids, made.prompt_lens, made.completion_lens
    alone = [(row,) for row in range(len(made))]
    cold, _ = policy.states(ids, prompts, completions, alone).logprobs(temperature=0.7)
    row = made.input_ids[:1, :7]
    expected = (policy.model(row).logits[0, 2:-1] / 0.7).log_softmax(-1).gather(-1, row[0, 3:, None])[:, 0]
    assert torch.allclose(cold[0, :4], expected, atol=1e-10)


def test_defaults_are_dr_grpo() -> None:
    trainer = RunConfig().trainer
    assert (trainer.loss_type, trainer.beta, trainer.num_generations, trainer.epsilon) == ("dr_grpo", 0.0, 8, 0.2)
