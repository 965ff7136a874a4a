"""Tasks that do not return between turns."""

import time
from dataclasses import replace

import small_games

from grpo_sdk import Row, Task


def load(config) -> list[Row]:
    return [Row(id="a")]


def respond(text, row, turn):
    time.sleep(60)


def parse(text, state):
    if text == "spin":
        time.sleep(60)
    return small_games.parse(text, state)


ABSTAINS = Task(
    "slow", load, lambda row: "p", lambda text, row: text, [lambda answer: 1.0], respond=respond, max_turns=2
)
FAILS = replace(ABSTAINS, on_timeout="fail")
HEAP = replace(small_games.HEAP, parse=parse)
