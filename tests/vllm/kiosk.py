"""A task whose episodes have two calls side by side, a call after their results, and a turn without a call."""

from collections.abc import Iterable
from itertools import product

from grpo_sdk import Call, Environment, Message, Row, Task, TaskConfig, ToolError, reward, tool

ITEMS = ("tea", "rice", "salt")


class Wish(Row):
    """What is bought, and how many."""

    item: str
    count: int

    @property
    def other(self) -> str:
        """What is compared with it."""
        return ITEMS[(ITEMS.index(self.item) + 1) % len(ITEMS)]


def load(config: TaskConfig) -> Iterable[Wish]:
    """The same rows in every split."""
    return [Wish(id=f"{item} {count}", item=item, count=count) for item, count in product(ITEMS, (2, 3))]


class Kiosk(Environment):
    """What was bought."""

    def reset(self, row: Wish) -> None:
        """Nothing yet."""
        self.bought: dict[str, int] = {}

    @tool
    def price(self, item: str) -> int:
        """Tell a price."""
        if item not in ITEMS:
            raise ToolError(f"no {item}")
        return ITEMS.index(item) + 4

    @tool
    def order(self, item: str, count: int = 1) -> str:
        """Buy."""
        self.bought[item] = self.bought.get(item, 0) + count
        return f"bought {count} {item}"


def prompt(row: Wish) -> list[Message]:
    """A wish."""
    return [Message(role="user", content=f"{row.item} or {row.other}? {row.count} {row.item}")]


def validate(environment: Kiosk) -> dict[str, int]:
    """What was bought."""
    return environment.bought


@reward(0.7)
def bought(answer: dict[str, int], row: Wish) -> float:
    """Whether it is what was wished for."""
    return float(answer == {row.item: row.count})


@reward(0.3)
def compared(calls: tuple[Call, ...], row: Wish) -> float:
    """Whether both prices were asked first."""
    first = [(call.name, call.arguments, call.result) for call in calls[:2]]
    wanted = ((row.item, ITEMS.index(row.item) + 4), (row.other, ITEMS.index(row.other) + 4))
    return float(first == [("price", {"item": item}, str(price)) for item, price in wanted])


KIOSK = Task("kiosk", load, prompt, validate, (bought, compared), environment=Kiosk, max_turns=5)
