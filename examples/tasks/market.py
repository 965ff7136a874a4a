"""A market where looking costs: the policy looks at stalls until it has seen enough, and buys.

One price is known, three can be looked at for a coin each. What is left of the coins is the reward, so the best policy
stops as soon as it has seen a price that another look does not pay for: `best_value` computes what it earns.
"""

import json
from collections.abc import Iterator
from functools import lru_cache
from random import Random

from pydantic import Field

from grpo_sdk import Environment, EvaluationDefaults, Invalid, Row, Task, ToolError, reward, tool
from grpo_sdk.data import ProceduralConfig, procedural

STALLS = "abcd"
COINS = 24
PRICES = range(1, 21)


class Market(Row):
    """One problem: the prices of the stalls, of which the first is known, and the coins that its gold leaves."""

    number: int
    prices: tuple[int, ...]
    par: int


class MarketConfig(ProceduralConfig):
    """Options of the task.

    Attributes:
        faulty: Share of the demos' purchases at a stall that is not the cheapest of those seen.
    """

    faulty: float = Field(default=0.3, ge=0, le=1)


def written(name: str, stall: str) -> str:
    """A call as the policy writes it."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': {'stall': stall}})}</tool_call>"


def make(random: Random, difficulty: int) -> Market:
    """Draw a market, whose gold looks on while the best price seen is above 6."""
    prices = tuple(random.choice(PRICES) for _ in STALLS)
    seen = 1
    while seen < len(STALLS) and not stops(min(prices[:seen])):
        seen += 1
    calls = [("look", stall) for stall in STALLS[1:seen]] + [("buy", STALLS[prices.index(min(prices[:seen]))])]
    turns = [{"text": "", "calls": [{"name": name, "arguments": {"stall": stall}}]} for name, stall in calls]
    par = COINS - min(prices[:seen]) - (seen - 1)
    return Market(id="", gold=json.dumps({"turns": turns}), number=random.randrange(10_000), prices=prices, par=par)


def load(config: MarketConfig) -> Iterator[Market]:
    """Markets, in disjoint splits."""
    return procedural(config, make, content=prompt)


def stops(price: int) -> bool:
    """Whether another look saves less than the coin it costs, on average: then nothing is gained by looking on."""
    return sum(max(price - other, 0) for other in PRICES) <= len(PRICES)


@lru_cache
def best_value(price: int, unseen: int = len(STALLS) - 1) -> float:
    """What the best policy earns on average, if this is the best price seen so far."""
    now = (COINS - price) / (COINS - 1)
    if not unseen:
        return now
    further = sum(best_value(min(price, other), unseen - 1) for other in PRICES) / len(PRICES)
    return max(now, further - 1 / (COINS - 1))


class Visit(Environment):
    """The state of one episode."""

    def reset(self, row: Market) -> None:
        """Begin with nothing bought."""
        self.row, self.looks, self.paid, self.seen = row, 0, 0, {"a"}

    @tool
    def look(self, stall: str) -> str:
        """Look at a stall, for a coin.

        Args:
            stall: Its letter.
        """
        if stall not in (*STALLS,):
            raise ToolError(f"There is no such stall; there are {', '.join(STALLS)}.")
        self.looks += 1
        self.seen.add(stall)
        return str(self.row.prices[STALLS.index(stall)])

    @tool(ends=True)
    def buy(self, stall: str) -> str:
        """Buy at a stall that has been looked at.

        Args:
            stall: Its letter.
        """
        if stall not in self.seen:
            raise ToolError("You have not looked there.")
        self.paid = self.row.prices[STALLS.index(stall)]
        return f"That is {self.paid}."


def prompt(row: Market) -> str:
    """The number of the market and the price that is known."""
    return f"{row.number}. a: {row.prices[0]}\n"


def validate(environment: Visit) -> int:
    """Coins that are left."""
    if not environment.paid:
        raise Invalid("nothing was bought")
    return max(COINS - environment.paid - environment.looks, 0)


@reward(1.0)
def left(answer: int) -> float:
    """Coins that are left, as a share of what a price of 1 leaves."""
    return answer / (COINS - 1)


@reward(0.0)
def regret(answer: int, row: Market) -> float:
    """What the best policy earns on average behind this known price, less what was earned; in [-1, 1]."""
    return best_value(row.prices[0]) - left(answer)


def solved(answer: int, row: Market) -> bool:
    """At least as many coins are left as the gold leaves."""
    return answer >= row.par


def demos(config: MarketConfig) -> Iterator[tuple[str, str]]:
    """Yield turns of visits that look at any number of stalls, and then buy, often not where it is cheapest."""
    random = Random(f"market demos/{config.seed}/{config.split}")
    while True:
        row = make(random, 1)
        text, seen = prompt(row), random.sample(STALLS[1:], random.randint(0, 3))
        for stall in seen:
            yield text, written("look", stall)
            price = row.prices[STALLS.index(stall)]
            text += f"{written('look', stall)}\n<tool_result>{price}</tool_result>\n"
        known = ["a", *seen]
        cheapest = min(known, key=lambda stall: row.prices[STALLS.index(stall)])
        yield text, written("buy", random.choice(known) if random.random() < config.faulty else cheapest)


def evaluation() -> EvaluationDefaults:
    """Evaluate with sampling: how often a policy looks is a probability, which greedy decoding rounds to 0 or 1."""
    return EvaluationDefaults(temperature=1.0)


market = Task(
    "market",
    load,
    prompt,
    validate,
    (left, regret),
    config=MarketConfig,
    row=Market,
    environment=Visit,
    max_turns=5,
    max_completion_length=32,
    solved=solved,
    demos=demos,
    exempt={
        "gold": "the best policy does not know what it has not seen",
        "range": "few markets have a known price of 1",
        "demos": "they show every call, and not which one pays",
    },
    evaluation=evaluation,
)
