import signal
import threading

import pytest

from grpo_core.training.stop import stop_on_signal


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_asks_and_a_second_one_insists(number: signal.Signals) -> None:
    stop, heard = threading.Event(), list[str]()
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), stop_on_signal(stop, heard.append):
        signal.raise_signal(number)
        assert stop.is_set()
        signal.raise_signal(signal.SIGTERM)
    assert heard == ["stopping: the run is saved first; once more to stop at once"]
    assert signal.getsignal(number) is before


def test_a_terminal_that_closes_never_insists() -> None:
    stop = threading.Event()
    with stop_on_signal(stop, lambda message: None):
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGHUP)
    assert stop.is_set()


def test_nohup_is_respected() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        stop = threading.Event()
        with stop_on_signal(stop, lambda message: None):
            signal.raise_signal(signal.SIGHUP)
        assert not stop.is_set()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_one_of_several_ranks_is_only_ever_asked() -> None:
    stop = threading.Event()
    with stop_on_signal(stop, lambda message: None, may_insist=False):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)  # of the launcher, who had it from the same Ctrl-C
    assert stop.is_set()


def test_a_signal_may_fall_into_what_is_being_printed() -> None:
    lock, stop, heard = threading.Lock(), threading.Event(), list[str]()

    def say(message: str) -> None:
        with lock:
            heard.append(message)

    with stop_on_signal(stop, say), lock:
        signal.raise_signal(signal.SIGTERM)  # said in the handler, this would wait for itself
    assert heard
