import copy
import json
import math
from dataclasses import replace

import pytest
import torch
from small_policies import update
from transformers import LlamaConfig, LlamaForCausalLM

from grpo_core.config import RunConfig, TrainerConfig
from grpo_core.engines.completion import Completion
from grpo_core.errors import NonFiniteError
from grpo_core.plugins.models import ModelSource
from grpo_core.policy.policy import Policy
from grpo_core.rollouts.rollout import Rollout, Turn
from grpo_core.task.row import Row
from grpo_core.task.score import Score
from grpo_core.training.algorithm import Algorithm
from grpo_core.training.batch import TrainBatch, collate, micro_batches
from grpo_core.training.update import MAX_SKIPPED_IN_A_ROW, Updater

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
    assert updater.updates == 2
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


def test_a_non_finite_gradient_is_skipped_and_counted_and_at_last_an_error(policy: Policy) -> None:
    updater = Updater(policy, Algorithm.of(TrainerConfig(num_generations=2, prompts_per_step=2)), total_steps=20)
    before = [parameter.detach().clone() for parameter in policy.parameters()]
    broken = batch()
    broken = TrainBatch(**{name: getattr(broken, name) for name in broken.__slots__} | {
        "advantages": torch.full((4,), math.inf, dtype=torch.float64)
    })  # fmt: skip
    for _ in range(MAX_SKIPPED_IN_A_ROW - 1):
        update(updater, broken)
    assert updater.skipped == MAX_SKIPPED_IN_A_ROW - 1
    assert all(torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))
    with pytest.raises(NonFiniteError, match="learning_rate"):
        update(updater, broken)


# --- float16


def half(**options: object) -> Updater:
    """An updater that trains a small model in float16."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=17, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=32, tie_word_embeddings=True,
    )  # fmt: skip
    source = ModelSource("folder", "x", "x", "")
    policy = Policy(LlamaForCausalLM(config), None, source, torch.device("cpu"), torch.float16)
    trainer = TrainerConfig(**{"learning_rate": 1e-2, "num_generations": 2, "prompts_per_step": 2, **options})
    return Updater(policy, Algorithm.of(trainer), total_steps=40)


def rescaled(updater: Updater, scale: float) -> Updater:
    updater.scaler.load_state_dict({**updater.scaler.state_dict(), "scale": scale})
    return updater


def weights(updater: Updater) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in updater.parameters]


def test_the_scale_leaves_no_trace_in_a_step() -> None:
    # A power of two: taking it out again is exact, so far as nothing under- or overflows.
    found = []
    for scale in (2.0**10, 2.0**16):
        updater = rescaled(half(max_grad_norm=0.001, micro_batch_size=1), scale)
        metrics = update(updater, batch())
        assert metrics.pop("loss_scale") == scale
        found.append((metrics, weights(updater)))
    (one, ours), (other, theirs) = found
    assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-3)
    assert one["grad_norm"] > 0.001, "clipping goes by the norm without the scale"
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(ours, theirs, strict=True))


def test_scaling_keeps_gradients_that_float16_would_lose() -> None:
    small = replace(batch(), advantages=1e-5 * torch.tensor(ADVANTAGES, dtype=torch.float64))
    kept, lost = half(), rescaled(half(), 1.0)
    expected = 1e-5 * update(half(), batch())["grad_norm"]
    assert update(kept, small)["grad_norm"] == pytest.approx(expected, rel=0.02)
    assert update(lost, small)["grad_norm"] < 0.7 * expected


def test_a_step_that_overflows_is_skipped_counted_and_halves_the_scale() -> None:
    updater = rescaled(half(), 2.0**60)
    before = weights(updater)
    metrics = update(updater, batch())
    assert updater.skipped == 1
    assert (metrics["loss_scale"], updater.scaler.get_scale()) == (2.0**60, 2.0**59)
    assert "grad_norm" not in metrics, "it has none, and a checkpoint holds no infinity"
    assert all(torch.equal(a, b) for a, b in zip(before, weights(updater), strict=True))
    assert updater.optimizer.state == {}


def test_finding_the_scale_ends_no_run_but_a_broken_model_does() -> None:
    updater = rescaled(half(), 2.0**60)
    for _ in range(MAX_SKIPPED_IN_A_ROW + 5):
        update(updater, batch())
    assert updater.skipped == MAX_SKIPPED_IN_A_ROW + 5
    endless = replace(batch(), advantages=torch.full((4,), 1e30, dtype=torch.float64))  # beyond any scale
    updater = half()
    with pytest.raises(NonFiniteError, match="precision=float32"):
        for _ in range(16 + MAX_SKIPPED_IN_A_ROW):
            update(updater, endless)
    assert updater.scaler.get_scale() <= 1


def test_a_loss_that_is_not_finite_says_nothing_about_the_scale() -> None:
    updater = half()
    update(updater, replace(batch(), advantages=torch.full((4,), math.nan, dtype=torch.float64)))
    assert (updater.skipped, updater.scaler.get_scale()) == (1, 2.0**16)
    update(updater, batch())
    assert updater.skipped == 1


def test_a_scaler_goes_on_where_it_was() -> None:
    first = rescaled(half(), 2.0**40)
    for _ in range(3):
        update(first, batch())
    state = json.loads(json.dumps(first.state()))
    second = half()
    second.policy.model.load_state_dict(first.policy.model.state_dict())
    second.load_state(state)
    assert second.state() == first.state()
    assert second.scaler.get_scale() == 2.0**37


def test_probes_measure_the_gradient_without_its_scale() -> None:
    options = {"gns_probe_steps": 1, "gns_probe_prompts": 1, "entropy_probe_steps": 1, "micro_batch_prompts": 1}
    found = [rescaled(half(**options), scale) for scale in (2.0**12, 2.0**15)]
    one, other = ([update(updater, batch()) for _ in range(2)][-1] for updater in found)
    for name in ("gns_probe/small_squared_norm", "entropy_probe/predicted_change"):
        assert one[name] == pytest.approx(other[name], rel=0.2), name  # a scale left in would be a factor of 8


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
