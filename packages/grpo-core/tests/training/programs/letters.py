"""Tasks that any model of bytes can be trained on: their rewards depend on the characters of a completion."""

from collections.abc import Iterable, Sequence

from grpo_sdk import Invalid, Opponent, Row, Task, TaskConfig, reward


def load(config: TaskConfig) -> Iterable[Row]:
    offset = {"train": 0, "validation": 8, "test": 16}[config.split]
    for index in range(8):
        letter = chr(97 + offset + index)
        yield Row(id=letter, gold=letter, difficulty=1.0 + index // 4)


def many(config: TaskConfig) -> Iterable[Row]:
    for index in range(80):
        gold = "x" * (1 + 2 * (index % 4 == 3))
        yield Row(id=f"{config.split}{index}", gold=gold, difficulty=1.0 + index % 2)


def prompt(row: Row) -> str:
    return f"{row.id}{row.id}"


def repeated(row: Row) -> str:
    return row.id * (1 + ord(row.id) % 8)


def validate(text: str, row: Row) -> str:
    if not text:
        raise Invalid("nothing")
    return text


@reward()
def printable(answer: str) -> float:
    return sum(32 <= ord(character) < 127 for character in answer) / len(answer)


@reward()
def odd(answer: str) -> float:
    return float(sum(map(ord, answer)) % 2)


@reward()
def sometimes(answer: str, row: Row) -> float:
    return 1.0 if row.id in "aceg" else float(sum(map(ord, answer)) % 2)


@reward()
def always(text: str) -> float:
    return 1.0


@reward()
def never(answer: str) -> float:
    return 0.0


@reward()
def crashes(answer: str) -> float:
    return 1 / 0


@reward()
def unpredicted(answer: str, predictions: Sequence[str]) -> float:
    assert len(predictions) == 2
    return float(answer not in predictions)


def ask(answer: str) -> str:
    return f"what follows {answer[:4]!r}?"


letters = Task("letters", load, prompt, validate, (printable,), max_completion_length=4)
repeats = Task("repeats", load, repeated, validate, (printable,), max_completion_length=4)
coins = Task("coins", load, prompt, lambda text, row: text, (odd,), max_completion_length=6)
halves = Task("halves", load, prompt, lambda text, row: text, (sometimes,), max_completion_length=6)
broken = Task("broken", load, prompt, validate, (printable, crashes), max_completion_length=4)
climb = Task("climb", many, prompt, lambda text, row: text, (always,), max_completion_length=2, order="ladder")
impossible = Task("impossible", many, prompt, lambda text, row: text, (never,), max_completion_length=4)
possible = Task("possible", many, prompt, lambda text, row: text, (odd,), max_completion_length=4)
duel = Task(
    "duel", load, prompt, validate, (unpredicted,), max_completion_length=4,
    opponent=Opponent(prompt=ask, samples=2, max_completion_length=3),
)  # fmt: skip
