"""The task of a library's task."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

import orjson
from pydantic import JsonValue

from grpo_sdk import Environment, Message, Row, Task, Tool, ToolTurn, reward, schema_tool
from grpo_sdk.data import DataError, split_of, stable_id
from grpo_tasks_gym.foreign.options import HASH, ForeignConfig
from grpo_tasks_gym.foreign.packages import check_installed
from grpo_tasks_gym.foreign.reading import contents, describe
from grpo_tasks_gym.foreign.source import ForeignEpisode, ForeignReward, ForeignTool, NoVerdict, opened

MAX_ID_CHARS = 80
"""Longest id of a library's row that names ours; others are named by a hash."""

ISOLATION = (
    "{what} runs in processes of its own with limits of time and memory, which are no sandbox: it may do what you may"
)

TIMEOUT_S = 30.0
"""Limit of scoring a completion: these scorers may start programs, or ask a model that is configured."""


class ForeignRow(Row):
    """A row of a library's task.

    Attributes:
        prompt: What the model is shown.
        data: What the library's scorer needs.
    """

    prompt: str | tuple[dict[str, str], ...]
    data: JsonValue


def prompt(row: ForeignRow, config: ForeignConfig) -> str | Sequence[Any]:
    """What the library shows the model."""
    if config.chat or isinstance(row.prompt, str):
        return row.prompt
    return "\n\n".join(message["content"] for message in row.prompt)


def validate(text: str, row: ForeignRow, config: ForeignConfig) -> Mapping[str, float]:
    """The library's value of every reward.

    Raises:
        NoVerdict: there is none.
        Exception: whatever the library's code raises.
    """
    return opened(config.job()).score(_listed(row.prompt), row.data, text)


class ForeignEnvironment(Environment):
    """An episode of a library's task with tools."""

    _episode: ForeignEpisode | None = None

    def reset(self, row: ForeignRow, config: ForeignConfig) -> None:  # type: ignore[override] # the task's row
        """Begin the library's episode."""
        self._episode = opened(config.job()).begin(_listed(row.prompt), row.data)

    def close(self) -> None:
        """End it."""
        if self._episode is not None:
            self._episode.close()

    def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Call a tool of the library's task."""
        assert self._episode is not None  # after `reset`
        try:
            return self._episode.call(tool, arguments)
        finally:
            self.is_over = self._episode.is_over

    def score(self, turns: Sequence[ToolTurn]) -> Mapping[str, float]:
        """The library's value of every reward."""
        assert self._episode is not None  # after `reset`
        return self._episode.score(turns)


def validate_episode(
    text: str, row: ForeignRow, environment: ForeignEnvironment, turns: Sequence[ToolTurn]
) -> Mapping[str, float]:
    """The library's value of every reward.

    Raises:
        NoVerdict: there is none.
        Exception: whatever the library's code raises.
    """
    return environment.score(turns)


def max_turns(config: ForeignConfig) -> int:
    """Most turns of an episode."""
    return config.max_turns


def load_rows(config: ForeignConfig) -> Iterator[ForeignRow]:
    """Distinct rows of the split, in the library's order.

    Raises:
        DataError: the rows cannot be read, or the split has none.
    """
    records = contents(config.job(), config.load_timeout_s, config.stamp()).records
    contents_seen: set[str] = set()
    ids: set[str] = set()
    for record in records:
        content = stable_id(orjson.dumps([record["id"], record["prompt"], record["data"]]).decode())
        question = orjson.dumps(record["prompt"]).decode()
        if content in contents_seen or (config.split_by == HASH and split_of(question) != config.split):
            continue
        contents_seen.add(content)
        name = _id_of(record["id"], content, ids)
        ids.add(name)
        yield ForeignRow(id=name, gold=record["gold"], prompt=_frozen(record["prompt"]), data=record["data"])
    if not ids:
        raise DataError(_why_none(config, records))


