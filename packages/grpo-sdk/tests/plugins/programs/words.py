"""A task of a module that is loaded by hand."""

from grpo_sdk import Row, Task, reward


class Word(Row):
    length: int


def load() -> list[Word]:
    return [Word(id=word, length=len(word)) for word in ("a", "bc")]


def count(text):
    return len(text)


@reward()
def fits(text, row):
    return float(count(text) == row.length)


words = Task("words", load, lambda row: row.id, lambda text: text, [fits])
