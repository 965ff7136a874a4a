"""A task's identity: one hash of its code, configuration and data, and a hash of each."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import orjson

from grpo_sdk.task.composition import RewardSpec
from grpo_sdk.task.identity import hashed, meaning_of
from grpo_sdk.task.opponent import Opponent
from grpo_sdk.task.row import TaskConfig
from grpo_sdk.task.task import Task


@dataclass(frozen=True)
class Fingerprint:
    """What identifies a task.

    Attributes:
        task: The task.
        name: Its full name.
        config: Its options.
        specs: Its rewards.
        opponent: Its opponent under these options.
        data: Yields size and hash of the file that rows are read from, and every row in use with its prompt, as JSON;
            called for each hash, since data may be large.
    """

    task: Task
    name: str
    config: TaskConfig
    specs: Sequence[RewardSpec]
    opponent: Opponent | None
    data: Callable[[], Iterable[bytes]]

    @cached_property
    def identity(self) -> str:
        """Hash of everything: 16 hex digits."""
        head = map(hashed, (self.name, self.task.version, self.config.model_dump_json()))
        return _digest(chain(head, (self._marks, self._functions), self.data()))

    @cached_property
    def ingredients(self) -> Mapping[str, str]:
        """Hash of each ingredient: 16 hex digits.

        `code`: the name, the version, the functions and the marks of the rewards. `config`: the options. `data`: the
        file, the rows in use and their prompts.
        """
        return {
            "code": _digest((hashed(self.name), hashed(self.task.version), self._marks, self._functions)),
            "config": _digest((hashed(self.config.model_dump_json()),)),
            "data": _digest(self.data()),
        }

    @cached_property
    def _functions(self) -> bytes:
        """Hashes of the meaning of all that decides a score."""
        task = self.task
        rewards = (spec.function for spec in self.specs)
        meanings = [
            meaning_of(part)
            for part in (task.prompt, task.validate, *rewards, task.compose, task.solved, self.opponent)
        ]
        if task.respond is not None:
            turns = task.max_turns
            meanings += [meaning_of(task.respond), str(turns) if isinstance(turns, int) else meaning_of(turns)]
        if task.has_tools:
            bounds = f"{task.ends} {task.on_tool_failure} {task.max_calls}"
            turns = task.max_turns
            meanings += [bounds, str(turns) if isinstance(turns, int) else meaning_of(turns)]
            meanings += [f"{orjson.dumps(tool.spec)!r} {tool.ends}" for tool in task.all_tools()]
            meanings += [meaning_of(tool.function) for tool in task.own_tools()]
            meanings += [server.label for server in task.servers()]
            meanings.append(meaning_of(None if task.environment is None else task.environment.reset))
        if task.remote is not None:
            meanings.append(meaning_of(task.remote))
        for spec in task.group_specs():
            meanings += [f"{spec.name} {spec.weight} {spec.maximum}", meaning_of(spec.function)]
        return b"".join(map(hashed, meanings))

    @property
    def _marks(self) -> bytes:
        return b"".join(hashed(f"{spec.name} {spec.weight} {spec.needs} {spec.maximum}") for spec in self.specs)


INGREDIENTS = {
    "code": ("its code", "functions, rewards or version"),
    "config": ("its options", "given or by default"),
    "data": ("its data", "file, rows or prompts"),
}
"""Ingredients of an identity, and how messages name them."""


def name_changes(now: Mapping[str, str], then: Mapping[str, str]) -> str:
    """The ingredients whose hashes differ, with both hashes.

    Args:
        now: Ingredients of the task, of `Fingerprint.ingredients`.
        then: Stored ingredients.
    """
    changed = [
        f"{words} ({parts}; hash {now[name]} now, {then.get(name)} then)"
        for name, (words, parts) in INGREDIENTS.items()
        if now[name] != then.get(name)
    ]
    return " and ".join(changed)


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
