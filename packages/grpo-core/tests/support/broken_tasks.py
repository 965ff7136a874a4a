"""Tasks with one fault each, named after the conformance check that finds it."""

import random
import sys
import time
import types
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import small_games

from grpo_sdk import Invalid, Row, Task, TaskConfig, graduated, group_reward, reward
from grpo_sdk.data import split_of
from grpo_sdk.task.game import game_task


class Double(Row):
    n: int


def load(config: TaskConfig) -> Iterable[Double]:
    for n in range(150, 500):
        if split_of(str(n)) == config.split:
            yield Double(id=str(n), gold=str(2 * n), n=n)


def prompt(row: Double) -> str:
    return f"Twice {row.n} is"


def validate(text: str) -> int:
    if not (text.isascii() and text.strip().isdecimal() and len(text) <= 10):
        raise Invalid("no whole number of at most ten digits")
    return int(text.strip())


@reward(0.2)
def number(answer: int) -> float:
    return 1.0


@reward(0.8)
def exact(answer: int, row: Double) -> float:
    return float(answer == 2 * row.n)


def broken(name: str, **changes: Any) -> Task:
    """The task without a fault, with some contributions replaced."""
    contributions = {"load": load, "prompt": prompt, "validate": validate, "rewards": (number, exact), "row": Double}
    return Task(name, **{**contributions, **changes})


faultless = broken("faultless")


def _wrong_golds(config: TaskConfig) -> Iterable[Double]:
    return (row.model_copy(update={"gold": str(2 * row.n + row.n % 2)}) for row in load(config))


gold = broken("gold", load=_wrong_golds)


def _nothing_is_right(text: str, row: Double) -> int:
    return validate(text) if text else 2 * row.n


junk = broken("junk", validate=_nothing_is_right)


@reward(-0.1)
def odd(answer: int) -> float:
    return -float(answer % 2 == 0)  # a penalty that pays, since its amounts are negative as well


bounds = broken("bounds", rewards=(number, exact, odd))


@reward(0.01)
def never_whole(answer: int) -> float:
    return 0.5


# The name of the check, as every task here has it: a `range` of its own is wanted nowhere in this file.
range_ = broken(
    "range", rewards=(number, exact, never_whole), compose=graduated(), solved=lambda parts: parts["exact"] == 1
)


@reward(0.5)
def far(answer: int, row: Double) -> float:
    return 1.0 if answer == 2 * row.n else min(0.9, abs(answer - 2 * row.n) / 200)


ladder = broken("ladder", rewards=(number, exact, far))


def _encoded(text: str) -> int:
    text.encode()
    return validate(text)


hostile = broken("hostile", validate=_encoded)


def _encoded_later(text: str, row: Double, turn: int) -> str:
    if turn > 1:
        text.encode()
    return " no. Again:"


hostile_in_a_later_turn = broken("hostile_in_a_later_turn", respond=_encoded_later, max_turns=3)


@reward(0.8)
def slow(answer: int, row: Double) -> float:
    if answer == 2 * row.n:
        time.sleep(0.6)
    return float(answer == 2 * row.n)


latency = broken("latency", rewards=(number, slow), timeout_s=1.0)

determinism = broken("determinism", prompt=lambda row: f"{prompt(row)} ({', '.join({'a', 'b', 'c', 'd', 'e'})})")


def _importing(text: str) -> int:
    sys.modules.setdefault("jax", types.ModuleType("jax"))
    return validate(text)


imports = broken("imports", validate=_importing)


class Counter(Double):
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Counter.model_construct, ()


def _counters(config: TaskConfig) -> Iterable[Counter]:
    return (Counter(**row.model_dump()) for row in load(config))


rows = broken("rows", load=_counters, row=Counter)
rows_in_parquet = broken("rows_in_parquet", prompt=lambda row: f"\ud800{prompt(row)}")


def _one_list(config: TaskConfig) -> Iterable[Double]:
    splits = [config.model_copy(update={"split": split}) for split in ("train", "validation", "test")]
    return random.Random(config.split).sample([row for each in splits for row in load(each)], 100)


split = broken("split", load=_one_list)
leak = broken("leak", prompt=lambda row: f"Twice {row.n} is {2 * row.n}. Twice {row.n} is")


def _tagged_rows(config: TaskConfig) -> Iterable[Double]:
    return (row.model_copy(update={"gold": f"<answer>{row.gold}</answer>"}) for row in load(config))


def _in_tags(text: str) -> int:
    return validate(text.strip().removeprefix("<answer>").removesuffix("</answer>"))


leak_of_an_answer = broken(
    "leak_of_an_answer", load=_tagged_rows, prompt=lambda row: f"Twice {row.n}? (It is {2 * row.n})", validate=_in_tags
)


def _somewhere(text: str, row: Double) -> int:
    return 2 * row.n if len(text) < 100 and str(row.n) in text else validate(text)


class Choice(Double):
    choices: tuple[str, ...] = ("red", "green", "blue", "grey")


def _choice_rows(config: TaskConfig) -> Iterable[Choice]:
    return (Choice(id=row.id, gold="ABCD"[row.n % 4], n=row.n) for row in load(config))


def _letter(text: str) -> str:
    if text.strip() not in ("A", "B", "C", "D"):
        raise Invalid("no letter")
    return text.strip()


leak_of_a_choice = broken(
    "leak_of_a_choice", load=_choice_rows, row=Choice,
    prompt=lambda row: f"Pick {row.n}: A) red B) green C) blue D) grey (it is {row.gold})", validate=_letter,
    rewards=(reward()(lambda answer, row: float(answer == row.gold)),),
)  # fmt: skip


leak_by_copying = broken("leak_by_copying", validate=_somewhere)


def _telling(text: str, row: Double) -> int:
    try:
        return validate(text)
    except Invalid:
        raise Invalid(f"expected {2 * row.n}") from None


def _telling_of_tags(text: str, row: Double) -> int:
    return _telling(text.strip().removeprefix("<answer>").removesuffix("</answer>"), row)


feedback = broken("feedback", validate=_telling)
feedback_of_an_answer = broken("feedback_of_an_answer", load=_tagged_rows, validate=_telling_of_tags)
feedback_of_a_later_turn = broken(
    "feedback_of_a_later_turn",
    respond=lambda text, row, turn: " no. Again:" if turn < 3 else f" no, {2 * row.n}. Again:",
    max_turns=4,
)
demos = broken("demos", demos=lambda config: ((prompt(row), " I do not know") for row in load(config)))
perfect = game_task(replace(small_games.HEAP, name="perfect", best=lambda state: 1))


@group_reward()
def _first(answers: list[int]) -> list[float]:
    return [1.0]


group = broken("group", rewards=(number, exact, _first))

NAMES = [name for name, value in list(vars().items()) if isinstance(value, Task) and name != "faultless"]
