"""Tasks with tools that TRL trains, and some that it refuses."""

import asyncio
import os
import time
from collections.abc import Iterable
from dataclasses import replace
from enum import Enum
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from grpo_sdk import Call, Environment, Invalid, Message, Row, Task, TaskConfig, ToolError, reward, tool


class Order(Row):
    item: str = "apple"
    count: int = 2


def load(config: TaskConfig) -> Iterable[Order]:
    shift = 0 if config.split == "train" else 10
    return [Order(id=f"{count} {config.split}", count=count) for count in range(shift + 1, shift + 5)]


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


class Address(BaseModel):
    """Where it goes."""

    street: str
    number: Annotated[int, Field(ge=1)]


class Shop(Environment):
    def reset(self, row: Order) -> str:
        self.ordered: dict[str, int] = {}
        return f"You have {10 * row.count} coins."

    @tool
    def look_up(self, item: str) -> int:
        """Look up a price.

        Args:
            item: What is sold.
        """
        if item != "apple":
            raise ToolError(f"no {item} here")
        return 3

    @tool(timeout_s=0.5)
    def haggle(self) -> None:
        """Talk without end."""
        time.sleep(600)

    @tool
    def leave(self) -> None:
        """End the process."""
        os._exit(3)

    @tool
    async def wait(self, seconds: float = 0.0) -> int:
        """Wait for the shop to open."""
        await asyncio.sleep(seconds)
        return os.getpid()

    @tool(ends=True)
    def order(
        self,
        item: Literal["apple", "pear"],
        count: int = 1,
        size: Size = Size.SMALL,
        address: Address | None = None,
    ) -> str:
        """Order an item."""
        self.ordered[item] = self.ordered.get(item, 0) + count
        return f"{count} {size.value} {item}"


def validate(text: str, environment: Shop) -> dict[str, int]:
    if not environment.ordered:
        raise Invalid("nothing was ordered")
    return environment.ordered


@reward()
def right(answer: dict[str, int], row: Order) -> float:
    return float(answer == {row.item: row.count})


@reward(0.0, maximum=100.0)
def answered_calls(calls: tuple[Call, ...]) -> float:
    return float(sum(call.ok for call in calls))


@reward(0.0, maximum=100.0)
def wrong_calls(calls: tuple[Call, ...]) -> float:
    return float(sum(not call.ok for call in calls))


def text_prompt(row: Order) -> str:
    return f"Buy {row.count} {row.item}. "


def chat_prompt(row: Order) -> list[Message]:
    return [Message(role="system", content="A shop."), Message(role="user", content=text_prompt(row))]


def system_prompt(row: Order) -> list[Message]:
    return [Message(role="system", content="A shop.")]


rewards = (right, answered_calls, wrong_calls)
shop = Task("shop", load, text_prompt, validate, rewards, environment=Shop, max_turns=4)
chat_shop = replace(shop, name="chat_shop", prompt=chat_prompt)
system_shop = Task("system_shop", load, system_prompt, validate, rewards, environment=Shop)


class Closed(Shop):
    def reset(self, row: Order) -> str:
        raise RuntimeError(f"closed on day {row.count}")


closed = Task("closed", load, text_prompt, validate, rewards, environment=Closed)


def shown_calls(row: Order) -> list[Message]:
    called = {"type": "function", "function": {"name": "look_up", "arguments": {"item": "apple"}}}
    return [Message(role="assistant", content="", tool_calls=[called]), Message(role="user", content="Now you.")]


shows = Task("shows", load, shown_calls, validate, rewards, environment=Shop)


@tool
def multiply(left: int, right: int) -> int:
    """Multiply two numbers.

    Args:
        left: The first.
        right: The second.
    """
    return left * right


@tool
def now() -> float:
    """Say something else each time."""
    return time.perf_counter()


@tool(timeout_s=0.5)
def hang() -> None:
    """Talk without end."""
    time.sleep(600)


@reward()
def product(answer: str, row: Order) -> float:
    return float(answer == str(12 * row.count))


def times_twelve(row: Order) -> str:
    return f"12 times {row.count}?"


calculated, tools = (product, answered_calls, wrong_calls), (multiply, now, hang)
functions = Task("functions", load, times_twelve, lambda text: text, calculated, tools=tools, max_turns=3)


@tool(name="reset")
def begin_again() -> None:
    """Begin again."""


misnamed = Task("misnamed", load, text_prompt, lambda text: text, (answered_calls,), tools=(begin_again,))


@reward()
def digits(text: str) -> float:
    return sum(character.isdigit() for character in text) / max(1, len(text))


single = Task("single", load, lambda row: chat_prompt(row)[1:], lambda text: text, (digits,))
