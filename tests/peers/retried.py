"""A task of two attempts, whose reward crashes where the completion says so."""

from collections.abc import Iterable

from grpo_sdk import Row, Task, reward


def load() -> Iterable[Row]:
    for word in "abcd":
        yield Row(id=word, gold=word)


def prompt(row: Row) -> str:
    return f"Say {row.gold}:"


def validate(text: str) -> str:
    return text.strip()


def respond(text: str, row: Row, turn: int) -> str | None:
    return None if text.strip() in (row.gold, "crash") else " Once more:"


@reward()
def right(answer: str, row: Row) -> float:
    if answer == "crash":
        raise LookupError(answer)
    return float(answer == row.gold)


task = Task("retried", load, prompt, validate, [right], respond=respond, max_turns=2)
