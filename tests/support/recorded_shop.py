"""A shop whose tools also break, and how our own player plays the episodes of recorded_tool_episodes.json in it.

    python tests/support/recorded_shop.py       records them again

`EPISODES` are what every trainer plays. An episode has its `row`, what the policy wrote (`asked`: text and calls of
each turn), what was answered (`turns`, as `write_tool_turns` writes them: the calls with `result`, and `ok` and `ran`
where they are false; without the calls that are not run and one whose tool breaks), and the `score`: value, parts,
valid, solved, fault, and `named`, the broken tool, which the reason names.
"""

import asyncio
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from grpo_sdk import Call, Environment, Invalid, Row, Task, TaskConfig, ToolError, reward, tool

PRICES = {"cup": 3, "lamp": 5}


class Visit(Row):
    """What to buy, and the coins."""

    item: str
    coins: int


def load(config: TaskConfig) -> Iterable[Visit]:
    """Two visits, of any split."""
    return [Visit(id=f"{item} {3 * price}", item=item, coins=3 * price) for item, price in PRICES.items()]


class Shop(Environment):
    """The state of one episode."""

    def reset(self, row: Visit) -> str:
        """Begin with nothing bought."""
        self.row, self.bought, self.aside = row, 0, 0
        return " The shop is open."

    @tool
    def look_up(self, item: str) -> str:
        """Look up a price.

        Args:
            item: What is sold.
        """
        if item not in PRICES:
            raise ToolError(f"There is no {item} here.")
        return f"{PRICES[item]} coins"

    @tool
    def put_aside(self, coins: int) -> int:
        """Put coins aside; a call that runs twice does it twice.

        Args:
            coins: How many.
        """
        self.aside += coins
        return self.aside

    @tool(ends=True)
    def order(self, item: str, count: int = 1) -> str:
        """Order an item.

        Args:
            item: What to buy.
            count: How many.
        """
        if item != self.row.item or not 1 <= count <= (self.row.coins - self.aside) // PRICES[item]:
            return "You cannot pay that."
        self.bought = count
        return f"You have {count} {item}."

    @tool
    async def weigh(self, item: str) -> dict[str, float]:
        """Weigh an item, which takes a moment."""
        await asyncio.sleep(0.01)
        return {item: 1.5}

    @tool
    def haggle(self) -> str:
        """Raise what is no ToolError."""
        raise RuntimeError("a bug")

    @tool(timeout_s=0.5)
    def wait(self) -> None:
        """Wait for ever."""
        time.sleep(600)


def undescribed(number: int) -> int:  # some tools have no docstring
    return 2 * number


def prompt(row: Visit) -> str:
    """The coins."""
    return f"You have {row.coins} coins. Buy {row.item}s."


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
def spent(answer: int, row: Visit, environment: Shop) -> float:
    """Share of the coins that was spent or put aside."""
    return (answer * PRICES[row.item] + environment.aside) / row.coins


shop = Task(
    "shop", load, prompt, validate, (looked, spent), tools=(undescribed,), environment=Shop, max_turns=4,
    max_completion_length=48,
)  # fmt: skip

SPEC = f"{Path(__file__).resolve()}:shop"
EPISODES_SPEC = SPEC.removesuffix("shop") + "episodes"
RECORDED = Path(__file__).with_name("recorded_tool_episodes.json")
EPISODES: list[dict[str, Any]] = json.loads(RECORDED.read_text()) if RECORDED.is_file() else []

episodes = replace(
    shop,
    name="episodes",
    load=lambda config: [Visit(id=each["name"], item="cup", coins=9) for each in EPISODES],
    row=Visit,
    prompt=lambda row: f"{row.id}: {prompt(row)}",
)
"""The shop with a row for each episode, whose prompt begins with its name."""

LOOK, ORDER = {"name": "look_up", "arguments": {"item": "cup"}}, {"name": "order", "arguments": {"item": "cup"}}
ONE = {"name": "put_aside", "arguments": {"coins": 1}}
ALL = {"name": "order", "arguments": {"item": "cup", "count": 3}}

WRITTEN: dict[str, list[tuple[str, list[dict[str, Any]]]]] = {
    "good": [("Let me look.", [LOOK]), ("", [ALL])],
    "thrifty": [("", [{"name": "put_aside", "arguments": {"coins": 3}}]), ("", [LOOK]),
                ("", [{"name": "order", "arguments": {"item": "cup", "count": "2"}}])],
    "wrong arguments": [
        ("", [{"name": "look_up", "arguments": {"what": "cup"}}, {"name": "look_up", "arguments": {}}]),
        ("", [{"name": "order", "arguments": {"item": "cup", "count": 1.5}}]), ("", [ORDER]),
    ],
    "unknown tool": [("", [{"name": "steal", "arguments": {"item": "cup"}}]), ("", [ALL])],
    "tool error": [("", [{"name": "look_up", "arguments": {"item": "gold"}}]), ("", [ORDER])],
    "several calls": [
        ("Both.", [LOOK, {"name": "weigh", "arguments": {"item": "cup"}}, {"name": "weigh", "arguments": {"item": "é"}},
                   {"name": "undescribed", "arguments": {"number": 4}}]),
        ("", [ONE, ONE, ORDER]),
    ],
    "behind the end": [("", [ORDER, LOOK])],
    "no call": [("", [LOOK]), ("I buy nothing.", [])],
    "out of turns": [("", [LOOK])] * 4,
    "raises": [("", [LOOK]), ("", [{"name": "haggle", "arguments": {}}])],
    "hangs": [("", [LOOK]), ("", [{"name": "wait", "arguments": {}}])],
}  # fmt: skip


def play(row_json: str, turns: Sequence[tuple[str, list[dict[str, Any]]]]) -> dict[str, Any]:
    """Play turns by our own player: turns with results, and the score."""
    from grpo_sdk import Scorer, load_task
    from grpo_sdk.endpoints.base import SampleKey
    from grpo_sdk.episodes.player import Player, SteppedEpisode, run
    from grpo_sdk.task.tools.calls import Reading, ToolCall, write_tool_turns

    task = load_task(SPEC)
    with Scorer(task, workers=1, tool_workers=1) as scorer:
        row = task.row_from_json(row_json)
        stepped = SteppedEpisode(Player(scorer), row, task.prompt(row), SampleKey(0, 0, row.id, 0))
        run(stepped.begin())
        for text, calls in turns:
            assert not stepped.is_over
            reading = Reading(text, calls=tuple(ToolCall(call["name"], call["arguments"]) for call in calls))
            run(stepped.step(text, reading))
        (score,) = run(stepped.scores()).values()
    asked = [{"text": text, "calls": calls} for text, calls in turns]
    played = json.loads(write_tool_turns(stepped.episode.state.moves))["turns"]
    facts = {name: getattr(score, name) for name in ("value", "parts", "valid", "solved", "fault")}
    if score.abstained:
        facts["named"] = calls[-1]["name"]
        assert f"tool {facts['named']}()" in score.why
    return {"row": row_json, "asked": asked, "turns": played, "score": facts}


def recorded() -> list[dict[str, Any]]:
    """The episodes as our own player plays them now."""
    row = load(TaskConfig())[0].model_dump_json()  # type: ignore[index] # a list
    return [{"name": name, **play(row, turns)} for name, turns in WRITTEN.items()]


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(recorded(), indent=1, ensure_ascii=False) + "\n")
