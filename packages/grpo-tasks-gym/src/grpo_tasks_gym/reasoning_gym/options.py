"""Options of each data set's task."""

from __future__ import annotations

import math
from difflib import get_close_matches
from functools import cache
from typing import Any, ClassVar, Literal

from pydantic import Field, create_model, field_validator, model_validator

from grpo_sdk import TaskConfig
from grpo_sdk.data import MAX_GENERATED, CommaSeparated
from grpo_tasks_gym.reasoning_gym import catalogue

TYPES: dict[str, Any] = {
    "int": int, "float": float, "bool": bool, "str": str,
    "strs": CommaSeparated[str], "floats": CommaSeparated[float],
}  # fmt: skip


class GymConfig(TaskConfig):
    """Options of every data set; its own configuration's fields come on top.

    Attributes:
        size: Rows generated.
        difficulty: Level of the data set's curriculum, or the first and last of several: 0-3; rows take them in turn.
        template: Prompt: the question with `tags` for the answer, or `plain`.
        chat: Whether the prompt is a message of the user, for models with a chat template.
        on_error: Whether a completion on which reasoning-gym's scorer raises an exception abstains, or is wrong.
    """

    dataset: ClassVar[str] = ""
    levels: ClassVar[int] = 0

    size: int | None = Field(default=1000, ge=1, le=MAX_GENERATED)
    difficulty: str | None = None
    template: Literal["tags", "plain"] = "tags"
    chat: bool = False
    on_error: Literal["abstain", "wrong"] = "abstain"

    @field_validator("difficulty", mode="before")
    @classmethod
    def _levels(cls, value: Any) -> Any:
        if value is None:
            return None
        ends = str(value).split("-")
        if not cls.levels:
            raise ValueError(f"{cls.dataset} has no curriculum in reasoning-gym; set its own options")
        if len(ends) > 2 or not all(end.isdecimal() and end.isascii() and int(end) < cls.levels for end in ends):
            raise ValueError(f"must be a level from 0 to {cls.levels - 1}, or two of them as in 0-{cls.levels - 1}")
        if int(ends[0]) > int(ends[-1]):
            raise ValueError("the first level is above the last")
        return str(value)

    @model_validator(mode="after")
    def _no_file(self) -> GymConfig:
        if self.path is not None and self.dataset != "composite":
            raise ValueError("path: this task generates its rows and reads no file")
        return self

    def level_range(self) -> tuple[int | None, ...]:
        """Levels that the rows take in turn; None is the data set's default configuration."""
        if self.difficulty is None:
            return (None,)
        first, _, last = self.difficulty.partition("-")
        return tuple(range(int(first), int(last or first) + 1))

    def own_options(self) -> dict[str, Any]:
        """Fields of the data set's own configuration that were set."""
        names = self.model_fields_set - set(GymConfig.model_fields)
        return {name: getattr(self, name) for name in sorted(names)}


class CompositeOptions(GymConfig):
    """Options of `reasoning_gym.composite`.

    Attributes:
        datasets: Data sets with their weights: `leg_counting:2,chain_sum`; or `path=` of a YAML file of reasoning-gym.
    """

    dataset: ClassVar[str] = "composite"

    datasets: CommaSeparated[str] = ("chain_sum", "leg_counting")

    @field_validator("datasets")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name, weight in map(_weighted, value):
            if name not in catalogue.datasets() or name == "composite":
                near = get_close_matches(name, catalogue.datasets(), n=1)
                raise ValueError(f"no data set {name!r}.{f' Did you mean {near[0]!r}?' if near else ''}")
            if not 0 < weight < math.inf:
                raise ValueError(f"the weight of {name} must be a number above 0")
        return value

    def weights(self) -> dict[str, float]:
        """Weight of each data set."""
        return dict(map(_weighted, self.datasets))

    @model_validator(mode="after")
    def _one_source(self) -> CompositeOptions:
        if self.path is not None and "datasets" in self.model_fields_set:
            raise ValueError("datasets and path both say which data sets; give one")
        return self


def _weighted(text: str) -> tuple[str, float]:
    """Name and weight of `name:weight`; a weight that is no number is not a number."""
    name, _, weight = text.partition(":")
    try:
        return name.strip(), float(weight) if weight else 1.0
    except ValueError:
        return name.strip(), math.nan


@cache
def config_class(name: str) -> type[GymConfig]:
    """The class of the options of a data set.

    Args:
        name: Name of the data set.

    Raises:
        KeyError: there is none.
    """
    dataset = catalogue.datasets()[name]
    if name == "composite":
        return CompositeOptions
    fields: dict[str, Any] = {
        option: (TYPES[facts.kind] if facts.default is not None else TYPES[facts.kind] | None, _default(facts.default))
        for option, facts in dataset.options.items()
        if option != "difficulty"  # set by the level of the curriculum
    }
    title = "".join(part.capitalize() for part in name.split("_"))
    config = create_model(f"{title}Config", __base__=GymConfig, __module__=__name__, **fields)
    config.dataset, config.levels = name, dataset.levels
    return config


def _default(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
