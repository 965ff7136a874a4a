"""Items that wait for a worker: their order, outcomes and counts, without any worker."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future

from grpo_core.killable.items import ItemQueue
from grpo_core.killable.outcome import Outcome
from grpo_core.killable.process import Item
from grpo_core.killable.quarantine import Quarantine


def item(payload: bytes, *, fallback: bytes | None = None) -> Item:
    return Item(payload, 1.0, Future(), lambda outcome: outcome, fallback)


def outcome(item: Item) -> Outcome:
    result = item.future.result(timeout=0)
    assert isinstance(result, Outcome)
    return result


def test_items_that_are_put_back_come_first_and_in_order() -> None:
    queue = ItemQueue(Quarantine(), Counter())
    first, second, third = item(b"1"), item(b"2"), item(b"3")
    queue.add(third)
    queue.put_back([first, second])
    assert [queue.take() for _ in range(3)] == [first, second, third]


def test_a_cancelled_item_is_passed_over() -> None:
    queue = ItemQueue(Quarantine(), Counter())
    cancelled = item(b"1")
    cancelled.future.cancel()
    queue.add(cancelled)
    assert queue.take() is None
    assert not queue


def test_what_timed_out_is_not_tried_again_also_where_it_waits_already() -> None:
    counts = Counter[str]()
    queue = ItemQueue(Quarantine(), counts)
    first, twin, late = item(b"spin"), item(b"spin"), item(b"spin")
    queue.add(first)
    queue.add(twin)
    assert queue.take() is first
    queue.timed_out(first, 1.0)
    assert queue.take() is None  # the twin
    queue.add(late)
    assert [outcome(each).status for each in (first, twin, late)] == ["timeout"] * 3
    assert counts == {"timeouts": 1, "quarantined": 2}


def test_a_fallback_follows_an_item_that_timed_out() -> None:
    queue = ItemQueue(Quarantine(), Counter())
    slow, other = item(b"spin", fallback=b"late"), item(b"1")
    queue.add(slow)
    queue.add(other)
    assert queue.take() is slow
    queue.timed_out(slow, 1.0)
    assert not slow.future.done()
    assert queue.take() is slow
    assert slow.payload == b"late"


def test_giving_up_answers_all() -> None:
    counts = Counter[str]()
    queue = ItemQueue(Quarantine(), counts)
    waiting, new = item(b"1"), item(b"2")
    queue.add(waiting)
    queue.give_up("the pool was closed", [new])
    assert [outcome(each) for each in (waiting, new)] == [Outcome("unavailable", why="the pool was closed")] * 2
    assert counts == {"unavailable": 2}


def test_giving_up_the_rest_answers_what_has_left_the_queue_too() -> None:
    queue = ItemQueue(Quarantine(), Counter())
    answered, lost, waiting = item(b"1"), item(b"2"), item(b"3")
    for each in (answered, lost, waiting):
        queue.add(each)
    assert [queue.take(), queue.take()] == [answered, lost]
    queue.unavailable(answered, "as it was")
    queue.give_up_rest("the pool failed")
    assert [outcome(each).why for each in (answered, lost, waiting)] == ["as it was"] + ["the pool failed"] * 2
    assert not queue
