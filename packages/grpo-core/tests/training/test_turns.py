"""Rollouts of several turns: the rows of a batch, their advantages (GAE among them), denominators and gradients."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from small_policies import collated, model, policy_of, rollout, settings, turn
from transformers import GPT2Config, GPT2LMHeadModel

from grpo_core.algorithms.aggregation import token_weights
from grpo_core.policy.ranks import Ranks
from grpo_core.rollouts.rollout import Rollout
from grpo_core.training.advantages import AdvantageEstimator
from grpo_core.training.algorithm import Algorithm
from grpo_core.training.batch import Snapshot, TokenBatch, TrainBatch
from grpo_core.training.collect import length_penalty
from grpo_core.training.forward import ForwardPasses
from grpo_core.training.statistics import UpdateStatistics
from grpo_core.training.update import Updater
from grpo_sdk import Score, load_task

CONVERSATION = rollout(turn((1, 2), (3, 4)), turn((1, 2, 3, 4, 9, 9), (5,)))
APART = rollout(turn((1, 2), (3,)), turn((7,), (4, 5)))
SHORT = rollout(turn((1, 2), (6,)))
NOTHING = Snapshot()


# Rows


def test_turns_that_go_on_are_one_row_with_a_hole() -> None:
    batch = collated(CONVERSATION)
    assert batch.input_ids.tolist() == [[1, 2, 3, 4, 9, 9, 5]]
    assert (batch.prompt_lens.tolist(), batch.completion_lens.tolist()) == ([2], [5])
    assert batch.mask.tolist() == [[True, True, False, False, True]]
    assert batch.sampler_logprobs.tolist() == [[-0.5, -0.5, 0.0, 0.0, -0.5]]
    assert batch.turns_left is not None and batch.turns_left.tolist() == [[1, 1, 0, 0, 0]]
    assert batch.n_tokens == 3


def test_turns_with_prompts_of_their_own_are_rows_of_one_rollout() -> None:
    batch = collated(APART, SHORT)
    assert batch.input_ids.tolist() == [[1, 2, 3], [7, 4, 5], [1, 2, 6]]
    assert batch.rollouts.tolist() == [0, 0, 1]
    assert batch.prompts.tolist() == [0, 1, 0]


@pytest.mark.parametrize(("rollouts", "mask"), [
    ([rollout(turn((1,), (2,), trained=False), turn((1, 2), (3,)))], [[0, 1]]),  # somebody else's turn is context
    ([rollout(turn((1,), (2, 3), "length"), turn((1, 2, 3), (4,)))], [[0, 0, 1]]),  # a truncated turn
    ([rollout(role="second"), rollout(turn((1,), (2, 3)), role="first")], [[0, 0], [1, 1]]),  # a seat never reached
])  # fmt: skip
def test_what_is_not_trained_is_left_out(rollouts: list[Rollout], mask: list[list[int]]) -> None:
    assert collated(*rollouts, mask_truncated=True).mask.int().tolist() == mask


@pytest.mark.parametrize(
    ("how", "first"),
    [("constant", 1 / (2 * 10)), ("sequence_mean", 1 / (2 * 3)), ("sequence_sum", 1 / 2), ("token_mean", 1 / 4)],
)
def test_denominators_count_rollouts_and_all_of_their_tokens(how: str, first: float) -> None:
    batch = collated(APART, SHORT)  # one of two turns with 1 + 2 tokens, one of a single token
    weights = token_weights(batch.mask, how, max_completion_length=10, rollouts=batch.rollouts)  # type: ignore[arg-type]
    assert weights[0, 0].item() == weights[1, 1].item() == pytest.approx(first)


# Advantages


def estimator_of(**options: object) -> AdvantageEstimator:
    return AdvantageEstimator(Algorithm.of(settings(**{"scale_rewards": "none", **options})), {})


def estimated(
    *rollouts: Rollout,
    snapshot: Snapshot = NOTHING,
    rewards: list[float] | None = None,
    beta: float = 0.0,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Advantages and returns."""
    values = [one.score.value for one in rollouts if one.score is not None] if rewards is None else rewards
    tensor = torch.tensor(values, dtype=torch.float64)
    labels = ["t"] * len(rollouts)
    return estimator_of(**options)(collated(*rollouts), snapshot, rollouts, tensor, labels, beta=beta)


def test_every_row_has_the_advantage_of_its_rollout_and_later_turns_discount_a_return() -> None:
    rollouts = [APART, replace(SHORT, score=Score(0.0))]
    assert estimated(*rollouts)[0].tolist() == [0.5, 0.5, -0.5]  # group mean 0.5
    rollouts = [CONVERSATION, replace(CONVERSATION, score=Score(0.0))]
    made, _ = estimated(*rollouts, turn_gamma=0.5)
    assert made[0, [0, 1, 4]].tolist() == [0.25, 0.25, 0.5]
    assert made[1, 4].item() == -0.5


