"""A task that any model of bytes can be trained on: complete two letters with printable characters."""

from collections.abc import Iterable

from grpo_core import Invalid, Row, Task, TaskConfig, reward


class Letter(Row):
    letter: str


def load(config: TaskConfig) -> Iterable[Letter]:
    offset = {"train": 0, "validation": 8, "test": 16}[config.split]
    for index in range(8):
        letter = chr(97 + offset + index)
        yield Letter(id=letter, letter=letter, gold=letter)


def prompt(row: Letter) -> str:
    return f"{row.letter}{row.letter}"


def validate(text: str, row: Letter) -> str:
    if not text:
        raise Invalid("nothing")
    return text


@reward(1.0)
def printable(answer: str) -> float:
    return sum(32 <= ord(character) < 127 for character in answer) / len(answer)


letters = Task("letters", load, prompt, validate, (printable,), max_completion_length=4)


def repeated(row: Letter) -> str:
    return row.letter * (1 + ord(row.letter) % 8)


repeats = Task("repeats", load, repeated, validate, (printable,), max_completion_length=4)
