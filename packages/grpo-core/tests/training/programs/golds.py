"""Tasks that a model is fine-tuned on before it is trained: to repeat a letter."""

from collections.abc import Iterable, Sequence
from typing import Any

from grpo_sdk import Message, Row, Task, TaskConfig, reward


class Letter(Row):
    letter: str


def load(config: TaskConfig) -> Iterable[Letter]:
    return [Letter(id=letter, letter=letter, gold=letter) for letter in "abcdefgh"]


def longer(config: TaskConfig) -> Iterable[Letter]:
    return [
        Letter(id=row.id, letter=row.letter, gold=row.letter * (1 + index)) for index, row in enumerate(load(config))
    ]


def only_train(config: TaskConfig) -> Iterable[Letter]:
    return load(config) if config.split == "train" else []


def prompt(row: Letter) -> str:
    return f"say {row.letter}:"


def too_long(row: Letter) -> str:
    return ("x" * 600 if row.letter == "a" else "") + prompt(row)


def chat(row: Letter) -> Sequence[Message]:
    return [Message(role="user", content=prompt(row))]


def prefilled(row: Letter) -> Sequence[Message]:
    return [*chat(row), Message(role="assistant", content="<think>")]


@reward()
def same(answer: str, row: Letter) -> float:
    return float(answer == row.letter)


def task(name: str, load: Any = load, prompt: Any = prompt) -> Task:
    return Task(name, load, prompt, lambda text, row: text, (same,), max_completion_length=4, row=Letter)


letters = task("letters")
growing = task("growing", longer)
unseen = task("unseen", only_train)
beyond = task("beyond", prompt=too_long)
chats = task("chats", prompt=chat)
thinks = task("thinks", prompt=prefilled)
