from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from small_policies import model, policy_of, settings

from grpo_core import Row, Score, Task, reward
from grpo_core.algorithms.aggregation import token_weights
from grpo_core.engines.completion import Completion, FinishReason
from grpo_core.rollouts.rollout import Rollout, Turn
from grpo_core.training.advantages import AdvantageEstimator
from grpo_core.training.algorithm import Algorithm
from grpo_core.training.batch import TrainBatch, collate
from grpo_core.training.collect import length_penalty
from grpo_core.training.statistics import UpdateStatistics
from grpo_core.training.update import Updater

PAD = 0


def turn(
    prompt: tuple[int, ...], tokens: tuple[int, ...], *, trained: bool = True, finish: FinishReason = "stop"
) -> Turn:
    return Turn(prompt, Completion(tokens, (-0.5,) * len(tokens), "", finish, 0), trained)


def rollout(*turns: Turn, group: int = 0, value: float = 1.0, role: str = "") -> Rollout:
    return Rollout("t", Row(id="r"), group, role, turns, Score(value), "scored")


def collated(*rollouts: Rollout, mask_truncated: bool = False) -> TrainBatch:
    return collate(rollouts, pad_id=PAD, mask_truncated=mask_truncated)


CONVERSATION = rollout(turn((1, 2), (3, 4)), turn((1, 2, 3, 4, 9, 9), (5,)))


def test_turns_that_go_on_are_one_row_with_a_hole() -> None:
    batch = collated(CONVERSATION)
    assert batch.input_ids.tolist() == [[1, 2, 3, 4, 9, 9, 5]]
    assert (batch.prompt_lens.tolist(), batch.completion_lens.tolist()) == ([2], [5])
    assert batch.mask.tolist() == [[True, True, False, False, True]]
    assert batch.sampler_logprobs.tolist() == [[-0.5, -0.5, 0.0, 0.0, -0.5]]
    assert batch.turns_left is not None and batch.turns_left.tolist() == [[1, 1, 0, 0, 0]]
    assert batch.n_tokens == 3


def test_turns_with_prompts_of_their_own_are_rows_of_one_rollout() -> None:
    batch = collated(rollout(turn((1, 2), (3,)), turn((7,), (4, 5))), rollout(turn((1, 2), (6,))))
    assert batch.input_ids.tolist() == [[1, 2, 3], [7, 4, 5], [1, 2, 6]]
    assert batch.rollouts is not None and batch.rollouts.tolist() == [0, 0, 1]
    assert batch.prompts is not None and batch.prompts.tolist() == [0, 1, 0]


def test_a_turn_of_somebody_else_is_context() -> None:
    batch = collated(rollout(turn((1,), (2,), trained=False), turn((1, 2), (3,))))
    assert batch.mask.tolist() == [[False, True]]


def test_a_truncated_turn_is_left_out_and_the_others_are_not() -> None:
    one = rollout(turn((1,), (2, 3), finish="length"), turn((1, 2, 3), (4,)))
    assert collated(one, mask_truncated=True).mask.tolist() == [[False, False, True]]


def test_a_seat_that_was_never_reached_is_counted() -> None:
    batch = collated(rollout(role="second"), rollout(turn((1,), (2, 3)), role="first"))
    assert batch.mask.tolist() == [[False, False], [True, True]]
    weights = token_weights(batch.mask, "constant", max_completion_length=5, rollouts=batch.rollouts)
    assert weights.sum().item() == pytest.approx(2 / (2 * 5))


@pytest.mark.parametrize(
    ("how", "first"),
    [("constant", 1 / (2 * 10)), ("sequence_mean", 1 / (2 * 3)), ("sequence_sum", 1 / 2), ("token_mean", 1 / 4)],
)
def test_denominators_count_rollouts_and_all_of_their_tokens(how: str, first: float) -> None:
    # Two rollouts: one of two turns with 1 + 2 tokens, one of a single token.
    batch = collated(rollout(turn((1, 2), (3,)), turn((7,), (4, 5))), rollout(turn((1, 2), (6,))))
    weights = token_weights(batch.mask, how, max_completion_length=10, rollouts=batch.rollouts)  # type: ignore[arg-type]
    assert weights[0, 0].item() == weights[1, 1].item() == pytest.approx(first)


def estimated(batch: TrainBatch, rollouts: list[Rollout], **options: object) -> torch.Tensor:
    rewards = torch.tensor([one.score.value for one in rollouts if one.score is not None], dtype=torch.float64)
    estimator = AdvantageEstimator(Algorithm.of(settings(scale_rewards="none", **options)), {})
    return estimator(batch, rollouts, rewards, ["t"] * len(rollouts), beta=0.0).advantages


def test_every_row_has_the_advantage_of_its_rollout() -> None:
    rollouts = [rollout(turn((1,), (2,)), turn((7,), (3,)), value=1.0), rollout(turn((1,), (4,)), value=0.0)]
    # group mean 0.5
    assert estimated(collated(*rollouts), rollouts).tolist() == [0.5, 0.5, -0.5]


def test_later_turns_discount_a_return() -> None:
    rollouts = [CONVERSATION, replace(CONVERSATION, score=Score(0.0))]
    made = estimated(collated(*rollouts), rollouts, turn_gamma=0.5)
    assert made[0, [0, 1, 4]].tolist() == [0.25, 0.25, 0.5]
    assert made[1, 4].item() == -0.5


