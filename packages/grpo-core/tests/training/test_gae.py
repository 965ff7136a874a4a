"""GAE over a whole rollout: through its rows and turns, and beyond the length limit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from small_policies import model, policy_of, settings
from transformers import GPT2Config, GPT2LMHeadModel

from grpo_core import Row, Score
from grpo_core.engines.completion import Completion, FinishReason
from grpo_core.policy.ranks import Ranks
from grpo_core.rollouts.rollout import Rollout, Turn
from grpo_core.training.advantages import AdvantageEstimator
from grpo_core.training.algorithm import Algorithm
from grpo_core.training.batch import TrainBatch, collate
from grpo_core.training.forward import ForwardPasses

GAMMA, LAM = 0.9, 0.8
OPTIONS = {
    "baseline": "value", "value_head": True, "use_gae": True, "gae_gamma": GAMMA, "gae_lambda": LAM,
    "advantage_args": {"whiten": False}, "scale_rewards": "none",
}  # fmt: skip


def rollout(*turns: tuple[tuple[int, ...], tuple[int, ...], FinishReason], value: float = 1.0) -> Rollout:
    made = [Turn(prompt, Completion(ids, (-0.5,) * len(ids), "", finish, 0)) for prompt, ids, finish in turns]
    return Rollout("t", Row(id="r"), 0, "", tuple(made), Score(value), "scored")


def collated(*rollouts: Rollout, mask_truncated: bool = False) -> TrainBatch:
    return collate(rollouts, pad_id=0, mask_truncated=mask_truncated)


def estimated(batch: TrainBatch, *rollouts: Rollout, **options: object) -> TrainBatch:
    rewards = torch.tensor([one.score.value for one in rollouts if one.score is not None], dtype=torch.float64)
    estimator = AdvantageEstimator(Algorithm.of(settings(**{**OPTIONS, **options})), {})
    return estimator(batch, rollouts, rewards, ["t"] * len(rollouts), beta=0.0)


def frozen(batch: TrainBatch, network: Any = None, **options: object) -> TrainBatch:
    policy = policy_of(network or model(0))
    policy.add_value_head(seed=0)
    assert policy.value_head is not None
    head = policy.value_head.double()
    torch.nn.init.normal_(head.outer.weight, generator=torch.Generator().manual_seed(0))
    return ForwardPasses(policy, Algorithm.of(settings(**{**OPTIONS, **options})), Ranks()).freeze(batch)


def test_turns_in_rows_of_their_own_are_one_sequence() -> None:
    # A third rollout without a second row, so that rows are padded.
    other = rollout(((1,), (6,), "stop"), value=0.0)
    apart = rollout(((1, 2), (3, 4), "stop"), ((7,), (5,), "stop"))
    together = rollout(((1, 2), (3, 4), "stop"), ((1, 2, 3, 4, 9), (5,), "stop"))
    values = {"apart": [[0.5, 0.25], [0.125, 9.0], [0.3, 9.0]], "together": [[0.5, 0.25, 9.0, 0.125], [0.3, 9, 9, 9]]}
    wide = {name: torch.tensor(rows, dtype=torch.float64) for name, rows in values.items()}
    rows = estimated(replace(collated(apart, other), old_values=wide["apart"]), apart, other)
    row = estimated(replace(collated(together, other), old_values=wide["together"]), together, other)

    third = 1.0 - 0.125
    second = GAMMA * 0.125 - 0.25 + GAMMA * LAM * third
    first = GAMMA * 0.25 - 0.5 + GAMMA * LAM * second
    assert row.advantages[0, [0, 1, 3]].tolist() == pytest.approx([first, second, third])
    assert rows.advantages.tolist() == [pytest.approx(each) for each in ([first, second], [third, 0.0], [-0.3, 0.0])]
    assert rows.returns is not None
    assert rows.returns[0].tolist() == pytest.approx([first + 0.5, second + 0.25])


CUT = rollout(((1, 2), (3, 4, 5), "length"))
ENDED = rollout(((1, 2), (3, 4), "stop"))


def test_what_the_length_limit_ended_goes_on_with_the_value_of_its_last_state() -> None:
    batch = frozen(collated(CUT, ENDED), gae_bootstrap=True)
    longer = frozen(collated(rollout(((1, 2), (3, 4, 5, 6), "stop")), ENDED))
    assert longer.old_values is not None and batch.old_values is not None and batch.last_values is not None
    assert batch.old_values.shape == (2, 3)
    assert torch.allclose(batch.old_values[0], longer.old_values[0, :3])
    assert batch.last_values.tolist() == pytest.approx([longer.old_values[0, 3].item(), 0.0])

    made = estimated(batch, CUT, ENDED, gae_bootstrap=True)
    values, last = batch.old_values, batch.last_values[0]
    assert made.advantages[0, 2].item() == pytest.approx((GAMMA * last - values[0, 2]).item())  # its reward is left out
    assert made.advantages[1, 1].item() == pytest.approx((1.0 - values[1, 1]).item())
    assert made.returns is not None and made.returns[0, 2].item() == pytest.approx((GAMMA * last).item())


def test_a_rollout_that_ends_with_the_context_is_valued_to_its_end() -> None:
    torch.manual_seed(0)
    sizes = {"vocab_size": 13, "n_embd": 16, "n_layer": 2, "n_head": 2}
    network = GPT2LMHeadModel(GPT2Config(**sizes, n_positions=5)).double().eval()
    batch = frozen(collated(CUT), network, gae_bootstrap=True)  # alone, so that nothing is packed
    wider = GPT2LMHeadModel(GPT2Config(**sizes, n_positions=6)).double().eval()
    state = network.state_dict()
    state["transformer.wpe.weight"] = torch.cat((state["transformer.wpe.weight"], torch.zeros(1, 16)))
    wider.load_state_dict(state)
    longer = frozen(collated(rollout(((1, 2), (3, 4, 5, 6), "stop"))), wider)
    assert batch.last_values is not None and longer.old_values is not None
    assert batch.last_values.tolist() == pytest.approx([longer.old_values[0, 3].item()])


def test_by_default_the_length_limit_is_part_of_the_task() -> None:
    batch = frozen(collated(CUT, ENDED))
    assert batch.last_values is None and batch.old_values is not None
    made = estimated(batch, CUT, ENDED)
    assert made.advantages[0, 2].item() == pytest.approx((1.0 - batch.old_values[0, 2]).item())


def test_only_the_end_of_a_rollout_is_cut() -> None:
    cut_earlier = rollout(((1, 2), (3, 4), "length"), ((7,), (5,), "stop"))
    cut_later = rollout(((1, 2), (3, 4), "stop"), ((7,), (5,), "length"))
    masked = collated(CUT, mask_truncated=True)
    for batch, expected in (
        (collated(cut_earlier), [False, False]), (collated(cut_later), [False, True]), (masked, [False]),
    ):  # fmt: skip
        assert batch.is_cut is not None and batch.is_cut.tolist() == expected


def test_a_cut_rollout_without_a_score_teaches_nothing() -> None:
    batch = frozen(collated(CUT, ENDED), gae_bootstrap=True)
    rewards = torch.tensor([torch.nan, 1.0], dtype=torch.float64)
    estimator = AdvantageEstimator(Algorithm.of(settings(**OPTIONS, gae_bootstrap=True)), {})
    made = estimator(batch, [CUT, ENDED], rewards, ["t", "t"], beta=0.0)
    assert made.advantages[0].abs().max() == 0
    assert made.returns is not None and batch.old_values is not None
    assert torch.equal(made.returns[0], batch.old_values[0])


def test_the_penalty_of_the_reward_is_taken_off_the_returns_once() -> None:
    batch = replace(
        collated(ENDED), old_values=torch.zeros(1, 2), token_kl=torch.tensor([[0.5, 0.25]], dtype=torch.float64)
    )
    config = settings(value_head=True, scale_rewards="none", baseline="ema")
    made = AdvantageEstimator(Algorithm.of(config), {})(
        batch, [ENDED], torch.ones(1, dtype=torch.float64), ["t"], beta=0.1
    )
    assert made.returns is not None
    assert made.returns[0].tolist() == pytest.approx([1.0 - 0.1 * 0.75, 1.0 - 0.1 * 0.25])
