"""A session of an MCP server, in the process where an episode's tools run."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, TYPE_CHECKING, Any, NoReturn

from grpo_sdk.distributions import needs
from grpo_sdk.errors import InfrastructureError, UserError, near_match
from grpo_sdk.killable.worker import IN_WORKER_VARIABLE
from grpo_sdk.task.tools.mcp_server import FOLDER, FOLDER_NAME, McpServer
from grpo_sdk.task.tools.tool import Tool, ToolError, ToolFault, schema_tool

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult

MAX_PAGES = 100
"""Of a list of tools."""

CLOSE_S = 10.0
"""Seconds a session may take to end; the SDK kills a command after 4."""

LAST_WORDS = 400
"""Characters of what a server printed that errors show."""

_CLOSED, _LOST = -32000, ("Connection closed", "SSE stream ")
"""Code of the SDK's own errors where no answer can come, and how they begin: servers use the code for others, too."""

logging.getLogger("mcp").addHandler(logging.NullHandler())
"""Else the SDK prints a traceback for each line that a server writes to stdout and that is no message."""


def tools_of_server(server: McpServer) -> tuple[Tool, ...]:
    """Ask a session of a server for its tools.

    Raises:
        UserError: it cannot be started or asked, or has a tool that no policy can call; says why.
    """

    async def listed() -> tuple[Tool, ...]:
        with TemporaryDirectory(prefix="grpo-mcp-") as folder:
            session = McpSession(server, Path(folder))
            await session.open()
            try:
                return session.tools
            finally:
                await session.close()

    with ThreadPoolExecutor(1) as thread:  # the caller may be in an event loop
        try:
            return thread.submit(asyncio.run, listed()).result()
        except InfrastructureError as error:
            raise UserError(str(error)) from None


