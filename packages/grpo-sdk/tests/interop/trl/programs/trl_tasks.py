"""Tasks that TRL trains, and some that it refuses."""

import time

from grpo_sdk import Invalid, Message, Row, Task, reward


class Sum(Row):
    a: int
    b: int


def load(config) -> list[Sum]:
    shift = 0 if config.split == "train" else 100
    return [Sum(id=f"{a + shift}+{b}", a=a + shift, b=b, gold=str(a + shift + b)) for a in range(1, 5) for b in (1, 2)]


def text_prompt(row):
    return f"{row.a}+{row.b}="


def chat_prompt(row):
    return [Message(role="user", content=text_prompt(row))]


def validate(text, row):
    if text == "hang":
        time.sleep(60)
    if text == "crash":
        raise RuntimeError("boom")
    try:
        return int(text)
    except ValueError:
        raise Invalid("no number") from None


@reward(0.25)
def number(answer):
    return 1.0


@reward(0.75)
def exact(answer, row):
    return float(answer == row.a + row.b)


@reward()
def digits(text):
    return sum(character.isdigit() for character in text) / max(1, len(text))


def again(text, row, turn):
    return None if turn == 1 and row.b == 1 else " again:"


def as_it_is(text, row):
    return text


both = (number, exact)
add = Task("add", load, text_prompt, validate, both, stop=("\n",), timeout_s=0.5)
same = Task("same", load, text_prompt, validate, both)
chat = Task("chat", load, chat_prompt, as_it_is, (digits,))
stopping = Task("stopping", load, chat_prompt, as_it_is, (digits,), stop=("a", "e", "1", "2", "3", " "))
turns = Task("turns", load, text_prompt, as_it_is, (digits,), max_turns=2, respond=again, max_completion_length=4)
