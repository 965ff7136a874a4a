"""Tasks that a model is fine-tuned on before it is trained: to repeat a letter."""

from collections.abc import Iterable, Sequence
from typing import Any

from grpo_sdk import Message, Row, Task, TaskConfig, reward


def load(config: TaskConfig) -> Iterable[Row]:
    return [Row(id=letter, gold=letter) for letter in "abcdefgh"]


def longer(config: TaskConfig) -> Iterable[Row]:
    return [Row(id=letter, gold=letter * (1 + index)) for index, letter in enumerate("abcdefgh")]


def only_train(config: TaskConfig) -> Iterable[Row]:
    return load(config) if config.split == "train" else []


def prompt(row: Row) -> str:
    return f"say {row.id}:"


def too_long(row: Row) -> str:
    return ("x" * 600 if row.id == "a" else "") + prompt(row)


def chat(row: Row) -> Sequence[Message]:
    return [Message(role="user", content=prompt(row))]


def prefilled(row: Row) -> Sequence[Message]:
    return [*chat(row), Message(role="assistant", content="<think>")]


@reward()
def same(answer: str, row: Row) -> float:
    return float(answer == row.id)


def task(name: str, load: Any = load, prompt: Any = prompt) -> Task:
    return Task(name, load, prompt, lambda text, row: text, (same,), max_completion_length=4, row=Row)


letters = task("letters")
growing = task("growing", longer)
unseen = task("unseen", only_train)
beyond = task("beyond", prompt=too_long)
chats = task("chats", prompt=chat)
thinks = task("thinks", prompt=prefilled)
