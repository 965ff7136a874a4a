"""The openenv package's MCP tools, `/TASK/mcp`, and web page, `/TASK/web/`, for a task, where it is installed."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
from http import HTTPStatus
from typing import Any, cast

from pydantic import create_model
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from grpo_core.serving import openenv
from grpo_core.serving.body import dumps
from grpo_core.serving.episodes import Episode
from grpo_core.serving.guard import JSON
from grpo_core.serving.scoring import Service
from grpo_core.serving.tasks import ServedTask

logger = logging.getLogger(__name__)

SESSIONS, SESSION_S = 64, 3600.0
"""Sessions of MCP for each task, and the time after which one that is not used ends."""


CLOSE_S = 5.0
"""Time to end."""

PATHS = ("/mcp", "/web", "/ws/ui")
"""Beginnings of its paths; those of the protocol itself are answered by `grpo_core.serving.openenv`."""


class OpenEnvPages:
    """The package's application for a task, made by the first request: it takes seconds to import.

    Args:
        service: What the protocols share.
        task: The task.
        otherwise: Application that answers all other paths.
    """

    def __init__(self, service: Service, task: ServedTask, otherwise: ASGIApp) -> None:
        self._service, self._task, self._otherwise = service, task, otherwise
        self._lock = asyncio.Lock()
        self._app: ASGIApp | None = None
        self._running: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if not scope["path"].removeprefix(scope.get("root_path", "")).startswith(PATHS):
            await self._otherwise(scope, receive, send)
            return
        if importlib.util.find_spec("openenv") is None:
            why = "MCP and the web page need the package openenv where grpo serve runs: pip install openenv."
            await _refusal(HTTPStatus.NOT_IMPLEMENTED, why)(scope, receive, send)
            return
        async with self._lock:
            if self._app is None:
                try:
                    self._app = await self._started()
                except Exception as error:
                    logger.exception("the openenv package cannot make its pages")
                    why = f"the openenv package cannot make its pages: {type(error).__name__}; see its log."
                    await _refusal(HTTPStatus.INTERNAL_SERVER_ERROR, why)(scope, receive, send)
                    return
        await self._app(scope, receive, send)

    async def close(self) -> None:
        """End the package's application, after the last request."""
        self._stop.set()
        if self._running is not None:
            await asyncio.wait((self._running,), timeout=CLOSE_S)

    async def _started(self) -> ASGIApp:
        loop = asyncio.get_running_loop()
        app = await asyncio.to_thread(application, self._service, self._task, loop)
        has_started: asyncio.Future[None] = loop.create_future()
        self._running = asyncio.create_task(self._run(app, has_started))
        await has_started
        return cast("ASGIApp", app)

    async def _run(self, app: Any, has_started: asyncio.Future[None]) -> None:
        """Begin and end the application's lifespan in one task, as its libraries want."""
        try:
            async with app.router.lifespan_context(app):
                has_started.set_result(None)
                await self._stop.wait()
        except Exception as error:
            if has_started.done():
                logger.exception("the openenv package cannot end its pages")
            else:
                has_started.set_exception(error)


def application(service: Service, task: ServedTask, loop: asyncio.AbstractEventLoop) -> Any:
    """The package's application for a task; importing it takes seconds.

    Args:
        service: What the protocols share.
        task: The task.
        loop: Event loop of the server, on which episodes are played.
    """
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.types import Action, ConcurrencyConfig, EnvironmentMetadata, Observation, State
    from openenv.core.env_server.web_interface import create_web_interface_app

    fields: Any = {name: (field.annotation, ...) for name, field in openenv.Observation.model_fields.items()}
    fields.pop("metadata")  # which the package declares itself
    task_action: Any = create_model("TaskAction", __base__=Action, text=(str, ...))
    task_observation: Any = create_model("TaskObservation", __base__=Observation, **fields)

    def observation(result: dict[str, Any]) -> Any:
        return task_observation(reward=result["reward"], done=result["done"], **result["observation"])

    class TaskEnvironment(Environment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            super().__init__()
            self._episode = Episode(service, task)
            self.mcp_server = _tools(self._episode)

        async def reset_async(self, seed: int | None = None, episode_id: str | None = None, **options: Any) -> Any:
            return observation(await self._episode.reset({"seed": seed, "episode_id": episode_id, **options}))

        async def step_async(self, action: Any, timeout_s: float | None = None, **options: Any) -> Any:
            return observation(await self._episode.step(action.text))

        # The web page calls these in a thread, also where there are asynchronous ones.
        def reset(self, seed: int | None = None, episode_id: str | None = None, **options: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(self.reset_async(seed, episode_id, **options), loop).result()

        def step(self, action: Any, timeout_s: float | None = None, **options: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(self.step_async(action), loop).result()

        @property
        def state(self) -> Any:
            return State(**self._episode.state())

        def get_metadata(self) -> Any:
            return EnvironmentMetadata(**{**openenv.metadata_of(task), "name": name})

    name = task.label.replace(".", "_")  # the package looks for a module of this name
    limits = ConcurrencyConfig(max_concurrent_envs=SESSIONS, session_timeout=SESSION_S)
    return create_web_interface_app(
        TaskEnvironment, task_action, task_observation, env_name=name, concurrency_config=limits
    )


def _refusal(status: HTTPStatus, why: str) -> Response:
    return Response(dumps({"error": why}), status, media_type=JSON)


def _tools(episode: Episode) -> Any:
    """An MCP server with the episode as two tools."""
    from fastmcp import FastMCP

    server = FastMCP(episode.task.label)

    async def begin(split: str | None = None, index: int | None = None, seed: int | None = None) -> dict[str, Any]:
        """Begin a new episode, of a row of the task, and return its prompt."""
        return await episode.reset({"split": split, "index": index, "seed": seed})

    async def answer(text: str) -> dict[str, Any]:
        """Answer the prompt; returns the next one, or the reward when the episode is over."""
        return await episode.step(text)

    server.tool()(begin)
    server.tool()(answer)
    return server
