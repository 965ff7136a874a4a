import pytest
import torch

from grpo_core.algorithms.aggregation import Aggregation, token_weights
from grpo_sdk.errors import UserError

MASK = torch.tensor([[True, True, True], [True, False, False]])


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
