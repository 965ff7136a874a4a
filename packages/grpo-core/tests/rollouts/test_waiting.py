from concurrent.futures import Future
from typing import Any

import pytest

from grpo_core.rollouts import sample
from grpo_core.rollouts.sample import RolloutContext
from grpo_sdk.endpoints.base import StopRequested


def context(**options: Any) -> RolloutContext:
    unused: Any = None
    return RolloutContext(engine=unused, scoring=unused, seed=0, **options)


def test_scores_that_take_long_are_told_of_and_come_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "ASK_EVERY_S", 0.02)
    monkeypatch.setattr(sample, "SHOW_AFTER_S", 0.05)
    futures, told = [Future[int]() for _ in range(3)], list[tuple[int, int]]()

    def tell(done: int, total: int) -> None:
        told.append((done, total))
        place = (2, 0, 1)[done]
        futures[place].set_result(place)

    assert context(on_wait=tell).wait(futures) == [0, 1, 2]
    assert told == [(0, 3), (1, 3), (2, 3)]


def test_a_stop_takes_back_the_scores_that_are_still_waited_for() -> None:
    done, waiting = Future[int](), Future[int]()
    done.set_result(1)
    with pytest.raises(StopRequested):
        context(should_stop=lambda: True).wait([done, waiting])
    assert waiting.cancelled()
