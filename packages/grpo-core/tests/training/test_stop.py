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


def test_a_signal_during_the_exchange_counts_at_the_next_one() -> None:
    """Otherwise this rank would save while the others take another step, and each would get the other's bytes."""
    ranks = AskedMeanwhile(size=2)
    switch = StopSwitch(TrainerConfig(), ranks, cast(RunClock, None), lambda message: None)
    AskedMeanwhile.switch = switch

    assert not switch.agreed()
    assert switch.agreed()
