"""A task and a command of its own: what a sound plugin looks like."""

from collections.abc import Iterable

import click

from grpo_sdk import Invalid, Row, Task, hookimpl, reward

WORDS = ("cat", "night", "moon", "day", "tree", "sea", "stone", "light")


class Word(Row):
    word: str


def load(config) -> Iterable[Word]:
    return [Word(id=word, gold=word.upper(), word=word) for word in WORDS]


def prompt(row):
    return f"Shout {row.word!r}: "


def validate(text, row):
    if not (words := text.split()):
        raise Invalid("no word")
    return words[0]


@reward(0.25)
def upper(answer):
    return float(answer.isupper())


@reward(0.75, needs="upper")
def same(answer, row):
    return float(answer.lower() == row.word)


@hookimpl
def grpo_tasks():
    return [Task("shout", load, prompt, validate, (upper, same), max_completion_length=8)]


@hookimpl
def grpo_commands():
    return {"shout": "grpo_plugin_good:shout"}


@click.command()
@click.argument("word")
def shout(word: str) -> None:
    """Say a word as the task wants it."""
    click.echo(word.upper())