class McpSession:
    """A session of a server, for one episode. All of it is used on one event loop.

    Args:
        server: The server.
        folder: An existing folder of the episode, where a command runs.

    Attributes:
        tools: Its tools.
    """

    def __init__(self, server: McpServer, folder: Path) -> None:
        self._server, self._folder = server, folder
        self._said = TemporaryFile("w+")  # noqa: SIM115 # which has no name, so that nothing is left of it
        self._over = asyncio.Event()
        self._opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._holder: asyncio.Task[None] | None = None
        self.tools: tuple[Tool, ...] = ()

    async def open(self) -> None:
        """Start the server and ask for its tools.

        Raises:
            InfrastructureError: it cannot be started, or did not answer; with what it printed.
            UserError: it has a tool that no policy can call.
        """
        self._holder = asyncio.create_task(self._hold())  # a client is left by the task that has entered it
        try:
            async with asyncio.timeout(self._server.start_s):
                await asyncio.wait((self._holder, self._opened), return_when=asyncio.FIRST_COMPLETED)
                if not self._opened.done():
                    await self._holder
                self.tools = await self._list(self._opened.result())
        except TimeoutError:
            await self._given_up(f"did not answer within {self._server.start_s:g} s")
        except (UserError, asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            await self.close()
            raise
        except BaseException as error:
            await self._given_up(f"cannot be used: {_one_line(error)}")

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Call a tool, once.

        Returns:
            The text of its result.

        Raises:
            ToolError: the server says that the call failed.
            ToolFault: the result is one that the protocol doesn't have, or that no policy reads.
            InfrastructureError: the server is gone.
        """
        from mcp import MCPError

        assert self._holder is not None
        client = self._opened.result()
        asked = asyncio.create_task(client.call_tool(name, dict(arguments)))
        try:
            await asyncio.wait((asked, self._holder), return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                raise self._failed("has ended")
            return _text_of(asked.result())
        except MCPError as error:
            if error.code == _CLOSED and str(error).startswith(_LOST):
                raise self._failed(f"has ended: {_one_line(error)}") from None
            raise ToolError(str(error)) from None
        except InfrastructureError:
            raise
        except (RuntimeError, ValueError) as error:  # pydantic's errors are ValueErrors
            raise ToolFault(f"returned what MCP doesn't have: {_one_line(error)}") from None
        except asyncio.CancelledError:
            if self._holder.done():  # a lost connection cancels whoever waits
                raise self._failed("has ended") from None
            raise
        finally:
            asked.cancel()

    async def close(self) -> None:
        """End the session; a command that goes on is killed with what it has started."""
        self._over.set()
        if self._holder is not None:
            if not self._opened.done() or not (await asyncio.wait((self._holder,), timeout=CLOSE_S))[0]:
                self._holder.cancel()
                await asyncio.wait((self._holder,))
            if not self._holder.cancelled():
                self._holder.exception()  # whoever called has heard of it
        self._said.close()

    async def _hold(self) -> None:
        async with _client(self._server, self._folder, self._said) as client:
            self._opened.set_result(client)
            await self._over.wait()

    async def _list(self, client: Client) -> tuple[Tool, ...]:
        found: dict[str, Any] = {}
        cursor = None
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            found |= {each.name: each for each in page.tools}
            if not (cursor := page.next_cursor):
                break
        else:
            raise UserError(f"{self._server.label}: its list of tools has more than {MAX_PAGES} pages.")
        if not found:
            raise UserError(f"{self._server.label} has no tools.")
        for name in self._server.only:
            if name not in found:
                raise UserError(f"{self._server.label} has no tool {name!r}.{near_match(name, found)}")
        own = json.dumps(str(self._folder))[1:-1]  # differs from episode to episode
        return tuple(
            schema_tool(
                re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64],
                (found[name].description or "").replace(str(self._folder), FOLDER_NAME),
                json.loads(json.dumps(found[name].input_schema).replace(own, FOLDER_NAME)),
                None,
                server=self._server,
                remote_name=name,
            )
            for name in self._server.only or found
        )

    async def _given_up(self, what: str) -> NoReturn:
        failure = self._failed(what)
        await self.close()
        raise failure from None

    def _failed(self, what: str) -> InfrastructureError:
        file = self._said.fileno()
        start = max(0, os.fstat(file).st_size - LAST_WORDS)
        words = os.pread(file, LAST_WORDS, start).decode(errors="replace").strip()  # the server goes on at its offset
        printed = f"; it said: {_one_line(words)}" if words else ""
        return InfrastructureError(f"{self._server.label} {what}{printed}")


@asynccontextmanager
async def _client(server: McpServer, folder: Path, said: IO[str]) -> AsyncIterator[Client]:
    """A client without handlers: a server lists other tools to one that has any."""
    try:
        from mcp import Client, StdioServerParameters
        from mcp.client.stdio import stdio_client
        from mcp.client.streamable_http import streamable_http_client
    except ImportError:
        raise UserError(f"{server.label} {needs('mcp')}") from None
    if server.url:
        import httpx2

        headers = {name: _with_variables(server, value) for name, value in server.headers.items()}

        async def heard(response: httpx2.Response) -> None:
            if response.is_error:  # the SDK's own error says no more than that
                print(f"HTTP {response.status_code} {response.reason_phrase}", file=said, flush=True)

        async with (
            httpx2.AsyncClient(headers=headers, timeout=None, event_hooks={"response": [heard]}) as http,
            Client(streamable_http_client(server.url, http_client=http), cache=None) as client,
        ):
            yield client
        return
    words = [word.replace(FOLDER, str(folder)) for word in server.command]
    variables = dict(_variable(server, entry, folder) for entry in server.env)
    if mark := os.environ.get(IN_WORKER_VARIABLE):  # by which what a killed worker started is found
        variables[IN_WORKER_VARIABLE] = mark
    parameters = StdioServerParameters(command=words[0], args=words[1:], env=variables, cwd=folder)
    connection = stdio_client(parameters, errlog=said)  # type: ignore[arg-type] # which Popen gets, an IO[str], too
    async with AsyncExitStack() as stack:
        with _own_memory_limit():
            client = await stack.enter_async_context(Client(connection, cache=None))
        yield client


@contextmanager
def _own_memory_limit() -> Iterator[None]:
    """Take back this process's bound on its address space for what starts in the block: Node.js reserves more."""
    try:
        import resource
    except ImportError:  # Windows
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _variable(server: McpServer, entry: str, folder: Path) -> tuple[str, str]:
    name, equals, value = entry.partition("=")
    return name, value.replace(FOLDER, str(folder)) if equals else _of_run(server, name)


def _with_variables(server: McpServer, text: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: _of_run(server, found[1]), text)


def _of_run(server: McpServer, name: str) -> str:
    if name not in os.environ:
        raise UserError(f"{server.label} takes the environment variable {name}, which is not set.")
    return os.environ[name]


def _text_of(result: CallToolResult) -> str:
    """The text of a result; its structured form where there is nothing else."""
    if not result.content and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False, allow_nan=False)
    texts = []
    for block in result.content:
        if block.type == "resource" and hasattr(block.resource, "text"):
            texts.append(block.resource.text)
        elif block.type == "resource_link":
            texts.append(block.uri)
        elif block.type == "text":
            texts.append(block.text)
        else:
            raise ToolFault(f"returned a block of type {block.type!r}, and the policy reads text only")
    text = "\n".join(map(str, texts))
    if result.is_error:
        raise ToolError(text)
    return text


def _one_line(error: object) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    name = type(error).__name__ if isinstance(error, Exception) and not str(error).strip() else ""
    return name or " ".join(str(error).split())[:LAST_WORDS]
