"""A task that a server plays, which is a class of this process."""

import asyncio
import json
import os
from collections.abc import Iterable

from grpo_sdk import InfrastructureError, Invalid, Moves, RemoteReply, RemoteTurn, Row, Task, UserError, reward

TOKEN_VARIABLE = "GRPO_TEST_REMOTE_TOKEN"
WAIT_S = 0.3
"""Time that the server takes."""


class Server:
    """Counts the words of all completions; a rollout goes on until one is `stop`."""

    secrets = (TOKEN_VARIABLE,)
    most_at_once = 0
    closed = 0
    _at_once = 0

    async def follow(self, moves: Moves, row: Row) -> RemoteTurn:
        await self._play(moves)
        if moves[-1] == "stop":
            return RemoteTurn(tuple(moves))
        return RemoteTurn((*moves, len(moves)), f" {len(moves)} ")

    async def reply(self, moves: Moves, row: Row) -> RemoteReply:
        await self._play(moves)
        words = sum(len(move.split()) for move in moves if isinstance(move, str))
        has_token = TOKEN_VARIABLE in os.environ
        return RemoteReply(json.dumps({"words": words, "turns": len(moves), "token": has_token}), {"words": words})

    async def close(self) -> None:
        type(self).closed += 1

    async def _play(self, moves: Moves) -> None:
        type(self)._at_once += 1
        type(self).most_at_once = max(self.most_at_once, self._at_once)
        try:
            await asyncio.sleep(60 if moves[-1] == "hang" else WAIT_S)
        finally:
            type(self)._at_once -= 1
        if moves[-1] == "down":
            raise InfrastructureError("http://server: connection refused")
        if moves[-1] == "late":
            raise TimeoutError("http://server: no answer within 1 s")
        if moves[-1] == "bug":
            raise KeyError("reward")
        if moves[-1] == "locked":
            raise UserError("http://server: refuses the token.")


def load() -> Iterable[Row]:
    return [Row(id=f"r{number}") for number in range(20)]


def validate(text: str) -> dict[str, int]:
    reply: dict[str, int] = json.loads(text)
    if not reply["words"]:
        raise Invalid("no words")
    return reply


@reward(0.5, maximum=100.0)
def length(answer: dict[str, int]) -> float:
    return float(answer["words"])


@reward(0.0)
def turns(answer: dict[str, int]) -> float:
    return float(answer["turns"])


@reward(0.0)
def leaked(answer: dict[str, int]) -> float:
    """Whether the worker has the token that the process with the connection has."""
    return float(TOKEN_VARIABLE in os.environ)


@reward(0.0)
def authorized(answer: dict[str, int]) -> float:
    return float(answer["token"])


REWARDS = (length, turns, leaked, authorized)


def _task(name: str, max_turns: int) -> Task:
    return Task(name, load, lambda row: "Go: ", validate, REWARDS, remote=Server, max_turns=max_turns)


single, several = _task("single", 1), _task("several", 4)
