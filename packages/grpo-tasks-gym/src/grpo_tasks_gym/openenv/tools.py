"""Environments of OpenEnv whose actions are calls of tools: one session for each episode, in the worker that has it.

    {"type": "step", "data": {"type": "list_tools"}}       an observation with `tools`; none, where anything failed
    {"type": "step", "data": {"type": "call_tool", …}}     an observation with `result` or `error`, and a reward

Read in openenv 0.10.0, `env_server/mcp_environment.py`. After a time-out of its own client the session is another one
that nobody has reset; here the connection ends with the first failure, and with it the episode.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from grpo_sdk import (
    BackgroundLoop,
    Environment,
    InfrastructureError,
    Tool,
    ToolError,
    ToolFault,
    UserError,
    schema_tool,
)
from grpo_sdk.data import DataError
from grpo_tasks_gym.openenv.client import RETRY_S, WHOLE, CapacityError, Episode, digest_of, shown_of
from grpo_tasks_gym.openenv.options import OpenEnvConfig, ToolsRow
from grpo_tasks_gym.servers import verdicts
from grpo_tasks_gym.servers.options import token_of
from grpo_tasks_gym.servers.requests import excerpt
from grpo_tasks_gym.servers.verdicts import Verdict

T = TypeVar("T")

OF_THE_SERVER = ("timeout", "transport_error")
"""Errors of a call that are none of the policy's."""

_connections = BackgroundLoop("openenv")


def wait_for(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine and wait, also where an event loop is running, as in a notebook."""
    return _connections.submit(work).result()


def tools_of(config: OpenEnvConfig) -> tuple[Tool, ...]:
    """The tools of the environment at an address, asked for once in a process.

    Raises:
        DataError: nobody answers there.
        UserError: there are no tools; says why.
    """
    return _asked(OpenEnvConfig(url=config.url, timeout_s=config.timeout_s, api_key_env=config.api_key_env))


@cache
def _asked(config: OpenEnvConfig) -> tuple[Tool, ...]:
    async def listed() -> tuple[Tool, ...]:
        episode = await _begun(config, lambda token: Episode.begin(config, token, None, ("", "")))
        try:
            return await _listed(episode, config.address)
        finally:
            await episode.close()

    try:
        return wait_for(listed())
    except InfrastructureError as error:
        raise DataError(f"{error}. Is the environment running? Its address is everything before /ws.") from None


async def _begun(config: OpenEnvConfig, begin: Callable[[str], Awaitable[Episode]]) -> Episode:
    """An episode; a server that is full is asked again within the time limit."""
    deadline = time.monotonic() + config.timeout_s
    while True:
        try:
            return await begin(token_of(config))
        except CapacityError as error:
            if time.monotonic() > deadline:
                raise InfrastructureError(
                    f"{error}; each episode needs a session of its own: raise the server's max_concurrent_envs"
                ) from None
        await asyncio.sleep(RETRY_S)


async def _listed(episode: Episode, address: str) -> tuple[Tool, ...]:
    answer = await episode.look()
    tools = answer.observation.get("tools")
    if not isinstance(tools, list) or not tools:
        why = excerpt(answer.metadata.get("error", "it does not say why"))
        raise UserError(f"{address}: list_tools gave no tools: {why}")
    made = []
    for each in tools:
        try:
            name = re.sub(r"[^a-zA-Z0-9_-]", "_", each["name"])[:64]
            call = _calling(each["name"])
            made.append(schema_tool(name, each["description"], each["input_schema"], call, is_method=True))
        except (KeyError, TypeError, UserError) as error:
            raise UserError(f"{address}: {excerpt(each)} is no tool: {error}") from None
    return tuple(made)


def _calling(tool: str) -> Callable[..., Any]:
    def call(environment: ToolEpisode, /, **arguments: Any) -> Any:
        return environment.call(tool, arguments)

    return call


def number_of(tools: Sequence[Tool]) -> int:
    """A number by which a list of tools is recognized."""
    return digest_of([[each.name, each.description, each.parameters] for each in tools])


class ToolEpisode(Environment):
    """An episode on a connection of its own, which the first failure ends."""

    _episode: Episode | None = None

    def reset(self, row: ToolsRow, config: OpenEnvConfig) -> None:  # type: ignore[override] # the task's row
        """Begin the episode of a row.

        Raises:
            InfrastructureError: it fails, or begins otherwise than when rows were loaded.
        """
        self._address = config.address
        self._rewards: list[float | None] = []
        self._episode = wait_for(_begun(config, lambda token: Episode.of_row(config, token, row)))
        if number_of(wait_for(_listed(self._episode, config.address))) != row.tools:
            raise InfrastructureError(f"{config.address}: its tools are not those of the run's beginning")

    def close(self) -> None:
        """End the connection."""
        if self._episode is not None:
            wait_for(self._episode.close())

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """Call a tool.

        Raises:
            ToolError: the call failed by what the policy wrote.
            ToolFault: the result has more than text.
            InfrastructureError: the environment fails.
        """
        assert self._episode is not None  # after `reset`
        action = {"type": "call_tool", "tool_name": tool, "arguments": arguments}
        result = wait_for(self._episode.act(action))
        self.is_over = result.is_done
        value = _value_of(result.observation, self._address)
        self._rewards.append(result.reward)
        return value

    def verdict(self) -> Verdict:
        """The environment's verdict.

        Raises:
            InfrastructureError: it gave no reward, which is how NaN arrives, too.
        """
        assert self._episode is not None  # after `reset`
        if self._rewards and (set(self._rewards) == {None} or (self.is_over and self._rewards[-1] is None)):
            raise InfrastructureError(f"{self._address}: the calls of the episode have no reward, or NaN")
        return verdicts.validate(self._episode.verdict().text)


def validate(text: str, row: ToolsRow, environment: ToolEpisode) -> Verdict:
    """The environment's verdict."""
    return environment.verdict()


def _value_of(observation: Mapping[str, Any], address: str) -> Any:
    """What the policy reads of the answer to a call."""
    if isinstance(error := observation.get("error"), dict):
        if error.get("error_type") in OF_THE_SERVER:
            raise InfrastructureError(f"{address}: {excerpt(error.get('message'))}")
        raise ToolError(str(error.get("message")))
    if "result" not in observation:
        return shown_of(observation, WHOLE, address)
    result = observation["result"]
    if not isinstance(result, dict) or not isinstance(result.get("content"), list):
        return result
    texts = []
    for block in result["content"]:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind != "text":
            raise ToolFault(f"returned a block of type {kind!r}, and the policy reads text only")
        texts.append(str(block.get("text")))
    if result.get("is_error"):
        raise ToolError("\n".join(texts))
    return "\n".join(texts)
