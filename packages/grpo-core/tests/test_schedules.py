import pytest

from grpo_core.algorithms.schedules import FINAL_COSINE_FACTOR, constant, cosine, none


def test_constant_warms_up_to_one_and_the_first_step_already_learns() -> None:
    assert [constant(step, 10, warmup_steps=3) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]


def test_cosine_ends_above_zero_and_stays_there() -> None:
    assert cosine(0, 10) == 1.0
    # half way: 0.1 + 0.9 · (1 + cos(π/2))/2 = 0.55
    assert cosine(5, 10) == pytest.approx(0.55)
    assert cosine(10, 10) == cosine(25, 10) == pytest.approx(FINAL_COSINE_FACTOR)


def test_cosine_meets_its_warmup() -> None:
    assert cosine(4, 20, warmup_steps=5) < cosine(5, 20, warmup_steps=5) == 1.0


def test_none_never_changes() -> None:
    assert none(0, 1) == none(10**6, 1) == 1.0
