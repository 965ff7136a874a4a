"""What a library's task is to us: its rewards, its rows, and its score of a completion."""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import orjson

from grpo_sdk import InfrastructureError, Message, ToolTurn, UserError
from grpo_sdk.data import DataError

MAX_RECORDS = 100_000
"""Most rows that are read from a library's task."""

MAX_RECORD_CHARS = 1 << 20
"""Longest row as JSON, with what its scorer needs."""

CALL_MARK = "<tool_call>"
"""Begins a call in the text form, and in the templates of most models."""

MAX_REWARDS = 64
"""Most rewards of a task."""

MAX_SOURCE_FILES = 2_000
"""Most files of a package whose content is part of its version."""


class NoVerdict(InfrastructureError):
    """The library's scorer gave no verdict on a completion, which says nothing about it."""


@dataclass(frozen=True)
class ForeignReward:
    """A reward of a library's task.

    Attributes:
        name: Its name, an identifier.
        weight: Its weight; 0 for what is only recorded.
    """

    name: str
    weight: float = 1.0


@dataclass(frozen=True)
class ForeignTool:
    """A tool of a library's task.

    Attributes:
        name: What the policy calls it.
        description: What it does.
        parameters: JSON Schema of its arguments.
    """

    name: str
    description: str
    parameters: dict[str, Any]


@dataclass(frozen=True)
class Description:
    """What is known of a library's task before a completion is scored.

    Attributes:
        version: Changes with the task's code and its library.
        rewards: Its rewards, in order.
        unused: Settings of the task that are not used here, in words.
        stop: Strings that end a completion.
        max_completion_length: Tokens that the task allows.
        no_gold: Why no row has a gold; empty where rows have one, or none is to be expected.
        tools: Its tools; with any, an episode has several turns.
    """

    version: str
    rewards: tuple[ForeignReward, ...]
    unused: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    max_completion_length: int | None = None
    no_gold: str = ""
    tools: tuple[ForeignTool, ...] = ()


@dataclass(frozen=True)
class Record:
    """A row as its library gives it.

    Attributes:
        id: Its id in the library; None where it has none.
        prompt: Text, or messages.
        data: What the library's scorer needs, as JSON values.
        gold: A completion that earns the maximum, where one is known.
    """

    id: str | None
    prompt: str | list[Message]
    data: Any
    gold: str | None = field(default=None, kw_only=True)


class ForeignEpisode(Protocol):
    """An episode of a library's task with tools, in this process.

    Attributes:
        is_over: Whether the task ended it.
    """

    is_over: bool

    def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Call a tool; returns what the library would show the model.

        Raises:
            ToolError: the same, of a call that failed by what the model wrote.
            ToolFault: the library would show more than text.
            Exception: whatever the library's code raises.
        """

    def score(self, turns: Sequence[ToolTurn]) -> Mapping[str, float]:
        """Value of every reward, after the turns whose calls were made.

        Raises:
            NoVerdict: there is none.
        """

    def close(self) -> None:
        """End it."""


class ForeignTask(Protocol):
    """A task of a library, opened in this process."""

    def describe(self) -> Description:
        """What is known before a completion is scored."""

    def records(self) -> Iterator[Record]:
        """The rows, in order."""

    def score(self, prompt: str | list[Message], data: Any, text: str) -> Mapping[str, float]:
        """Value of every reward for a completion.

        Raises:
            NoVerdict: there is none.
        """

    def begin(self, prompt: str | list[Message], data: Any) -> ForeignEpisode:
        """Begin an episode of a task that has tools.

        Raises:
            NoVerdict: it cannot begin, or begins otherwise than before.
        """


def written(turn: ToolTurn) -> str:
    """What a turn says beside its calls, as far as it says that before the first."""
    return turn.text.partition(CALL_MARK)[0].rstrip() if turn.calls else turn.text


@lru_cache(maxsize=8)
def opened(job: str) -> ForeignTask:
    """The library's task, opened in this process: its code runs here.

    Args:
        job: What is read, and where, as JSON (also its key in caches): `opener` is the "module:function" that opens the
            task, `(target, args)` -> `ForeignTask`; `target` names the task in its library; `args` are its arguments;
            `limit` is the number of rows that are read, or null.
    """
    facts = orjson.loads(job)
    module, _, function = facts["opener"].partition(":")
    task: ForeignTask = getattr(importlib.import_module(module), function)(facts["target"], facts["args"])
    return task


def identifier(name: str, taken: Iterable[str] = ()) -> str:
    """A name as an identifier that is not taken: `model_graded_qa`, `answer_2`."""
    plain = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")[:80] or "score"
    plain = f"score_{plain}" if plain[0].isdigit() else plain
    known, number, unique = set(taken), 1, plain
    while unique in known:
        number += 1
        unique = f"{plain}_{number}"
    return unique


def version_of(library: str, files: Iterable[Path]) -> str:
    """A library's name and version with a hash of the task's files."""
    digest = hashlib.blake2b(digest_size=8)
    for file in files:
        digest.update(hashlib.blake2b(file.read_bytes()).digest())
    return f"{library} {digest.hexdigest()}"


def package_files(folder: Path) -> list[Path]:
    """Python files of a package, in order.

    Raises:
        UserError: there are too many to read.
    """
    files: list[Path] = []
    for file in folder.rglob("*.py"):
        files.append(file)
        if len(files) > MAX_SOURCE_FILES:
            raise UserError(f"{folder.name} has more than {MAX_SOURCE_FILES} Python files.")
    return sorted(files)


def checked(records: Iterable[Record], limit: int | None) -> Iterator[dict[str, Any]]:
    """The records as JSON values.

    Raises:
        DataError: one is too long or no JSON, or there are too many.
    """
    for number, record in enumerate(records):
        if number == (limit or MAX_RECORDS):
            if limit is None:
                raise DataError(f"more than {MAX_RECORDS} rows; read the first with ?limit={MAX_RECORDS}.")
            return
        facts = {"id": record.id, "prompt": record.prompt, "data": record.data, "gold": record.gold}
        try:
            size = len(orjson.dumps(facts))
        except TypeError as error:
            raise DataError(f"row {number + 1}: cannot be written as JSON: {error}.") from None
        if size > MAX_RECORD_CHARS:
            raise DataError(f"row {number + 1}: {size} characters with its data; at most {MAX_RECORD_CHARS} are read.")
        yield facts
