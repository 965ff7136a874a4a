"""A task whose golds and refusals hold control characters, and one completion never ends."""

from collections.abc import Iterable

from grpo_sdk import Invalid, Row, Task, reward


def load() -> Iterable[Row]:
    yield Row(id="first", gold="4")
    yield Row(id="second", gold="\x1b[31m5")


def validate(text: str, row: Row) -> str:
    if text == "spin":
        while True:
            pass
    if not text.strip():
        raise Invalid("empty \x1b[2J")
    return text.strip()


@reward()
def right(answer: str, row: Row) -> float:
    return float(answer == row.gold)


@reward(0.0)
def length(text: str) -> float:
    return float(len(text))


sums = Task("sums", load, lambda row: "2 + 2 =", validate, (right, length), timeout_s=0.5)
