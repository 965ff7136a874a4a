"""A shop that is asked in chat and counts what was bought in a file, which no repetition of a request may change."""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from grpo_sdk import Call, Message, Row, Task, TaskConfig, ToolError, reward, tool


class Order(Row):
    log: str = ""


class Options(TaskConfig):
    log: str = ""
    rows: int = 4


def load(config: Options) -> Iterable[Order]:
    return [Order(id=f"{config.split} {number}", log=config.log) for number in range(config.rows)]


@tool
def look_up(item: str) -> int:
    """Look up a price."""
    if item != "apple":
        raise ToolError(f"no {item} here; there is apple")
    return 3


@tool
def buy(item: str, log: str, size: Literal["small", "large"] = "small") -> str:
    """Buy an item."""
    with Path(log).open("a") as file:
        file.write(f"{item}\n")
    return f"1 {size} {item}"


def prompt(row: Order) -> tuple[Message, ...]:
    wanted = f"Buy an apple ({row.log}) for {row.id}"
    return (Message(role="system", content="Be brief."), Message(role="user", content=wanted))


def said(text: str) -> str:
    return text


@reward()
def bought(calls: tuple[Call, ...]) -> float:
    return float(any(call.name == "buy" and call.ok for call in calls))


SHOP = Task("shop", load, prompt, said, (bought,), config=Options, tools=(look_up, buy), max_turns=4)
