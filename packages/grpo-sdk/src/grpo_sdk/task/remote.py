"""A task whose episodes another server plays and judges: what asks that server."""

from __future__ import annotations

import json
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from grpo_sdk.task.row import Prompt, Row

T = TypeVar("T")

Moves = Sequence[str | int]
"""Completions of a rollout, with what the remote has put between them."""


@dataclass(frozen=True, slots=True)
class RemoteTurn:
    """What follows a completion.

    Attributes:
        moves: The moves so far: those that were given, and whole numbers by which the remote recognizes the episode.
        prompt: What the conversation goes on with; None where it is over.
    """

    moves: tuple[str | int, ...]
    prompt: Prompt | None = None


@dataclass(frozen=True, slots=True)
class RemoteReply:
    """The verdict of a server.

    Attributes:
        text: What the task's `validate` and rewards get in place of the completion, e.g. JSON.
        parts: Values that the server names, recorded beside the task's own parts.
    """

    text: str
    parts: Mapping[str, float] = field(default_factory=dict)


class Remote(Protocol):
    """Asks a server; made by a task's `remote`, and used by one event loop.

    Methods are called concurrently, and limit themselves: how many requests at once, and how long each may take. They
    raise `InfrastructureError` or `TimeoutError`, with the server's address, for whatever is no statement about a
    completion, so that it abstains; and `UserError` for what the user has to change, e.g. a token.

    Attributes:
        secrets: Environment variables that worker processes do not get.
    """

    secrets: tuple[str, ...]

    async def follow(self, moves: Moves, row: Row) -> RemoteTurn:
        """Play the last move, a completion; called for tasks of several turns."""
        ...

    async def reply(self, moves: Moves, row: Row) -> RemoteReply:
        """The verdict on a rollout, which `follow` has played, here or in another process, or which nobody has."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...


def write_moves(moves: Moves) -> str:
    """A rollout of several turns as the text that is scored: JSON in ASCII, so that any completion survives."""
    return json.dumps({"moves": list(moves)})


def read_moves(text: str) -> tuple[str | int, ...]:
    """The moves of a text; one that `write_moves` has not written is one completion."""
    return read_list(text, "moves", str, int)


def read_list(text: str, name: str, *kinds: type) -> tuple[Any, ...]:
    """The list that an object of JSON with this one name holds; any other text is the only one.

    Args:
        text: The text.
        name: Name of the list, which is not empty.
        kinds: Types of what it holds.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return (text,)
    held = content.get(name) if isinstance(content, dict) and len(content) == 1 else None
    if isinstance(held, list) and held and all(type(each) in kinds for each in held):
        return tuple(held)
    return (text,)


def ask_now(remote: Callable[[], Remote], ask: Callable[[Remote], Awaitable[T]]) -> T:
    """Ask a server and wait, in a thread of its own, since the caller's may have a running event loop.

    Args:
        remote: Makes what asks the server.
        ask: Asks it.
    """
    import asyncio  # 30 ms that workers never need

    async def once() -> T:
        client = remote()
        try:
            return await ask(client)
        finally:
            await client.close()

    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(asyncio.run(once()))
        except BaseException as error:  # raised again where the result is read
            result.set_exception(error)

    threading.Thread(target=run, name="remote", daemon=True).start()
    return result.result()
