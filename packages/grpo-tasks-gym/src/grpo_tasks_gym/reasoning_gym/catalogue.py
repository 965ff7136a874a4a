"""What is known of each data set without importing reasoning-gym, which takes seconds: `datasets.json`.

`python docs/gym_catalogue.py` writes the file anew, for another version of reasoning-gym.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any, Literal

import orjson
from pydantic import BaseModel

Kind = Literal["int", "float", "bool", "str", "strs", "floats"]
"""Type of an option; `strs` and `floats` are several, separated by commas."""

FILE = "datasets.json"


class Option(BaseModel):
    """A field of a data set's own configuration."""

    kind: Kind
    default: Any = None


class Dataset(BaseModel):
    """A data set.

    Attributes:
        about: One line.
        levels: Levels of its curriculum; 0 without one.
        needs_process: Whether its entries depend on PYTHONHASHSEED or on random numbers that it does not seed.
        options: Fields of its configuration.
    """

    about: str
    levels: int = 0
    needs_process: bool = False
    options: dict[str, Option]


@cache
def datasets() -> dict[str, Dataset]:
    """Every data set by name."""
    content = orjson.loads(resources.files("grpo_tasks_gym.reasoning_gym").joinpath(FILE).read_bytes())
    return {name: Dataset.model_validate(facts) for name, facts in content.items()}
