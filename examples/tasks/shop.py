"""A shop: the policy looks a price up, and orders as many as its coins buy."""

import json
from collections.abc import Iterable
from itertools import product

from grpo_sdk import Call, Environment, Invalid, Message, Row, Task, TaskConfig, ToolError, reward, tool
from grpo_sdk.data import split_of

GOODS = (
    *("apple", "basket", "bell", "book", "bread", "broom", "button", "candle", "chair", "coat", "cup", "drum"),
    *("fork", "glove", "jar", "key", "lamp", "mirror", "pen", "rope", "shirt", "spoon", "table", "towel"),
)


class Visit(Row):
    """One problem: what to buy, what it costs, and the coins."""

    item: str
    price: int
    coins: int


def written(*calls: tuple[str, dict[str, object]]) -> str:
    """An episode as text, without results: a gold."""
    return json.dumps({"turns": [{"text": "", "calls": [{"name": name, "arguments": given}]} for name, given in calls]})


def load(config: TaskConfig) -> Iterable[Visit]:
    """Visits, in disjoint splits."""
    for item, price, count in product(GOODS, range(2, 10), range(1, 7)):
        gold = written(("look_up", {"item": item}), ("order", {"item": item, "count": count}))
        visit = Visit(id=f"{item} {price} {count}", gold=gold, item=item, price=price, coins=price * count)
        if split_of(prompt(visit)[-1]["content"]) == config.split:  # the price is not said: it tells no problems apart
            yield visit


class Shop(Environment):
    """The state of one episode."""

    def reset(self, row: Visit) -> None:
        """Begin with nothing bought."""
        self.row, self.bought = row, 0

    @tool
    def look_up(self, item: str) -> str:
        """Look up a price.

        Args:
            item: What is sold.
        """
        if item != self.row.item:
            raise ToolError(f"There is no {item} here.")
        return f"{self.row.price} coins"

    @tool(ends=True)
    def order(self, item: str, count: int = 1) -> str:
        """Order an item.

        Args:
            item: What to buy.
            count: How many.
        """
        if item != self.row.item or not 1 <= count <= self.row.coins // self.row.price:
            return "You cannot pay that."
        self.bought = count
        return f"You have {count} {item}."


def call(name: str, **arguments: object) -> Message:
    """A message of the assistant that calls a tool, for the examples in the prompt."""
    function = {"name": name, "arguments": arguments}
    return Message(role="assistant", content="", tool_calls=[{"type": "function", "function": function}])


EXAMPLES = [
    Message(role="user", content="You have 12 coins. Buy hats."),
    call("look_up", item="hat"),
    Message(role="tool", name="look_up", content="4 coins"),
    call("order", item="hat", count=3),
    Message(role="user", content="You have 10 coins. Buy balls."),
    call("look_up", item="ball"),
    Message(role="tool", name="look_up", content="2 coins"),
    call("order", item="ball", count=5),
]


def prompt(row: Visit) -> list[Message]:
    """Two examples, and the coins."""
    return [*EXAMPLES, Message(role="user", content=f"You have {row.coins} coins. Buy {row.item}s.")]


def validate(environment: Shop) -> int:
    """How many were bought."""
    if not environment.bought:
        raise Invalid("nothing was bought")
    return environment.bought


@reward(0.2)
def looked(calls: tuple[Call, ...]) -> float:
    """Whether the price was looked up."""
    return float(any(call.ok and call.name == "look_up" for call in calls))


@reward(0.8)
def spent(answer: int, row: Visit) -> float:
    """Share of the coins that was spent."""
    return answer * row.price / row.coins


shop = Task("shop", load, prompt, validate, (looked, spent), environment=Shop, max_turns=4, max_completion_length=48)
