"""Options of a task that is another library's code."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar

import orjson
import yaml
from pydantic import Field, JsonValue, field_validator

from grpo_sdk import TaskConfig, UserError
from grpo_sdk.data import DataError
from grpo_tasks_gym.foreign.source import MAX_RECORDS

HASH, NONE = "hash", "none"


class ForeignConfig(TaskConfig):
    """Options of a task from another library.

    Attributes:
        args: Arguments of the library's own task: `difficulty:hard,shots:3`, or an object as JSON.
        limit: Rows that are read from the library, before they are split.
        split_by: How rows get into splits: `hash` of their prompt; `none`: all of them are in every split; or the name
            of one of the `args`, which is given the name of the split.
        weights: Weight of rewards: `match:1,includes:0.5`; 1 unless the library states another. 0 only records.
        maximum: Largest value of the rewards, or of some: `10`, or `quality:10,style:5`; 1 by default.
        chat: Whether prompts are chat messages; otherwise they are the texts of these, for models without a chat
            template.
        max_turns: Most turns of an episode of a task with tools.
        load_timeout_s: Limit of reading the rows.
    """

    library: ClassVar[tuple[str, str, str]] = ("", "", "")
    opener: ClassVar[str] = ""

    args: dict[str, JsonValue] = Field(default_factory=dict)
    limit: int | None = Field(default=None, ge=1, le=MAX_RECORDS)
    split_by: str = HASH
    weights: dict[str, float] = Field(default_factory=dict)
    maximum: dict[str, float] = Field(default_factory=dict)
    chat: bool = True
    max_turns: int = Field(default=8, ge=1, le=64)
    load_timeout_s: float = Field(default=300.0, gt=0, le=86_400)

    @field_validator("args", mode="before")
    @classmethod
    def _read_args(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if value.lstrip().startswith("{"):
            try:
                return orjson.loads(value)
            except orjson.JSONDecodeError as error:
                raise ValueError(f"no JSON: {error}") from None
        return {name: _plain(name, text) for name, text in _pairs(value)}

    @field_validator("weights", "maximum", mode="before")
    @classmethod
    def _read_numbers(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return {"": float(value)}
        except ValueError:
            return dict(_pairs(value))

    @field_validator("weights")
    @classmethod
    def _names_rewards(cls, value: dict[str, float]) -> dict[str, float]:
        if "" in value:
            raise ValueError("must name rewards, as in match:1,includes:0.5")
        return value

    @field_validator("maximum")
    @classmethod
    def _above_0(cls, value: dict[str, float]) -> dict[str, float]:
        if not all(0 < number < math.inf for number in value.values()):
            raise ValueError("must be numbers above 0")
        return value

    @field_validator("path")
    @classmethod
    def _no_path(cls, value: str | None) -> str | None:
        if value is not None:
            raise ValueError("the library's own task has the rows; this one reads no other file")
        return value

    def job(self) -> str:
        """What is read for these options, as `source.opened` describes it: equal jobs have equal rows and rewards."""
        args = dict(self.args)
        if self.split_by not in (HASH, NONE):
            if self.split_by in args:
                raise UserError(f"split_by={self.split_by} gives args the name of the split; args names it as well.")
            args[self.split_by] = self.split
        job = {"opener": self.opener, "target": self.target(), "args": args, "limit": self.limit}
        return orjson.dumps(job, option=orjson.OPT_SORT_KEYS).decode()

    def missing(self) -> str:
        """How to name a task of the library, where the options name none; else empty."""
        return ""

    def stamp(self) -> str:
        """Changes with the task's files, as far as they are known without its library."""
        return ""

    @abstractmethod
    def target(self) -> dict[str, str]:
        """What names the library's task; each library's own."""

    def check_names(self, rewards: list[str]) -> None:
        """Refuse weights and maxima of rewards that do not exist.

        Raises:
            DataError: there is none of that name.
        """
        for option in ("weights", "maximum"):
            for name in getattr(self, option):
                if name and name not in rewards:
                    raise DataError(f"{option} names {name!r}; the rewards are {', '.join(rewards)}.")


def _pairs(text: str) -> list[tuple[str, str]]:
    pairs = [pair.partition(":") for pair in text.split(",")]
    if any(not name.strip() or not value.strip() for name, _, value in pairs):
        raise ValueError("is name:value, several separated by commas")
    names = [name.strip() for name, _, _ in pairs]
    if repeated := next((name for name in names if names.count(name) > 1), ""):
        raise ValueError(f"names {repeated!r} twice")
    return [(name.strip(), value.strip()) for name, _, value in pairs]


def _plain(name: str, text: str) -> Any:
    """A value as YAML reads it: a number, a boolean, text."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise ValueError(f"{name}: cannot be read; quote it, or give args as JSON") from None
    return value if isinstance(value, bool | int | float | str | None) else text
