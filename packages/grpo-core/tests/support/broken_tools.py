"""Tasks with tools that have one fault each, named after the conformance check that finds it."""

import itertools
import json
import os
import time
from collections.abc import Iterable
from typing import Any

from grpo_sdk import Call, Environment, Invalid, Row, Task, TaskConfig, ToolError, reward, tool
from grpo_sdk.data import split_of

PRICES = {"apple": 3, "pear": 5, "fig": 7, "plum": 9}


class Order(Row):
    item: str
    count: int


def gold_of(item: str, count: int) -> str:
    look = {"name": "look_up", "arguments": {"item": item}}
    order = {"name": "order", "arguments": {"item": item, "count": count}}
    return json.dumps({"turns": [{"text": "The price?", "calls": [look]}, {"text": "Enough.", "calls": [order]}]})


def load(config: TaskConfig) -> Iterable[Order]:
    for item, count in itertools.product(PRICES, range(2, 30)):
        if split_of(f"{item} {count}") == config.split:
            yield Order(id=f"{item}-{count}", gold=gold_of(item, count), item=item, count=count)


def prompt(row: Order) -> str:
    return f"Buy {row.item}, as many as your coins allow."


class Shop(Environment):
    def reset(self, row: Order) -> str:
        self.row = row
        self.ordered: dict[str, int] = {}
        return f" You have {row.count * PRICES[row.item] + 1} coins."

    @tool
    def look_up(self, item: str) -> int:
        """Look up a price.

        Args:
            item: What is sold.
        """
        if item not in PRICES:
            raise ToolError(f"no {item[:20]!a} here; there are {', '.join(PRICES)}")
        return PRICES[item]

    @tool(ends=True)
    def order(self, item: str, count: int = 1) -> str:
        """Order an item and leave.

        Args:
            item: What is sold.
            count: How many.
        """
        if item not in PRICES or not 1 <= count <= 1000:
            raise ToolError("order 1 to 1000 of an item")
        self.ordered[item] = self.ordered.get(item, 0) + count
        return "thank you"


def validate(text: str, environment: Shop) -> dict[str, int]:
    if not environment.ordered:
        raise Invalid("nothing was ordered")
    return environment.ordered


@reward(0.8)
def right(answer: dict[str, int], row: Order) -> float:
    return float(answer == {row.item: row.count})


@reward(0.2)
def looked(calls: tuple[Call, ...]) -> float:
    return float(any(call.name == "look_up" and call.ok for call in calls))


def broken(name: str, environment: type[Environment], **changes: Any) -> Task:
    """The task without a fault, with another environment or other contributions."""
    rewards = changes.pop("rewards", (right, looked))
    options = {"row": Order, "environment": environment, "max_turns": 4, "timeout_s": 1.0, **changes}
    return Task(name, load, prompt, validate, rewards, **options)


faultless = broken("faultless", Shop)


class _Undocumented(Shop):
    @tool
    def wait(self, hours: float) -> None:
        """Wait."""


schema = broken("schema", _Undocumented)


class _Waiting(Shop):
    @tool
    def wait(self) -> None:
        """Wait for better prices."""
        time.sleep(600)


hang = broken("hang", _Waiting)


class _Raising(Shop):
    @tool
    def stock(self, item: str) -> int:
        """Count what is there.

        Args:
            item: What is sold.
        """
        if item not in PRICES:
            return 0
        raise KeyError(item)


crash = broken("crash", _Raising)


class _Unready(Shop):
    def reset(self, row: Order) -> str:
        raise KeyError(row.id)


crash_of_reset = broken("crash_of_reset", _Unready)


class _Listing(Shop):
    @tool
    def catalogue(self) -> list[str]:
        """List all that is sold."""
        return [f"{item} {number}" for number in range(1000) for item in PRICES]


oversized = broken("oversized", _Listing)


class _Counting(Shop):
    @tool
    def change(self, coins: str) -> int:
        """Count what is left of a coin of 100.

        Args:
            coins: Price in digits.
        """
        return 100 - int(coins) if coins.isdigit() else 100


arguments = broken("arguments", _Counting)


class _Clock(Shop):
    @tool
    def now(self) -> int:
        """Tell the time."""
        return time.perf_counter_ns()


repeat = broken("repeat", _Clock)


class _Numbered(Shop):
    @tool
    def till(self) -> int:
        """Say which till is served."""
        return os.getpid()


repeat_of_a_process = broken("repeat_of_a_process", _Numbered)

_ORDERED: dict[str, int] = {}


class _Shared(Shop):
    def reset(self, row: Order) -> str:
        opening = super().reset(row)
        self.ordered = _ORDERED
        return opening


state = broken("state", _Shared)


@reward(0.8)
def any_order(answer: dict[str, int], row: Order) -> float:
    return float(row.item in answer)


pay = broken("pay", Shop, rewards=(any_order, looked))

NAMES = [name for name, value in list(vars().items()) if isinstance(value, Task) and name != "faultless"]
