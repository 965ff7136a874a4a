"""Items that wait for a worker: their order, outcomes and counts, without any worker."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future

import pytest

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


@pytest.fixture
def counts() -> Counter[str]:
    return Counter()


@pytest.fixture
def queue(counts: Counter[str]) -> ItemQueue:
    return ItemQueue(Quarantine(), counts)


def test_items_that_are_put_back_come_first_and_in_order_and_a_cancelled_one_is_passed_over(queue: ItemQueue) -> None:
    first, second, third, cancelled = item(b"1"), item(b"2"), item(b"3"), item(b"4")
    cancelled.future.cancel()
    queue.add(third)
    queue.add(cancelled)
    queue.put_back([first, second])
    assert [queue.take() for _ in range(4)] == [first, second, third, None]
    assert not queue


def test_what_timed_out_is_not_tried_again_also_where_it_waits_already(queue: ItemQueue, counts: Counter[str]) -> None:
    first, twin, late = item(b"spin"), item(b"spin"), item(b"spin")
    queue.add(first)
    queue.add(twin)
    assert queue.take() is first
    queue.timed_out(first, 1.0)
    assert queue.take() is None  # the twin
    queue.add(late)
    assert [outcome(each).status for each in (first, twin, late)] == ["timeout"] * 3
    assert counts == {"timeouts": 1, "quarantined": 2}


def test_a_fallback_follows_an_item_that_timed_out(queue: ItemQueue) -> None:
    slow, other = item(b"spin", fallback=b"late"), item(b"1")
    queue.add(slow)
    queue.add(other)
    assert queue.take() is slow
    queue.timed_out(slow, 1.0)
    assert not slow.future.done()
    assert queue.take() is slow
    assert slow.payload == b"late"


def test_giving_up_answers_all_also_what_has_left_the_queue(queue: ItemQueue, counts: Counter[str]) -> None:
    answered, lost, waiting, new, last = (item(b"%d" % number) for number in range(5))
    for each in (answered, lost, waiting):
        queue.add(each)
    assert [queue.take(), queue.take()] == [answered, lost]
    queue.unavailable(answered, "as it was")
    queue.give_up("the pool was closed", [new])
    queue.add(last)
    queue.give_up_rest("the pool failed")
    whys = {answered: "as it was", lost: "the pool failed", last: "the pool failed"}
    for each in (answered, lost, waiting, new, last):
        assert outcome(each) == Outcome("unavailable", why=whys.get(each, "the pool was closed"))
    assert counts == {"unavailable": 5}
    assert not queue
