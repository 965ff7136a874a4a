import pytest

from grpo_core.algorithms.schedules import FINAL_COSINE_FACTOR, constant, cosine, none
from grpo_core.config import TrainerConfig
from grpo_core.training.algorithm import Algorithm
from grpo_core.training.optimizer import LearningRateSchedule
from grpo_core.training.setup import follows_time


def test_constant_warms_up_to_one_and_cosine_ends_above_zero() -> None:
    assert [constant(step, 10, warmup_steps=3) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert cosine(0, 10) == 1.0
    # half way: 0.1 + 0.9 · (1 + cos(π/2))/2 = 0.55
    assert cosine(5, 10) == pytest.approx(0.55)
    assert cosine(10, 10) == cosine(25, 10) == pytest.approx(FINAL_COSINE_FACTOR)
    assert cosine(4, 20, warmup_steps=5) < cosine(5, 20, warmup_steps=5) == 1.0
    assert none(0, 1) == none(10**6, 1) == 1.0


def test_a_share_of_warmup_is_one_of_the_steps_or_of_the_time() -> None:
    config = TrainerConfig(warmup_ratio=0.25, lr_scheduler_type="cosine")
    steps, time = (LearningRateSchedule(Algorithm.of(config), total) for total in (100, None))
    assert [steps.factor(update, 0.0) for update in (0, 25, 100)] == [pytest.approx(1 / 26), 1.0, FINAL_COSINE_FACTOR]
    for update in (0, 7):  # how many steps the time is enough for is not known, and says nothing
        shares = [time.factor(update, share) for share in (0.0, 0.125, 0.25, 0.625, 1.0, 9.0)]
        # Half of the warm-up; its end; half a cosine over what is left: 0.1 + 0.9 / 2.
        assert shares == [pytest.approx(each, abs=1e-5) for each in (0.0, 0.5, 1.0, 0.55, 0.1, 0.1)]


def test_a_warmup_in_steps_goes_by_steps_also_where_the_rest_follows_the_time() -> None:
    schedule = LearningRateSchedule(Algorithm.of(TrainerConfig(warmup_steps=3, lr_scheduler_type="cosine")), None)
    assert [schedule.factor(update, 0.5) for update in (0, 2, 3)] == [
        pytest.approx(0.55 * warmup) for warmup in (0.25, 0.75, 1.0)
    ]
    constant = Algorithm.of(TrainerConfig(warmup_steps=3, lr_scheduler_type="none"))
    assert LearningRateSchedule(constant, None).factor(0, 0.5) == 1.0


def test_the_clock_matters_only_where_something_depends_on_it() -> None:
    assert follows_time(TrainerConfig(warmup_ratio=0.1), None)
    assert follows_time(TrainerConfig(lr_scheduler_type="cosine"), None)
    assert not follows_time(TrainerConfig(lr_scheduler_type="cosine"), 100)
    assert not follows_time(TrainerConfig(warmup_steps=5), None)
