"""A shop whose state is kept by tools, and tools that do what tools must not."""

import asyncio
import itertools
import os
import time
from collections.abc import Iterable
from dataclasses import replace

from grpo_sdk import Call, Environment, Invalid, Row, Task, TaskConfig, ToolError, reward, tool

PRICES = {"apple": 3, "pear": 5}


class Order(Row):
    item: str = "apple"
    count: int = 2


def load(config: TaskConfig) -> Iterable[Order]:
    kinds = list(PRICES)[:1] if config.split == "train" else list(PRICES)[1:]
    return [Order(id=f"{item} {count}", item=item, count=count) for item in kinds for count in range(1, 5)]


class Shop(Environment):
    def reset(self, row: Order) -> str:
        self.ordered: dict[str, int] = {}
        self.looks = 0
        return f" You have {10 * row.count} coins."

    @tool
    def look_up(self, item: str) -> int:
        """Look up a price.

        Args:
            item: What is sold.
        """
        self.looks += 1
        if item not in PRICES:
            raise ToolError(f"no {item} here; there are {', '.join(PRICES)}")
        return PRICES[item]

    @tool(timeout_s=0.5)
    def haggle(self) -> None:
        """Talk without end."""
        time.sleep(600)

    @tool(ends=True)
    def order(self, item: str, count: int = 1) -> str:
        """Order an item."""
        self.ordered[item] = self.ordered.get(item, 0) + count
        return f"{count} {item}"


def validate(text: str, environment: Shop) -> dict[str, int]:
    if not environment.ordered:
        raise Invalid("nothing was ordered")
    return environment.ordered


@reward()
def right(answer: dict[str, int], row: Order) -> float:
    return float(answer == {row.item: row.count})


@reward(0.0, maximum=100.0)
def looks(calls: tuple[Call, ...]) -> float:
    return float(sum(call.name == "look_up" for call in calls))


SHOP = Task(
    "shop", load, lambda row: f"Buy {row.count} {row.item}.", validate, (right, looks), environment=Shop, max_turns=4
)


@tool(timeout_s=0.5)
def sleep(seconds: float) -> str:
    """Sleep in C, with nothing that could be interrupted in Python."""
    time.sleep(seconds)
    return "slept"


@tool(timeout_s=0.5)
def spin() -> None:
    """Never let the interpreter go."""
    sum(itertools.repeat(0))


@tool
def leave() -> None:
    """End the process."""
    os._exit(3)


@tool
def crash() -> None:
    """Raise."""
    raise KeyError("bug")


@tool
def fork() -> int:
    """Leave a child behind."""
    if (child := os.fork()) == 0:
        time.sleep(600)
        os._exit(0)
    return child


@tool
def image() -> bytes:
    """Return what no model reads."""
    return b"\x89PNG"


@tool
def long(length: int) -> str:
    """Return much."""
    return "x" * length


@tool
async def wait(seconds: float) -> float:
    """Wait for others."""
    await asyncio.sleep(seconds)
    return seconds


def said(text: str) -> str:
    return text


@reward()
def answered(text: str) -> float:
    return float(text == "done")


BAD_TOOLS = (sleep, spin, leave, crash, fork, image, long, wait)
BAD = Task("bad", load, lambda row: "?", said, (answered,), tools=BAD_TOOLS, max_turns=4)
FORGIVING = replace(BAD, name="forgiving", on_tool_failure="result")


@tool(timeout_s=20)
def ponder() -> str:
    """Take longer than the task's own limit."""
    time.sleep(1.5)
    return "done"


@reward(0.0, maximum=100.0)
def waited(calls: tuple[Call, ...]) -> float:
    return sum(call.seconds for call in calls)


LATE_IS_WRONG = {"timeout_s": 1.0, "on_timeout": "fail"}
SLOW = replace(BAD, name="slow", rewards=(answered, waited), tools=(ponder,), **LATE_IS_WRONG)


class Door(Environment):
    """Closes in its own time."""

    @tool
    def knock(self) -> str:
        """Knock."""
        return "who?"

    def close(self) -> None:
        time.sleep(600)


CLOSES = replace(BAD, name="closes", tools=(), environment=Door, **LATE_IS_WRONG)


class Counter(Environment):
    """Counts, and breaks."""

    def reset(self, row: Order) -> None:
        self.count = 0

    @tool
    def add(self, count: int) -> int:
        """Add."""
        self.count += count
        return self.count

    @tool
    def add_and_cancel(self, count: int) -> int:
        """Add, and raise what is no Exception."""
        self.count += count
        raise asyncio.CancelledError


COUNTER = replace(FORGIVING, name="counter", tools=(), environment=Counter)
