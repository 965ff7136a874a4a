"""Sums without fault, which tests change, and a task that takes anything."""

from collections.abc import Iterable

from grpo_sdk import Invalid, Row, Task, reward


class Sum(Row):
    a: int
    b: int


def load(config) -> Iterable[Sum]:
    return [Sum(id=f"{a}+{b}", gold=str(a + b), a=a, b=b) for a in range(5, 8) for b in range(3)]


def prompt(row):
    return f"{row.a} + {row.b} ="


def validate(text, row):
    text = text.strip()
    if not text.isdecimal() or len(text) > 20:
        raise Invalid("no whole number")
    return int(text)


@reward()
def exact(answer, row):
    return float(answer == row.a + row.b)


REASON = "three splits of one list are tried elsewhere"
add = Task("add", load, prompt, validate, (exact,), exempt={"split": REASON, "leak": "6 + 0 = 6"})
lenient = Task("lenient", load, prompt, lambda text: text, (lambda text: 1.0,), exempt={"split": REASON})