def test_roles_have_baselines_of_their_own() -> None:
    rollouts = [
        rollout(turn((1,), (2,)), role="first"),
        rollout(turn((7,), (3,)), role="second", group=1),
        rollout(turn((1,), (2,)), role="first"),
    ]
    estimator = estimator_of(baseline="role")
    rewards = torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64)
    made, _ = estimator(collated(*rollouts), NOTHING, rollouts, rewards, ["t"] * 3, beta=0.0)
    # b starts at 0 and is read before it moves to 0.05 of what it sees
    assert made.tolist() == pytest.approx([1.0, -1.0, 0.95])
    # One mean for both: b = 0, 0.05, 0.95 · 0.05 − 0.05 = −0.0025, so A = 1, −1.05, 1.0025.
    assert estimator.metrics["baseline/roles_mse"] == pytest.approx((1 + 1 + 0.95**2) / 3)
    assert estimator.metrics["baseline/pooled_mse"] == pytest.approx((1 + 1.05**2 + 1.0025**2) / 3)
    estimator(collated(*rollouts), NOTHING, rollouts, rewards * torch.nan, ["t"] * 3, beta=0.0)
    assert estimator.metrics == {}, "of a batch that nobody could score there is nothing to compare"


def test_the_mean_of_a_task_without_roles_moves_once_a_step_and_is_compared_with_none() -> None:
    rollouts = [rollout(turn((1,), (2,)), role="first"), rollout(turn((1,), (4,)), group=1)]
    estimator = estimator_of(baseline="role")
    estimator(collated(*rollouts), NOTHING, rollouts, torch.ones(2, dtype=torch.float64), ["game", "sums"], beta=0.0)
    assert estimator.state["sums"] == pytest.approx(0.05)
    estimator = estimator_of(baseline="role")
    estimator(collated(SHORT), NOTHING, [SHORT], torch.ones(1, dtype=torch.float64), ["t"], beta=0.0)
    assert estimator.metrics == {}


# Advantages of a value head

GAMMA, LAM = 0.9, 0.8
GAE: dict[str, Any] = {
    "baseline": "value", "value_head": True, "use_gae": True, "gae_gamma": GAMMA, "gae_lambda": LAM,
    "advantage_args": {"whiten": False},
}  # fmt: skip
CUT = rollout(turn((1, 2), (3, 4, 5), "length"))
ENDED = rollout(turn((1, 2), (3, 4)))


def frozen(batch: TokenBatch, network: Any = None, **options: object) -> Snapshot:
    policy = policy_of(network or model(0))
    policy.add_value_head(seed=0)
    assert policy.value_head is not None
    head = policy.value_head.double()
    torch.nn.init.normal_(head.outer.weight, generator=torch.Generator().manual_seed(0))
    algorithm = Algorithm.of(settings(**{**GAE, "scale_rewards": "none", **options}))
    return ForwardPasses(policy, algorithm, Ranks()).snapshot(batch)


def test_turns_in_rows_of_their_own_are_one_sequence() -> None:
    other = rollout(turn((1,), (6,)), value=0.0)  # without a second row, so that rows are padded
    apart = rollout(turn((1, 2), (3, 4)), turn((7,), (5,)))
    wide = torch.tensor([[0.5, 0.25], [0.125, 9.0], [0.3, 9.0]], dtype=torch.float64)
    rows, returns = estimated(apart, other, snapshot=Snapshot(old_values=wide), **GAE)
    wide = torch.tensor([[0.5, 0.25, 9.0, 9.0, 0.125], [0.3, 9.0, 9.0, 9.0, 9.0]], dtype=torch.float64)
    row, _ = estimated(CONVERSATION, other, snapshot=Snapshot(old_values=wide), **GAE)

    third = 1.0 - 0.125
    second = GAMMA * 0.125 - 0.25 + GAMMA * LAM * third
    first = GAMMA * 0.25 - 0.5 + GAMMA * LAM * second
    assert row[0, [0, 1, 4]].tolist() == pytest.approx([first, second, third])
    assert rows.tolist() == [pytest.approx(each) for each in ([first, second], [third, 0.0], [-0.3, 0.0])]
    assert returns is not None
    assert returns[0].tolist() == pytest.approx([first + 0.5, second + 0.25])


def test_what_the_length_limit_ended_goes_on_with_the_value_of_its_last_state() -> None:
    batch = frozen(collated(CUT, ENDED), gae_bootstrap=True)
    longer = frozen(collated(rollout(turn((1, 2), (3, 4, 5, 6))), ENDED))
    assert longer.old_values is not None and batch.old_values is not None and batch.last_values is not None
    assert torch.allclose(batch.old_values[0], longer.old_values[0, :3])
    assert batch.last_values.tolist() == pytest.approx([longer.old_values[0, 3].item(), 0.0])

    made, returns = estimated(CUT, ENDED, snapshot=batch, gae_bootstrap=True, **GAE)
    values, last = batch.old_values, batch.last_values[0]
    assert made[0, 2].item() == pytest.approx((GAMMA * last - values[0, 2]).item())  # its reward is left out
    assert made[1, 1].item() == pytest.approx((1.0 - values[1, 1]).item())
    assert returns is not None and returns[0, 2].item() == pytest.approx((GAMMA * last).item())

    unscored, returns = estimated(CUT, ENDED, snapshot=batch, rewards=[torch.nan, 1.0], gae_bootstrap=True, **GAE)
    assert unscored[0].abs().max() == 0
    assert returns is not None and torch.equal(returns[0], values[0])

    unended = frozen(collated(CUT, ENDED))
    assert unended.last_values is None, "by default the length limit is part of the task"
    by_default, _ = estimated(CUT, ENDED, snapshot=unended, **GAE)
    assert by_default[0, 2].item() == pytest.approx((1.0 - values[0, 2]).item())


