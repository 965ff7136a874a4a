from __future__ import annotations

from typing import cast

from grpo_core.config import TrainerConfig
from grpo_core.policy.ranks import Ranks
from grpo_core.training.clock import RunClock
from grpo_core.training.stop import StopSwitch


class AskedMeanwhile(Ranks):
    """Ranks of which this one gets a signal while flags are exchanged, and no other one."""

    switch: StopSwitch

    def any(self, flag: bool) -> bool:
        self.switch.request()
        return flag


class AskedElsewhere(Ranks):
    """Ranks of which another one was told to stop."""

    def any(self, flag: bool) -> bool:
        return True


def test_a_stop_that_another_rank_was_told_is_said_once() -> None:
    said: list[str] = []
    switch = StopSwitch(TrainerConfig(), AskedElsewhere(size=2), cast(RunClock, None), said.append)
    assert switch.agreed() and switch.agreed()
    assert said == ["stopping: another process of the run was told to; the run is saved first"]


def test_a_signal_during_the_exchange_counts_at_the_next_one() -> None:
    """Otherwise this rank would save while the others take another step, and each would get the other's bytes."""
    ranks = AskedMeanwhile(size=2)
    switch = StopSwitch(TrainerConfig(), ranks, cast(RunClock, None), lambda message: None)
    AskedMeanwhile.switch = switch

    assert not switch.agreed()
    assert switch.agreed()
