import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_core.algorithms import losses, sequence_losses
from grpo_core.algorithms.aggregation import Aggregation, token_weights, weighted_sum
from grpo_core.algorithms.losses import policy_loss
from grpo_sdk.errors import UserError

MASK = torch.tensor([[True, True, True], [True, False, False]])
GROUPS = torch.tensor([0, 0, 1, 1, 2, 2])


def weights(how: Aggregation, mask: torch.Tensor = MASK, **options: object) -> torch.Tensor:
    return token_weights(mask, how, max_completion_length=10, **options)  # type: ignore[arg-type] # options of it


@pytest.mark.parametrize(("how", "first", "second", "counted", "uncounted"), [
    # Of 2 rows of 3 and 1 tokens; of a row of 2 tokens beside one without, which counts in B or not.
    ("constant", 1 / 20, 1 / 20, 1 / 20, 1 / 10),
    ("token_mean", 1 / 4, 1 / 4, 1 / 2, 1 / 2),
    ("sequence_mean", 1 / 6, 1 / 2, 1 / 4, 1 / 2),
    ("sequence_sum", 1 / 2, 1 / 2, 1 / 2, 1),
    ("group_max", 1 / 6, 1 / 6, 1 / 4, 1 / 2),  # both answer one prompt, whose longest completion has 3
    ("token_sum", 1.0, 1.0, 1, 1),
])  # fmt: skip
def test_the_denominators(how: Aggregation, first: float, second: float, counted: float, uncounted: float) -> None:
    expected = torch.tensor([[first] * 3, [second, 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(weights(how, groups=torch.tensor([0, 0])), expected)
    mask, groups = torch.tensor([[True, True], [False, False]]), torch.tensor([0, 1])
    for count_empty, weight in ((True, counted), (False, uncounted)):
        assert weights(how, mask, groups=groups, count_empty=count_empty).tolist() == [[weight, weight], [0, 0]]
        assert not weights(how, torch.zeros_like(mask), groups=groups, count_empty=count_empty).any()


def test_group_max_looks_at_one_prompt_at_a_time() -> None:
    # The second row is alone with its prompt, so its one token is the longest completion.
    assert weights("group_max", groups=torch.tensor([1, 0]))[:, 0].tolist() == pytest.approx([1 / 6, 1 / 2])
    with pytest.raises(UserError, match="pass `groups`"):
        weights("group_max")


def test_a_weighted_sum_does_not_see_the_padding() -> None:
    values = torch.tensor([[1.0, 2.0, 3.0], [4.0, float("nan"), float("inf")]], requires_grad=True)
    total = weighted_sum(values, MASK, weights("sequence_sum"))
    total.backward()
    assert float(total.detach()) == 5.0  # (1 + 2 + 3 + 4) / 2
    assert values.grad is not None and values.grad.tolist() == [[0.5, 0.5, 0.5], [0.5, 0.0, 0.0]]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["constant", "token_mean", "sequence_mean", "sequence_sum", "group_max"]),
    st.sampled_from([losses.ppo_clip, losses.cispo, losses.sapo, sequence_losses.gspo, sequence_losses.vespo]),
    st.lists(st.integers(0, 4), min_size=6, max_size=6),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=6, max_size=6),
    st.integers(0, 2**32 - 1),
)
def test_any_split_into_micro_batches_and_ranks_is_the_full_batch(
    how: Aggregation, objective: losses.Objective, lengths: list[int], places: list[tuple[int, int]], seed: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    mask = torch.arange(4) < torch.tensor(lengths)[:, None]
    logp, old, advantages = (torch.randn(6, 4, generator=random, dtype=torch.float64) for _ in range(3))
    logp.requires_grad_()
    shares = weights(how, mask, groups=GROUPS)

    def part(rows: list[int]) -> torch.Tensor:
        return policy_loss(objective, logp[rows], old[rows], advantages[rows, 0], mask[rows], shares[rows])

    whole = part(list(range(6)))
    # Each rank sums its micro-batches; DDP takes the mean over ranks of losses that are scaled by their number.
    n_ranks = 3
    ranks = [
        n_ranks * sum(part([row for row in range(6) if places[row] == (rank, micro)]) for micro in range(3))
        for rank in range(n_ranks)
    ]
    split = torch.stack([torch.as_tensor(rank) for rank in ranks]).mean()
    torch.testing.assert_close(split, whole)
    gradients = [torch.autograd.grad(loss, logp)[0] for loss in (split, whole)]
    torch.testing.assert_close(*gradients)
