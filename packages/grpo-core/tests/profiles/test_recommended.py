"""Learning rates by size."""

import pytest

from grpo_core.profiles.recommended import KEYS, SMALL, after_warm_start, learning_rate


@pytest.mark.parametrize(
    ("parameters", "full", "adapter"),
    [(1_800_000, 1.2e-4, 1.2e-3), (135_000_000, 4.6e-6, 4.6e-5), (1_543_700_000, 1e-6, 1e-5), (70e9, 1e-6, 1e-5)],
)
def test_the_learning_rate_falls_with_the_size(parameters: int, full: float, adapter: float) -> None:
    assert learning_rate(parameters, is_adapter=False) == full
    assert learning_rate(parameters, is_adapter=True) == adapter


def test_a_small_model_takes_larger_batches_after_its_warm_start() -> None:
    small, large = after_warm_start(int(SMALL) - 1), after_warm_start(int(SMALL))
    assert set(large) < set(small) == KEYS