def _id_of(name: str | None, content: str, taken: set[str]) -> str:
    """The library's id of a row, unless it is taken, unprintable or long; else the hash of its content."""
    return name if name and name not in taken and len(name) <= MAX_ID_CHARS and name.isprintable() else content


def _why_none(config: ForeignConfig, records: Iterable[Mapping[str, Any]]) -> str:
    splits = [split_of(orjson.dumps(record["prompt"]).decode()) for record in records]
    if not splits or config.split_by != HASH:
        return "it has no rows."
    shares = ", ".join(
        f"{splits.count(name)} {name}" for name in get_args(type(config).model_fields["split"].annotation)
    )
    return f"it has {len(splits)} rows, by hash {shares}; ?split_by=none has all of them in every split."


def foreign_task(name: str, config: type[ForeignConfig], about: str, what: Callable[[Any], str]) -> Task:
    """A task whose rewards are known once the library's task has been read.

    Args:
        name: Name within the plugin.
        config: Class of its options.
        about: One line.
        what: `(config)` -> whose code runs, for the line on isolation.
    """

    def load(config: ForeignConfig) -> Iterator[ForeignRow]:
        if missing := config.missing():
            raise DataError(missing)
        return load_rows(config)

    def isolation(config: ForeignConfig) -> dict[str, str]:
        return {"isolation": ISOLATION.format(what=what(config))}

    def specialize(config: ForeignConfig) -> Task:
        if config.missing():
            return general
        check_installed(*config.library)
        description = describe(config.job(), config.load_timeout_s, config.stamp())
        config.check_names([each.name for each in description.rewards])

        def conditions(config: ForeignConfig) -> dict[str, str]:
            unused = {"not used": ", ".join(description.unused)} if description.unused else {}
            return isolation(config) | unused

        tools = tuple(map(_tool, description.tools))
        episodes: dict[str, Any] = {
            "tools": tools,
            "environment": ForeignEnvironment,
            "validate": validate_episode,
            "max_turns": max_turns,
        }
        return dataclasses.replace(
            general,
            **(episodes if tools else {}),
            rewards=tuple(_reward(each, config) for each in description.rewards),
            version=description.version,
            stop=description.stop,
            max_completion_length=description.max_completion_length,
            conditions=conditions,
            exempt={"gold": description.no_gold} if description.no_gold else {},
        )

    load.__doc__ = about
    general = Task(
        name,
        load,
        prompt,
        validate,
        (_reward(ForeignReward("score"), None),),
        config=config,
        row=ForeignRow,
        timeout_s=TIMEOUT_S,
        conditions=isolation,
    )
    return dataclasses.replace(general, specialize=specialize)


def _tool(described: ForeignTool) -> Tool:
    """A tool of a library's task as one of ours."""

    def call(environment: ForeignEnvironment, /, **arguments: Any) -> str:
        return environment.call(described.name, arguments)

    return schema_tool(described.name, described.description, described.parameters, call, is_method=True)


def _reward(part: ForeignReward, config: ForeignConfig | None) -> Callable[..., float]:
    """The reward of a part of the library's score."""
    name = part.name
    weight = part.weight if config is None else config.weights.get(name, part.weight)
    maximum = 1.0 if config is None else config.maximum.get(name, config.maximum.get("", 1.0))

    def value(answer: Mapping[str, float]) -> float:
        if name not in answer:
            raise NoVerdict(f"it has no value; there are {', '.join(answer) or 'none'}")
        if weight and answer[name] > maximum:
            raise NoVerdict(f"{answer[name]:g} is above its maximum {maximum:g}; state it: ?maximum={answer[name]:g}")
        return answer[name]

    value.__name__ = value.__qualname__ = name
    return reward(weight, maximum=maximum)(value)


def _frozen(prompt: str | list[Message]) -> Any:
    return prompt if isinstance(prompt, str) else tuple(prompt)


def _listed(prompt: str | tuple[dict[str, str], ...]) -> str | list[Message]:
    if isinstance(prompt, str):
        return prompt
    return [Message(role=each["role"], content=each["content"]) for each in prompt]
