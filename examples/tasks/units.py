"""Convert a quantity to a smaller unit: "7 km in m" -> "7000 m"."""

import re

from grpo_sdk import Invalid, Row, Task, reward
from grpo_sdk.data import ProceduralConfig, procedural

FACTORS = {"km m": 1000, "m cm": 100, "cm mm": 10, "kg g": 1000, "h min": 60, "min s": 60, "day h": 24, "week day": 7}


class Quantity(Row):
    """One problem."""

    amount: int
    unit: str
    to: str


def make(random, difficulty):
    """Draw a quantity of up to three digits."""
    amount, (unit, to) = random.randint(1, 999), random.choice(list(FACTORS)).split()
    gold = f"{amount * FACTORS[f'{unit} {to}']} {to}"
    return Quantity(id="", gold=gold, amount=amount, unit=unit, to=to)


def load(config):
    """Quantities, in disjoint splits."""
    return procedural(config, make)


def prompt(row):
    """Ask for it in the other unit."""
    return f"{row.amount} {row.unit} in {row.to}:"


def validate(text, row):
    """Read a number and its unit."""
    match = re.fullmatch(r" ?([0-9]{1,9}) ([a-z]+)", text)
    if match is None:
        raise Invalid("not a number and a unit")
    return int(match[1]), match[2]


@reward(0.1)
def unit(answer, row):
    """The unit asked for."""
    return float(answer[1] == row.to)


@reward(0.9, needs="unit")
def amount(answer, row):
    """The exact number."""
    return float(answer[0] == row.amount * FACTORS[f"{row.unit} {row.to}"])


convert = Task(
    "convert", load, prompt, validate, (unit, amount), config=ProceduralConfig, row=Quantity, max_completion_length=12
)
