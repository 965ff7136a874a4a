import math

import pytest
import torch

from grpo_core.algorithms.corrections import RolloutCorrection, high_entropy_mask, off_policy_mask, rollout_weights
from grpo_sdk.errors import UserError

NAN = math.nan
MASK = torch.tensor([[True, True, True], [True, False, False]])
LOG2 = math.log(2)


def tensor(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def test_a_token_that_the_sampler_could_not_score_has_ratio_one() -> None:
    old, sampler = tensor([LOG2, -1.0]), tensor([0.0, NAN])
    both = torch.ones(1, 2).bool()
    assert rollout_weights(old, sampler, both, mode="token_truncate", maximum=9.0, minimum=None)[0].tolist() == [2, 1]
    assert rollout_weights(old, sampler, both, mode="sequence_truncate", maximum=9.0, minimum=None)[0, 0] == 2


@pytest.mark.parametrize(("mode", "expected"), [
    # Ratios 4, 1/2, 1 in the first row, whose product is 2; 1/4 in the second.
    ("token_truncate", [[3.0, 0.5, 1.0], [0.4, 0.0, 0.0]]),
    ("sequence_mask", [[2.0, 2.0, 2.0], [0.0, 0.0, 0.0]]),  # which no golden case has
])  # fmt: skip
def test_rollout_weights(mode: RolloutCorrection, expected: list[list[float]]) -> None:
    old, sampler = tensor([2 * LOG2, -LOG2, 0.0], [-2 * LOG2, 5.0, NAN]), torch.zeros(2, 3, dtype=torch.float64)
    weights = rollout_weights(old, sampler, MASK, mode=mode, maximum=3.0, minimum=0.4)
    torch.testing.assert_close(weights, tensor(*expected))


@pytest.mark.parametrize("mode", ["token_mask", "sequence_mask"])
def test_a_weight_on_a_bound_is_kept_and_without_bounds_all_are(mode: RolloutCorrection) -> None:
    one, zero = torch.ones(1, 1).bool(), tensor([0.0])
    assert float(rollout_weights(zero, zero, one, mode=mode, maximum=1.0, minimum=1.0)) == 1.0
    free = rollout_weights(tensor([LOG2]), zero, one, mode=mode, maximum=None, minimum=None)
    assert float(free) == pytest.approx(2.0)
    with pytest.raises(UserError, match="minimum 3 is above maximum 2"):
        rollout_weights(zero, zero, one, mode=mode, maximum=2, minimum=3)


def test_with_advantages_per_token_each_token_is_judged_by_its_own() -> None:
    advantages = tensor([-1.0, 1.0, 0.0])
    keep = off_policy_mask(advantages, tensor([-1.0] * 3), tensor([0.0] * 3), torch.ones(1, 3).bool(), threshold=0.5)
    assert keep.tolist() == [[0.0, 1.0, 1.0]]
    own, sampler = (tensor([-1.0, -1.0]), tensor([-0.4, NAN]))  # which is no evidence: 0.6 over two tokens
    assert off_policy_mask(tensor([-1.0])[0], own, sampler, torch.ones(1, 2).bool(), threshold=0.31).tolist() == [1.0]


def test_the_tokens_of_highest_entropy_are_kept() -> None:
    entropy = tensor([4.0, 1.0, 3.0], [2.0, NAN, 9.0])  # the padding does not count
    assert high_entropy_mask(entropy, MASK, quantile=1.0).equal(MASK)
    assert high_entropy_mask(entropy, MASK, quantile=0.0).sum() == 1
    assert not high_entropy_mask(entropy, torch.zeros_like(MASK), quantile=0.5).any()

    # Of very many tokens, too.
    entropy = torch.arange(2**24 + 2, dtype=torch.float32).reshape(2, -1)  # more than torch.quantile takes
    kept = high_entropy_mask(entropy, torch.ones_like(entropy, dtype=torch.bool), quantile=0.5)
    assert kept.sum(1).tolist() == [0, 2**23 + 1]
