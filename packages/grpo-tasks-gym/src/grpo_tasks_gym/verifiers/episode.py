"""An episode with the toolsets of a taskset, in this process: as verifiers serves them, without its servers.

A toolset of verifiers is a process with an MCP server, which the harness reaches over HTTP, and which reads and writes
the episode's state over HTTP. Here each episode has the same objects, an MCP client in memory, and the state itself.
Read in verifiers 0.4.0, `mcp/server.py` and `harnesses/utils/mcp.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from mcp import Client, MCPError
from mcp.server.mcpserver import MCPServer
from verifiers.v1.harnesses.utils.compaction import truncate_tool_output
from verifiers.v1.state import state_cls

from grpo_sdk import BackgroundLoop, ToolError, ToolFault, ToolTurn
from grpo_tasks_gym.foreign.source import ForeignTool

_servers = BackgroundLoop("verifiers")


class Episode:
    """An episode; see `ForeignEpisode`.

    Args:
        toolsets: The toolsets, each with whether all episodes share it, so that it isn't told the task.
        task: The task.
        scored: Scores the turns, given the state at the end.
    """

    is_over = False

    def __init__(
        self,
        toolsets: Sequence[tuple[Any, bool]],
        task: Any,
        scored: Callable[[Sequence[ToolTurn], Any], Mapping[str, float]],
    ) -> None:
        self._toolsets, self._task, self._scored = toolsets, task, scored
        self._state = state_cls(type(task))()
        self._tools: dict[str, tuple[Client, Any]] = {}
        self._over = asyncio.Event()
        self._ready: asyncio.Future[None] | None = None
        self._holder = _servers.submit(self._begin()).result()

    def listed(self) -> tuple[ForeignTool, ...]:
        """The tools."""
        return tuple(
            ForeignTool(name, tool.description or "", tool.input_schema) for name, (_, tool) in self._tools.items()
        )

    def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Call a tool; see `ForeignEpisode`."""
        client, remote = self._tools[tool]
        try:
            result = _servers.submit(client.call_tool(remote.name, dict(arguments))).result()
        except MCPError as error:  # verifiers sends the call again
            raise ToolFault(f"failed: {error}") from error
        texts = []
        for block in result.content:
            if block.type == "image":
                raise ToolFault("returned an image, and the policy reads text only")
            texts.append(block.text if block.type == "text" else str(block))
        text = str(truncate_tool_output("\n".join(texts) if texts else str(result.content)))
        if result.is_error:
            raise ToolError(text)
        return text

    def score(self, turns: Sequence[ToolTurn]) -> Mapping[str, float]:
        """Value of every reward; see `ForeignEpisode`."""
        return self._scored(turns, self._state)

    def close(self) -> None:
        """End the toolsets."""
        _servers.submit(self._end()).result()

    async def _begin(self) -> asyncio.Task[None]:
        self._ready = asyncio.get_running_loop().create_future()
        holder = asyncio.create_task(self._hold())  # contexts are left by the task that has entered them
        await asyncio.wait((holder, self._ready), return_when=asyncio.FIRST_COMPLETED)
        if (error := holder.exception() if holder.done() else None) is not None:
            while isinstance(error, BaseExceptionGroup):  # of the client that was open
                error = error.exceptions[0]
            raise error
        return holder

    async def _hold(self) -> None:
        assert self._ready is not None  # made by `_begin`
        async with AsyncExitStack() as stack:
            for toolset, is_shared in self._toolsets:
                client = await stack.enter_async_context(self._served(toolset, is_shared))
                prefix = f"{toolset.server_name}_" if toolset.server_name else ""
                for tool in (await client.list_tools()).tools:
                    self._tools[f"{prefix}{tool.name}"] = client, tool
            self._ready.set_result(None)
            await self._over.wait()

    async def _end(self) -> None:
        self._over.set()
        await self._holder

    @asynccontextmanager
    async def _served(self, toolset: Any, is_shared: bool) -> AsyncIterator[Client]:
        """A client of a toolset that has been set up."""

        async def pull() -> Any:
            return toolset._state_adapter.validate_json(self._state.model_dump_json())

        async def push(before: bytes) -> None:
            self._state = type(self._state).model_validate_json(toolset._state_adapter.dump_json(toolset.state))

        toolset._pull_state, toolset._push_state = pull, push
        server = MCPServer(toolset.server_name or type(toolset).__name__)
        async with toolset._exit_stack:
            await toolset.setup()
            if not is_shared:
                await toolset.setup_task(self._task.data)
            toolset.register(server)
            async with Client(server) as client:
                yield client
