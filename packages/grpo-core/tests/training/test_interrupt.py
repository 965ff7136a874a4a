import os
import signal
import threading
from collections.abc import Iterator

import pytest

from grpo_core.training.stop import stop_on_signal


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


def test_a_terminal_that_closes_never_insists() -> None:
    stop = threading.Event()
    with stop_on_signal(stop.set, lambda message: None):
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGHUP)
    assert stop.is_set()


def test_nohup_is_respected() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        stop = threading.Event()
        with stop_on_signal(stop.set, lambda message: None):
            signal.raise_signal(signal.SIGHUP)
        assert not stop.is_set()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_one_of_several_ranks_is_only_ever_asked() -> None:
    stop = threading.Event()
    with stop_on_signal(stop.set, lambda message: None, may_insist=False):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)  # of the launcher, who had it from the same Ctrl-C
    assert stop.is_set()


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


def test_a_second_signal_within_the_first_insists() -> None:
    asked, heard = list[bool](), list[str]()

    def request() -> None:
        asked.append(True)
        signal.raise_signal(signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt), stop_on_signal(request, heard.append):
        signal.raise_signal(signal.SIGINT)
    assert asked == [True]
