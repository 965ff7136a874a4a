"""OpenEnv's protocol: episodes over a WebSocket, as its client plays them, or over HTTP.

    GET  /TASK/metadata, /TASK/schema           POST /TASK/reset {"split", "index"} or {"row"} or {"seed"}
    GET  /TASK/splits                           POST /TASK/step {"action": {"text": …}, "episode_id": …}
    POST /TASK/tasks, num_tasks, task, task_range

In a task with tools an action also is a completion with `calls`, {"type": "call_tool", "tool_name", "arguments"}: a
call by itself, which is a turn, or {"type": "list_tools"}.

The rows of a task are what OpenEnv calls tasks. Read in openenv 0.10.0, `openenv/core/env_server`. A completion that
cannot be scored ends its episode with the reward null.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.websockets import WebSocket, WebSocketDisconnect

from grpo_sdk.episodes.turn_action import TurnAction
from grpo_sdk.errors import GrpoError
from grpo_sdk.plugins.loading import describe
from grpo_sdk.serve.body import Message, bad_request, dumps, loads, parse
from grpo_sdk.serve.sessions import Session
from grpo_sdk.serve.tasks import ServedTask
from grpo_sdk.task.row import Row

MAX_LISTED = 1000
"""Rows of one answer: num_tasks tells how many there are, and task_range gives the next ones."""

MAX_SESSIONS = 1024
"""Sessions at the same time."""

MAX_IDLE_S = 3600.0
"""Time after which a session that nobody goes on with is forgotten when another begins: sampling may take minutes."""

SEND_S = 60.0
"""Time that a client may leave an answer unread."""


logger = logging.getLogger(__name__)


class Action(TurnAction, Message):
    """What a policy does in a turn; see `TurnAction`.

    Attributes:
        metadata: Ignored.
    """

    metadata: dict[str, Any] = Field(default_factory=dict)


class Observation(BaseModel):
    """What follows a turn; `Session` writes it.

    Attributes:
        prompt: Whole prompt of the next completion, a text or messages; null when the episode is over.
        row: Id of the row.
        turn: Turns played so far.
        role: Role in a game that moves next, or that moved last when the game is over.
        stop: Texts that end a completion.
        parts: Value of every reward, when the episode is over.
        valid: Whether the completion held an answer.
        solved: Whether it is right.
        why: Reason of the score, in one line.
        rewards: Reward of each learning role of a game.
        story: The episode as people read it, when it is over.
        metadata: `episode_id`, `task`, and `abstained`: why there is no reward.

    After a `call_tool` there are `tool_name`, `result` and `error`, too; after `list_tools` only `tools`.
    """

    prompt: str | list[dict[str, Any]] | None
    row: str
    turn: int
    role: str
    stop: list[str]
    parts: dict[str, float]
    valid: bool
    solved: bool
    why: str
    rewards: dict[str, float | None]
    story: str
    metadata: dict[str, str]


class State(BaseModel):
    """Facts about an episode."""

    episode_id: str | None
    step_count: int
    task: str
    row: str | None
    done: bool


class StepRequest(Message):
    """Request of `/step`; an episode is named by its id, since HTTP has no connection that is one."""

    action: Action
    episode_id: str
    timeout_s: float | None = None
    request_id: str | None = None


def metadata_of(task: ServedTask) -> dict[str, Any]:
    """Answer of `/metadata`."""
    return {
        "name": task.label,
        "description": describe(task.task.task),
        "readme_content": None,
        "version": task.task.task.version,
        "author": None,
        "documentation_url": None,
    }


def schemas() -> dict[str, Any]:
    """Answer of `/schema`."""
    return {
        "action": Action.model_json_schema(),
        "observation": Observation.model_json_schema(),
        "state": State.model_json_schema(),
    }


class OpenEnv:
    """OpenEnv's protocol for the tasks of a server: a session for each connection, and over HTTP for each episode."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}
        self._sockets = 0

    @property
    def episodes(self) -> int:
        """Number of sessions."""
        return len(self._sessions) + self._sockets

    async def reset(self, task: ServedTask, body: dict[str, Any]) -> dict[str, Any]:
        """Begin an episode over HTTP."""
        if full := self._full():
            raise HTTPException(HTTPStatus.TOO_MANY_REQUESTS, full, {"Retry-After": "1"})
        if isinstance(name := body.get("episode_id"), str) and name in self._sessions:
            raise HTTPException(
                HTTPStatus.CONFLICT, f"episode {name!r:.80} is being played; give another 'episode_id'."
            )
        session = Session(task)
        result = await session.reset(body)
        if not result["done"]:
            self._sessions[session.episode_id] = session
        return result

    async def step(self, task: ServedTask, body: dict[str, Any]) -> dict[str, Any]:
        """Play a turn over HTTP."""
        request = parse(StepRequest, body)
        session = self._session(task, request.episode_id)
        result = await session.step(request.action)
        if result["done"]:
            self._sessions.pop(session.episode_id, None)
        return result

    def state(self, task: ServedTask, episode_id: str | None) -> dict[str, Any]:
        """State of an episode over HTTP."""
        return self._session(task, episode_id).state()

    def _session(self, task: ServedTask, episode_id: str | None) -> Session:
        session = self._sessions.get(episode_id or "")
        if session is None or session.task is not task:
            why = "no such episode: give the 'episode_id' that reset answered with in 'metadata'; it may have expired."
            raise HTTPException(HTTPStatus.NOT_FOUND, why)
        return session

    def _full(self) -> str:
        """Why no session can be added, after those that nobody goes on with are forgotten; empty where one can."""
        since = time.monotonic() - MAX_IDLE_S
        self._sessions = {name: each for name, each in self._sessions.items() if each.used > since}
        return f"{self.episodes} episodes are played already; try again later" if self.episodes >= MAX_SESSIONS else ""

    async def play(self, task: ServedTask, socket: WebSocket) -> None:
        """Play the episodes of a connection, one after another."""
        await socket.accept()
        if full := self._full():
            await _send(socket, _error("CAPACITY_REACHED", full))
            await socket.close()
            return
        self._sockets += 1
        try:
            session = Session(task)
            while (message := await _received(socket)) is not None:
                answer = await self._answer(session, message)
                if answer is None:
                    break
                await _send(socket, answer)
            await socket.close()
        except (WebSocketDisconnect, TimeoutError, RuntimeError):  # the client has gone, or does not read
            pass
        finally:
            self._sockets -= 1

    async def _answer(self, session: Session, message: str) -> dict[str, Any] | None:
        """Answer a message; None ends the connection."""
        try:
            body = loads(message)
        except HTTPException as error:
            return _error("INVALID_JSON", error.detail)
        kind, data = body.get("type"), body.get("data", {})
        if not isinstance(data, dict):
            return _error("VALIDATION_ERROR", "'data' is an object.")
        try:
            if kind == "reset":
                return {"type": "observation", "data": await session.reset(data)}
            if kind == "step":
                return {"type": "observation", "data": await session.step(parse(Action, data))}
        except HTTPException as error:
            code = "VALIDATION_ERROR" if error.status_code == HTTPStatus.BAD_REQUEST else "EXECUTION_ERROR"
            return _error(code, error.detail)
        except GrpoError as error:
            return _error("EXECUTION_ERROR", str(error))
        except Exception as error:  # a bug, here or in a task: the server goes on for the others
            logger.exception("an episode failed")
            return _error("SESSION_ERROR", f"the server failed: {type(error).__name__}")
        if kind == "state":
            return {"type": "state", "data": session.state()}
        if kind == "close":
            return None
        return _error("UNKNOWN_TYPE", f"unknown type {str(kind)[:40]!r}: reset, step, state and close are known.")


