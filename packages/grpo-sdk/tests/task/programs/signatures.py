"""Tools, to compare their schemas with those that transformers makes."""

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field


class Unit(Enum):
    KM = "km"
    MILES = "mi"


class Item(BaseModel):
    name: str
    count: int = 1


@dataclass
class Point:
    x: float
    y: float


# Both say the same.


def add(a: int, b: int):
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """


def divide(a: float, b: float):
    """Divide.

    It is exact.

    Args:
        a: Numerator, which
            may be 0.
        b: Denominator.

    Returns:
        The quotient.

    Raises:
        ToolError: b is 0.
    """


def say(text: str):
    """Say.

    Args:
        text: What: that.
    """


def total(values: list[float]):
    """Add up.

    Args:
        values: Numbers.
    """


def collect(things: list):
    """Collect.

    Args:
        things: Of any kind.
    """


def tree(children: dict[str, list[str]]):
    """Plant.

    Args:
        children: By parent.
    """


def anything(value: Any):
    """Take it.

    Args:
        value: Whatever.
    """


def convert(amount: float, unit: Literal["km", "mi"]):
    """Convert a distance.

    Args:
        amount: Distance.
        unit: Unit of `amount`; the result is in the other one.
    """


def now():
    """Tell the time."""


def only_keywords(*, city: str, days: int):
    """Forecast.

    Args:
        city: Where.
        days: How many.
    """


def several(a: str, b: list[Literal["x", "y"]], c: list[Any]):
    """Take several.

    Args:
        a: One.
        b: Two.
        c: Three.
    """


# transformers says less, other words, or nothing.


def default(count: int = 3):
    """Count.

    Args:
        count: How many.
    """


def optional_default(note: str | None = None):
    """Note it.

    Args:
        note: Text.
    """


def either(key: int | str):
    """Find it.

    Args:
        key: Its number or name.
    """


def any_dict(options: dict):
    """Set options.

    Args:
        options: By name.
    """


def pair(place: tuple[float, str]):
    """Go there.

    Args:
        place: Distance and direction.
    """


def single(mode: Literal["fast"]):
    """Go.

    Args:
        mode: How.
    """


def in_brackets(amount: float):
    """Pay.

    Args:
        amount (float): How much.
    """


def constrained(count: Annotated[int, Field(ge=1)]):
    """Order.

    Args:
        count: How many.
    """


def annotated(count: Annotated[int, Field(description="From Field.")]):
    """Order.

    Args:
        count: From the docstring.
    """


def numpy_form(a: int, b: int):
    """Add two numbers.

    Parameters
    ----------
    a : int
        The first.
    b : int
        The second.
    """


def rest_form(a: int):
    """Negate.

    :param a: The number.
    :returns: Its negative.
    """


def models(item: Item, place: Point, unit: Unit):
    """Send.

    Args:
        item: What.
        place: Where.
        unit: Of the distance.
    """


def undocumented(a: int):
    return a


def choices(drink: str):
    """Pour.

    Args:
        drink: Which one (choices: ["tea", "coffee"])
    """


def returns(a: int) -> int:
    """Negate.

    Args:
        a: The number.
    """
