"""`grpo serve`: a bounded server of tasks, the paths of all its protocols, and what requests have in common."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from grpo_sdk import __version__
from grpo_sdk.errors import MAX_NAME_CHARS, InfrastructureError, UserError, near_match
from grpo_sdk.plugins.task_objects import AnyTask
from grpo_sdk.plugins.tasks import load_task
from grpo_sdk.scoring.scorer import Scorer
from grpo_sdk.serve import openenv
from grpo_sdk.serve.body import dumps, loads
from grpo_sdk.serve.bounded import BoundedServer, Certificate
from grpo_sdk.serve.guard import JSON, Access, Bounds
from grpo_sdk.serve.openenv import OpenEnv
from grpo_sdk.serve.protocols import POSTED, Handler
from grpo_sdk.serve.tasks import ServedTask, ServedTasks
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.marks import END_TOKENS

DEFAULT_PORT = 8710

DEFAULT_BOUNDS = Bounds(connections=1024, requests=64, waiting=512, body_bytes=16 << 20, head_s=20.0, grace_s=30.0)
"""At most 1 GiB of bodies at once; 64 connections are what slime opens, and its client keeps idle ones for 15 s."""

ACCESS = Access(methods=frozenset({"GET", "POST"}), open_paths=frozenset({"/health"}), own_pages=True, websockets=True)


ROWS = ("tasks", "num_tasks", "task", "task_range")
"""Paths of OpenEnv for a task's rows."""

CLIENT_GONE = 499
"""Status in the metrics of a request whose client hung up."""

_METHODS = ("GET", "POST")
"""Methods of paths that are for POST alone: they tell a GET so, before another path would match it."""

LARGE_BODY_BYTES = 256 << 10
"""A body that takes a millisecond or more to parse is parsed in a thread."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Options of a server of tasks.

    Attributes:
        workers: Processes for each task; by default one per usable core.
        timeout_s: Limit per completion; by default the task's own.
        memory_mib: Address space that one completion may take.
        opponent_url: Endpoint that plays the opponents of tasks that have one: `http://host:port/v1#model`.
        end_tokens: Texts that are removed from the end of completions, beside those of common models.
        bounds: Resource limits of clients.
    """

    workers: int | None = None
    timeout_s: float | None = None
    memory_mib: int | None = 4096
    opponent_url: str | None = None
    end_tokens: tuple[str, ...] = ()
    bounds: Bounds = DEFAULT_BOUNDS


class TaskServer(BoundedServer):
    """Serves tasks to other trainers; listens as soon as it is constructed.

    Args:
        tasks: Tasks, or their specs.
        token: Token that clients must send; without a token only this machine is served.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one, see `address`.
        options: Scorers, opponents and limits.
        certificate: TLS certificate, for https.

    Attributes:
        tasks: The tasks, and their scorers.

    Raises:
        UserError: no such task or option, or the address cannot be used.
    """

    def __init__(
        self,
        tasks: Sequence[AnyTask | BoundTask],
        token: str = "",
        *,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        options: ServeOptions | None = None,
        certificate: Certificate | None = None,
    ) -> None:
        options = options or ServeOptions()
        bound = [task if isinstance(task, BoundTask) else load_task(task) for task in tasks]
        limits: dict[str, Any] = {"timeout_s": options.timeout_s, "memory_mib": options.memory_mib}
        make_scorer = partial(Scorer, workers=options.workers, **limits)
        self.tasks = ServedTasks(bound, make_scorer, options.opponent_url, (*END_TOKENS, *options.end_tokens))
        super().__init__(
            TaskApplication(self.tasks).app,
            token,
            host=host,
            port=port,
            bounds=options.bounds,
            access=ACCESS,
            certificate=certificate,
        )

    def warm(self) -> None:
        """Start the workers, of 16 tasks at most, and wait for them.

        Raises:
            InfrastructureError: a worker cannot start.
        """
        self.tasks.warm()

    def close(self) -> None:
        """Stop listening and end all workers."""
        super().close()
        self.tasks.close()