def test_roles_have_baselines_of_their_own() -> None:
    rollouts = [
        rollout(turn((1,), (2,)), role="first", value=1.0),
        rollout(turn((7,), (3,)), role="second", value=-1.0, group=1),
        rollout(turn((1,), (2,)), role="first", value=1.0),
    ]
    estimator = AdvantageEstimator(Algorithm.of(settings(scale_rewards="none", baseline="role")), {})
    rewards = torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64)
    made = estimator(collated(*rollouts), rollouts, rewards, ["t"] * 3, beta=0.0).advantages
    # b starts at 0 and is read before it moves to 0.05 of what it sees
    assert made.tolist() == pytest.approx([1.0, -1.0, 0.95])
    # One mean for both: b = 0, 0.05, 0.95 · 0.05 − 0.05 = −0.0025, so A = 1, −1.05, 1.0025.
    assert estimator.metrics["baseline/roles_mse"] == pytest.approx((1 + 1 + 0.95**2) / 3)
    assert estimator.metrics["baseline/pooled_mse"] == pytest.approx((1 + 1.05**2 + 1.0025**2) / 3)
    estimator(collated(*rollouts), rollouts, rewards * torch.nan, ["t"] * 3, beta=0.0)
    assert estimator.metrics == {}, "of a batch that nobody could score there is nothing to compare"


def test_the_mean_of_a_task_without_roles_moves_once_a_step() -> None:
    rollouts = [rollout(turn((1,), (2,)), role="first", value=1.0), rollout(turn((1,), (4,)), value=1.0, group=1)]
    estimator = AdvantageEstimator(Algorithm.of(settings(scale_rewards="none", baseline="role")), {})
    rewards = torch.ones(2, dtype=torch.float64)
    estimator(collated(*rollouts), rollouts, rewards, ["game", "sums"], beta=0.0)
    assert estimator.state["sums"] == pytest.approx(0.05)


def test_a_task_without_roles_has_no_such_comparison() -> None:
    one = rollout(turn((1,), (2,)))
    estimator = AdvantageEstimator(Algorithm.of(settings(scale_rewards="none", baseline="role")), {})
    estimator(collated(one), [one], torch.ones(1, dtype=torch.float64), ["t"], beta=0.0)
    assert estimator.metrics == {}


def gradient(batch: TrainBatch, **options: object) -> torch.Tensor:
    policy = policy_of(model(1).double())
    updater = Updater(policy, Algorithm.of(settings(**options)), total_steps=1, max_turns=2)
    updater.gradient.add(updater.gradient.weighted(batch), updater.coefficients(), UpdateStatistics())
    return torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])


def with_advantages(batch: TrainBatch, *values: float) -> TrainBatch:
    return replace(batch, advantages=torch.tensor(values, dtype=torch.float64))


def test_one_row_with_a_hole_teaches_what_two_rows_teach() -> None:
    merged = with_advantages(collated(CONVERSATION, rollout(turn((1, 2), (6,)))), 1.0, -0.5)
    first, second = CONVERSATION.turns
    split = collated(rollout(first), rollout(second), rollout(turn((1, 2), (6,))))
    split = replace(split, rollouts=torch.tensor([0, 0, 1]), prompts=torch.tensor([0, 1, 0]))
    assert torch.allclose(gradient(merged), gradient(with_advantages(split, 1.0, 1.0, -0.5)), atol=1e-7)
    assert gradient(merged).abs().max() > 0


def test_feedback_has_no_gradient() -> None:
    changed = rollout(turn((1, 2), (3, 4)), turn((1, 2, 3, 4, 9, 9), (5,), trained=False))
    alone = with_advantages(collated(rollout(turn((1, 2), (3, 4)))), 1.0)
    assert torch.allclose(gradient(with_advantages(collated(changed), 1.0)), gradient(alone), atol=1e-7)


def test_micro_batches_change_nothing() -> None:
    rollouts = [rollout(turn((1, 2), (3,)), turn((7,), (4, 5)), group=index // 2) for index in range(4)]
    batch = with_advantages(collated(*rollouts), *torch.linspace(-1, 1, 8).tolist())
    assert torch.allclose(gradient(batch), gradient(batch, micro_batch_size=1), atol=1e-7)


def test_steps_of_a_batch_hold_whole_groups() -> None:
    rollouts = [
        rollout(*[turn((index + 1, n + 1), (3,)) for n in range(1 + 3 * (index == 0))], group=index // 2)
        for index in range(4)
    ]
    batch = with_advantages(collated(*rollouts), *[1.0] * 7)
    updater = Updater(
        policy_of(model(1)), Algorithm.of(settings(steps_per_generation=2, prompts_per_step=2)), total_steps=1
    )
    seen: list[list[int]] = []
    updater._step = lambda part: seen.append(part.groups.tolist()) or {}  # type: ignore[method-assign,func-returns-value]
    updater.update(batch)
    assert seen == [[0] * 5, [1] * 2]


@reward()
def one_point(answer: str) -> float:
    return 1.0


@pytest.mark.parametrize(
    ("limit", "length", "expected"), [(None, 230, 0.0), (None, 256, -1.0), (12, 10, 0.0), (12, 12, -1.0)]
)
def test_the_overlong_penalty_is_within_the_limit_of_the_task(limit: int | None, length: int, expected: float) -> None:
    task = Task(
        "t", lambda config: [], lambda row: "", lambda text: text, (one_point,), max_completion_length=limit, row=Row
    )
    one = rollout(turn((1,), tuple(range(length))))
    trainer = settings(max_completion_length=256, soft_overlong_buffer=26)
    assert length_penalty(trainer, task, one) == expected
