import os
import signal
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from grpo_core.config import TrainerConfig
from grpo_core.policy.ranks import Ranks
from grpo_core.training.stop import StopSwitch, stop_on_signal


@pytest.fixture(autouse=True)
def without_nohup() -> Iterator[None]:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_asks_and_a_second_one_insists(number: signal.Signals) -> None:
    stop, heard = threading.Event(), list[str]()
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), stop_on_signal(stop.set, heard.append):
        signal.raise_signal(number)
        assert stop.is_set()
        signal.raise_signal(signal.SIGTERM)
    assert heard == ["stopping: the run is saved first; press Ctrl-C again to stop at once"]
    assert signal.getsignal(number) is before


# A terminal that closes, and one of several ranks, whose launcher has the same Ctrl-C.
@pytest.mark.parametrize(("number", "options"), [(signal.SIGHUP, {}), (signal.SIGINT, {"may_insist": False})])
def test_what_never_insists(number: signal.Signals, options: dict[str, Any]) -> None:
    stop = threading.Event()
    with stop_on_signal(stop.set, str, **options):
        signal.raise_signal(number)
        signal.raise_signal(number)
    assert stop.is_set()


def test_nohup_is_respected() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    stop = threading.Event()
    with stop_on_signal(stop.set, str):
        signal.raise_signal(signal.SIGHUP)
    assert not stop.is_set()


def test_a_signal_may_fall_into_what_is_being_printed() -> None:
    lock, stop, heard = threading.Lock(), threading.Event(), list[str]()

    def say(message: str) -> None:
        with lock:
            heard.append(message)

    with stop_on_signal(stop.set, say), lock:
        signal.raise_signal(signal.SIGTERM)  # said in the handler, this would wait for itself
    assert heard


@pytest.mark.timeout(60)
def test_signals_may_fall_into_one_anothers_handlers() -> None:
    """Of Ctrl-C and a launcher's SIGTERM, the second comes while the first is handled."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        for _ in range(10):
            is_over = threading.Event()

            def send(is_over: threading.Event = is_over) -> None:
                while not is_over.is_set():
                    os.kill(os.getpid(), signal.SIGTERM)

            asked, sender = list[bool](), threading.Thread(target=send)
            with pytest.raises(KeyboardInterrupt), stop_on_signal(lambda asked=asked: asked.append(True), str):
                sender.start()
                while True:
                    pass
            is_over.set()
            sender.join()
            assert asked == [True]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_stop_that_another_rank_was_told_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(Ranks, "any", lambda ranks, flag: True)
    switch = StopSwitch(TrainerConfig(), Ranks(size=2), cast(Any, None), said.append)
    assert switch.agreed() and switch.agreed()
    assert said == ["stopping: another process of the run was told to; the run is saved first"]


def test_a_signal_during_the_exchange_counts_at_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise this rank would save while the others take another step, and each would get the other's bytes."""
    switch = StopSwitch(TrainerConfig(), Ranks(size=2), cast(Any, None), str)

    def asked_meanwhile(ranks: Ranks, flag: bool) -> bool:
        switch.request()
        return flag

    monkeypatch.setattr(Ranks, "any", asked_meanwhile)
    assert not switch.agreed()
    assert switch.agreed()