class TaskApplication:
    """All protocols for a set of tasks, as an ASGI application.

    Paths begin with the name of a task; those without one are for the only task, or name it in the body.

    Args:
        tasks: The tasks.
    """

    def __init__(self, tasks: ServedTasks) -> None:
        self._tasks, self._openenv = tasks, OpenEnv()
        self.app = Starlette(routes=self._routes())
        tasks.metrics.watch("episodes", "Episodes that are played.", lambda: self._openenv.episodes)
        tasks.metrics.watch("scorers", "Tasks whose workers run.", lambda: len(tasks.stats))
        tasks.metrics.watch(
            "worker_restarts",
            "Workers replaced, of the tasks whose workers run.",
            lambda: sum(stats.restarts for stats in tasks.stats.values()),
        )

    def _routes(self) -> list[BaseRoute]:
        handlers = {**POSTED, "reset": self._openenv.reset, "step": self._openenv.step}
        by_label = self._tasks.by_label
        index = {"server": "grpo serve", "version": __version__, "tasks": list(by_label)}
        healthy = _always(lambda: {"status": "healthy"})
        routes: list[BaseRoute] = [
            Route("/", _always(lambda: index)),
            Route("/health", healthy),
            Route("/metrics", self._metrics),
            Route("/tasks", _always(lambda: {"tasks": [facts_of(task) for task in by_label.values()]})),
            Route("/list_environments", _always(lambda: list(by_label))),
            WebSocketRoute("/ws", self._socket),
            WebSocketRoute("/{task}/ws", self._socket),
        ]
        for prefix in ("", "/{task}"):
            routes += [
                Route(f"{prefix}/{name}", self._posted(name, handler), methods=_METHODS)
                for name, handler in handlers.items()
            ]
            routes += [
                Route(f"{prefix}/metadata", self._read(lambda task, _: openenv.metadata_of(task))),
                Route(f"{prefix}/schema", self._read(lambda task, _: openenv.schemas())),
                Route(f"{prefix}/state", self._read(lambda task, id_: self._openenv.state(task, id_))),
                Route(f"{prefix}/reverify_mode", self._read(lambda task, _: "stateless")),
            ]
        for prefix in ("/{task}", "/{task}/{environment}"):  # OpenEnv puts the name of an environment into these
            routes.append(Route(f"{prefix}/splits", self._read(lambda task, _: _splits(task))))
            routes += [
                Route(f"{prefix}/{name}", self._posted(name, partial(openenv.rows_answer, name)), methods=_METHODS)
                for name in ROWS
            ]
        routes += [
            Route("/{task}/health", healthy),
            Route("/{task}/list_environments", self._read(lambda task, _: [task.label])),
            Route("/{task}", self._read(lambda task, _: facts_of(task))),
            Route("/{path:path}", self._nothing, methods=["GET", "POST"]),
        ]
        return routes

    def _posted(self, name: str, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            started = time.perf_counter()
            try:
                response = _json(await self._answer(name, handler, request))
            except ClientDisconnect:
                response = Response(status_code=CLIENT_GONE)  # nobody receives it
            except (Exception, asyncio.CancelledError) as error:
                response = _refusal(_failure(error))
            self._tasks.metrics.count_request(name, response.status_code, time.perf_counter() - started)
            return response

        return respond

    async def _answer(self, name: str, handler: Handler, request: Request) -> Any:
        if request.method != "POST":
            why = f"{name} takes POST requests, with a body of JSON"
            raise HTTPException(HTTPStatus.METHOD_NOT_ALLOWED, why, {"Allow": "POST"})
        data = await request.body()
        body = await asyncio.to_thread(loads, data) if len(data) > LARGE_BODY_BYTES else loads(data)
        label = request.path_params.get("task", body.get("task"))  # the body names it where the path has none
        task = self._tasks[label if isinstance(label, str) else None]
        return await _unless_gone(request, handler(task, body))

    def _read(self, answer: Callable[[ServedTask, str | None], Any]) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            try:
                task = self._tasks[request.path_params.get("task")]
                return _json(answer(task, request.query_params.get("episode_id")))
            except HTTPException as error:
                return _refusal(error)

        return respond

    async def _socket(self, socket: WebSocket) -> None:
        try:
            task = self._tasks[socket.path_params.get("task")]
        except HTTPException as error:
            await socket.send_denial_response(_refusal(error))
            return
        await self._openenv.play(task, socket)

    async def _metrics(self, request: Request) -> Response:
        return Response(self._tasks.metrics.text(), media_type=self._tasks.metrics.content_type)

    async def _nothing(self, request: Request) -> Response:
        names, last = (*POSTED, "reset", "step"), request.url.path.rpartition("/")[2]
        near = near_match(last[:MAX_NAME_CHARS], names)
        why = f"no path {request.url.path[:MAX_NAME_CHARS]!r}.{near} Each task has {', '.join(names)}; GET /tasks."
        return _refusal(HTTPException(HTTPStatus.NOT_FOUND, why))


def facts_of(task: ServedTask) -> dict[str, Any]:
    """A task as `/tasks` lists it: what it is, and which protocols serve it."""
    protocols = {"score": "", "get_reward": "", "remote_rm": "", "verify": "", "openenv": ""}
    for name in ("get_reward", "remote_rm", "verify"):
        protocols[name] = _problem(partial(task.check_single_completion, name))
    protocols["openenv"] = _problem(task.check_playable)
    return {
        "name": task.label,
        "spec": task.task.spec,
        "path": f"/{quote(task.label)}",
        "description": openenv.metadata_of(task)["description"],
        "kind": task.kind,
        "protocols": [name for name, problem in protocols.items() if not problem],
        "not_served": {name: problem for name, problem in protocols.items() if problem},
    }


def _problem(check: Callable[[], None]) -> str:
    try:
        check()
    except HTTPException as error:
        return error.detail
    return ""


def _splits(task: ServedTask) -> list[dict[str, str]]:
    return [{"name": split, "type": split} for split in sorted(task.splits, key=("train", "validation", "test").index)]


def _always(answer: Callable[[], Any]) -> Callable[[Request], Awaitable[Response]]:
    async def respond(request: Request) -> Response:
        return _json(answer())

    return respond


async def _unless_gone(request: Request, answering: Awaitable[Any]) -> Any:
    """Await an answer; when the client hangs up, what no worker has begun is not computed.

    Raises:
        ClientDisconnect: the client hung up.
    """
    answer, gone = asyncio.ensure_future(answering), asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        raise ClientDisconnect
    finally:
        gone.cancel()
        answer.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _failure(error: BaseException) -> HTTPException:
    """The answer to a request that failed."""
    if isinstance(error, HTTPException):
        return error
    if isinstance(error, asyncio.CancelledError):  # the time that a shutdown gives is over
        return HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, "the server stops")
    if isinstance(error, UserError):
        return HTTPException(HTTPStatus.BAD_REQUEST, str(error))
    if isinstance(error, InfrastructureError):
        return HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
    logger.error("a request failed", exc_info=error)  # the server goes on for the others
    return HTTPException(HTTPStatus.INTERNAL_SERVER_ERROR, f"the server failed: {type(error).__name__}")


def _json(value: Any) -> Response:
    return Response(dumps(value), media_type=JSON)


def _refusal(error: HTTPException) -> Response:
    return Response(dumps({"error": error.detail}), error.status_code, error.headers, media_type=JSON)