async def rows_answer(kind: str, task: ServedTask, body: Mapping[str, Any]) -> dict[str, Any]:
    """Answer a request about a task's rows, which OpenEnv calls tasks.

    Args:
        kind: `tasks`, `num_tasks`, `task` or `task_range`.
        task: The task.
        body: Request: `split`, and `index` or `start` and `stop`.

    Raises:
        HTTPException: no such split or index.
    """
    split = body.get("split")
    if not isinstance(split, str):
        raise bad_request("'split' is the name of a split.")
    rows = await task.rows(split)
    if kind == "num_tasks":
        return {"num_tasks": len(rows)}
    if kind == "task":
        index = _place(body.get("index"), "index", len(rows))
        if index == len(rows):
            raise bad_request(f"index {index}: split {split!r} has {len(rows)} rows, from 0 on.")
        return {"task": await asyncio.to_thread(_described, task, index, rows[index])}
    start = _place(body.get("start") or 0, "start", len(rows))
    stop = _place(len(rows) if body.get("stop") is None else body["stop"], "stop", len(rows))
    chosen = list(enumerate(rows))[start : min(stop, start + MAX_LISTED)]
    listed = await asyncio.to_thread(lambda: [_described(task, index, row) for index, row in chosen])
    return {"tasks": listed} if kind == "task_range" else {"tasks": listed, "env_name": task.label}


def _place(value: Any, name: str, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise bad_request(f"{name!r} is a whole number of at least 0.")
    return min(value, most)


def _described(task: ServedTask, index: int, row: Row) -> dict[str, Any]:
    """A row without its gold, which is nothing for who plays."""
    described = {"id": row.id, "index": index, "difficulty": row.difficulty}
    return described if task.kind == "game" else {**described, "prompt": task.task.prompt(row)}


async def _received(socket: WebSocket) -> str | None:
    """The next message; None when the client is silent for too long."""
    try:
        async with asyncio.timeout(MAX_IDLE_S):
            message = await socket.receive()
    except TimeoutError:
        return None
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect
    text = message.get("text")
    return text if isinstance(text, str) else ""


async def _send(socket: WebSocket, answer: dict[str, Any]) -> None:
    async with asyncio.timeout(SEND_S):
        await socket.send_text(dumps(answer).decode())


def _error(code: str, why: str) -> dict[str, Any]:
    return {"type": "error", "data": {"message": why, "code": code}}