def test_a_rollout_that_ends_with_the_context_is_valued_to_its_end() -> None:
    torch.manual_seed(0)
    sizes = {"vocab_size": 13, "n_embd": 16, "n_layer": 2, "n_head": 2}
    network = GPT2LMHeadModel(GPT2Config(**sizes, n_positions=5)).double().eval()
    batch = frozen(collated(CUT), network, gae_bootstrap=True)  # alone, so that nothing is packed
    wider = GPT2LMHeadModel(GPT2Config(**sizes, n_positions=6)).double().eval()
    state = network.state_dict()
    state["transformer.wpe.weight"] = torch.cat((state["transformer.wpe.weight"], torch.zeros(1, 16)))
    wider.load_state_dict(state)
    longer = frozen(collated(rollout(turn((1, 2), (3, 4, 5, 6)))), wider)
    assert batch.last_values is not None and longer.old_values is not None
    assert batch.last_values.tolist() == pytest.approx([longer.old_values[0, 3].item()])


@pytest.mark.parametrize(("one", "mask_truncated", "is_cut"), [
    (rollout(turn((1, 2), (3, 4), "length"), turn((7,), (5,))), False, [False, False]),
    (rollout(turn((1, 2), (3, 4)), turn((7,), (5,), "length")), False, [False, True]),
    (CUT, True, [False]),
])  # fmt: skip
def test_only_the_end_of_a_rollout_is_cut(one: Rollout, mask_truncated: bool, is_cut: list[bool]) -> None:
    found = collated(one, mask_truncated=mask_truncated).is_cut
    assert found.tolist() == is_cut


def test_the_penalty_of_the_reward_is_taken_off_the_returns_once() -> None:
    kl = torch.tensor([[0.5, 0.25]], dtype=torch.float64)
    snapshot = Snapshot(old_values=torch.zeros(1, 2), token_kl=kl)
    _, returns = estimated(ENDED, snapshot=snapshot, value_head=True, baseline="ema", beta=0.1)
    assert returns is not None
    assert returns[0].tolist() == pytest.approx([1.0 - 0.1 * 0.75, 1.0 - 0.1 * 0.25])


# Gradients


def gradient(tokens: TokenBatch, *advantages: float, **options: object) -> torch.Tensor:
    policy = policy_of(model(1))
    updater = Updater(policy, Algorithm.of(settings(**options)), total_steps=1, max_turns=2)
    batch = updater.batch(tokens, NOTHING, torch.tensor(advantages, dtype=torch.float64))
    updater.objective.add_gradient(batch, updater.coefficients(), UpdateStatistics(), updater.optimizer)
    return torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])


def test_one_row_with_a_hole_teaches_what_two_rows_teach() -> None:
    first, second = CONVERSATION.turns
    split = collated(rollout(first), rollout(second), SHORT)  # what stands in the hole is no completion here
    split = replace(split, rollouts=torch.tensor([0, 0, 1]), prompts=torch.tensor([0, 1, 0]))
    merged = gradient(collated(CONVERSATION, SHORT), 1.0, -0.5)
    assert torch.allclose(merged, gradient(split, 1.0, 1.0, -0.5), atol=1e-7)
    assert merged.abs().max() > 0


def test_steps_of_a_batch_hold_whole_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    rollouts = [
        rollout(*[turn((index + 1, n + 1), (3,)) for n in range(1 + 3 * (index == 0))], group=index // 2)
        for index in range(4)
    ]
    seen: list[list[int]] = []

    def step(updater: Updater, part: TrainBatch) -> dict[str, float]:
        seen.append(part.groups.tolist())
        return {}

    monkeypatch.setattr(Updater, "_step", step)
    algorithm = Algorithm.of(settings(steps_per_generation=2, prompts_per_step=2))
    updater = Updater(policy_of(model(1)), algorithm, total_steps=1)
    updater.update(updater.batch(collated(*rollouts), NOTHING, torch.ones(7, dtype=torch.float64)))
    assert seen == [[0] * 5, [1] * 2]


@pytest.mark.parametrize(
    ("limit", "length", "expected"), [(None, 230, 0.0), (None, 256, -1.0), (12, 10, 0.0), (12, 12, -1.0)]
)
def test_the_overlong_penalty_is_within_the_limit_of_the_task(limit: int | None, length: int, expected: float) -> None:
    task = replace(load_task("math.arithmetic").task, max_completion_length=limit)
    trainer = settings(max_completion_length=256, soft_overlong_buffer=26)
    assert length_penalty(trainer, task, rollout(turn((1,), tuple(range(length))))) == expected
