"""Environments of OpenEnv on this machine, as good or as bad as a test wants them."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from grpo_sdk import Row, Score, Scorer
from grpo_sdk.endpoints.base import SampleKey
from grpo_sdk.episodes.episode import Episode, Reply
from grpo_sdk.episodes.player import Player, play
from grpo_sdk.task.tools.calls import Call, ToolTurn, write_tool_turns

SCHEMA = {
    "action": {"properties": {"guess": {"type": "string"}, "metadata": {}}, "required": ["guess"]},
    "observation": {"properties": {"hint": {"type": "string"}, "done": {}, "reward": {}, "metadata": {}}},
    "state": {},
}


def observation(hint: Any, reward: Any = None, done: bool = False, **metadata: Any) -> dict[str, Any]:
    """An answer to `reset` or `step`."""
    data = {"observation": {"hint": hint, "metadata": metadata}, "reward": reward, "done": done}
    return {"type": "observation", "data": data}


def error(code: str) -> dict[str, Any]:
    """An error of the server."""
    return {"type": "error", "data": {"message": "no", "code": code}}


class Session:
    """One connection: what was asked on it."""

    def __init__(self, number: int) -> None:
        self.number, self.seed = number, 0
        self.steps: list[Any] = []


Answer = Callable[[Session, Any], Any]
"""Answers a step, its text or its action: an answer, a text that is sent as it is, or None for silence."""


@dataclass
class Environment:
    """A server for as long as the block lasts.

    Attributes:
        step: Answers steps.
        first: Answers resets.
        most: Connections that it allows at once.
        token: Token that it wants.
        step_s: Time of a step.
        schema: Its schema.
        address: Its address.
        sessions: Connections so far.
        open: Connections that are open.
        most_at_once: Most connections that were open at a time.
    """

    step: Answer
    first: Answer = lambda session, _: observation(f"guess {session.seed}")
    most: int = 10_000
    token: str = ""
    step_s: float = 0.0
    schema: Any = field(default_factory=lambda: SCHEMA)
    address: str = ""
    sessions: int = 0
    open: int = 0
    most_at_once: int = 0

    async def play(self, socket: ServerConnection) -> None:
        """Play the episodes of a connection."""
        self.sessions += 1
        session = Session(self.sessions)
        self.open += 1
        self.most_at_once = max(self.most_at_once, self.open)
        try:
            if self.open > self.most:
                await socket.send(json.dumps(error("CAPACITY_REACHED")))
                return
            async for message in socket:
                await self._answer(socket, session, json.loads(message))
        finally:
            self.open -= 1

    async def _answer(self, socket: ServerConnection, session: Session, message: dict[str, Any]) -> None:
        if message["type"] == "reset":
            session.seed, session.steps = message["data"].get("seed", 0), []
            answer = self.first(session, "")
        else:
            await asyncio.sleep(self.step_s)
            session.steps.append(message["data"].get("guess", message["data"]))
            answer = self.step(session, session.steps[-1])
        if answer == "close":
            await socket.close(1011, "the environment died")
        elif answer == "drip":
            await socket.send(_drip())
        elif answer is not None:
            await socket.send(answer if isinstance(answer, str) else json.dumps(answer))

    def request(self, socket: ServerConnection, request: Request) -> Response | None:
        """Answer HTTP."""
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return socket.respond(HTTPStatus.UNAUTHORIZED, "no\n")
        if request.path == "/ws":
            return None
        if request.path == "/schema":
            return socket.respond(HTTPStatus.OK, json.dumps(self.schema))
        return socket.respond(HTTPStatus.NOT_FOUND, "no\n")


async def _drip() -> AsyncIterator[str]:
    while True:
        yield " "
        await asyncio.sleep(0.1)


@contextmanager
def environment(*answers: Answer, **options: Any) -> Iterator[Environment]:
    """A server in a thread, with the fields of `Environment` from `step` on."""
    server = Environment(*answers, **options)
    loop = asyncio.new_event_loop()
    ready, stop = threading.Event(), asyncio.Event()

    async def run() -> None:
        async with serve(server.play, "127.0.0.1", 0, process_request=server.request, close_timeout=0.2) as listening:
            port = listening.sockets[0].getsockname()[1]
            server.address = f"http://127.0.0.1:{port}"
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        loop.close()


def played(scorer: Scorer, row: Row, texts: Sequence[Sequence[str]]) -> tuple[list[Episode[str]], list[Score]]:
    """Play rollouts of one row in lock step, each with its completions."""
    task, player = scorer.task, Player(scorer)
    plays = [Episode[str](task, row, SampleKey(0, 0, row.id, number), task.prompt(row)) for number in range(len(texts))]

    def answer(asked: Sequence[int]) -> Iterator[tuple[int, Reply[str]]]:
        for index in asked:
            text = texts[index][len(plays[index].turns)]
            yield index, Reply(text, text)

    play([(player, each) for each in plays], answer)
    return plays, [future.result() for each in plays for future in player.score(each).values()]


Calls = Sequence[tuple[str, dict[str, Any]]]
"""Calls of a turn: names and arguments."""


def called(
    scorer: Scorer, row: Row, turns: Sequence[Calls], texts: Sequence[str] = ()
) -> tuple[list[list[Call]], Score, str]:
    """Play an episode with tools: the answered calls of each turn, the score, and why it could not be played."""
    asked = [
        ToolTurn(text, tuple(Call(name, arguments, "", ok=True) for name, arguments in turn))
        for turn, text in zip(turns, texts or ["said"] * len(turns), strict=True)
    ]
    session = scorer.session(row)
    *_, state = session.play(asked)
    if state.fault:
        return [list(turn.calls) for turn in state.moves], Score(None, why=state.why, fault=state.fault), state.why
    return [list(turn.calls) for turn in state.moves], session.score(write_tool_turns(state.moves)).result(), ""
