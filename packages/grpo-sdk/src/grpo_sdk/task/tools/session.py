"""One episode's tools, in the process where they run."""

from __future__ import annotations

import hashlib
import inspect
import os
import re
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from grpo_sdk.errors import InfrastructureError, UserError, near_match
from grpo_sdk.task.calling import asked_for, call_by_name
from grpo_sdk.task.row import Prompt, Row, TaskConfig, as_prompt
from grpo_sdk.task.task import Task
from grpo_sdk.task.tools.calls import Call, ToolCall, ToolTurn
from grpo_sdk.task.tools.environment import Environment
from grpo_sdk.task.tools.mcp_server import FOLDER_NAME, McpServer
from grpo_sdk.task.tools.tool import Tool, ToolError, ToolFault, result_text

if TYPE_CHECKING:
    import asyncio

    from grpo_sdk.task.tools.mcp_session import McpSession


MAX_OPENING_CHARS = 1 << 20
"""Of what an environment adds to a prompt."""

FOLDERS_VARIABLE = "GRPO_EPISODES"
"""Environment variable that names the folder in which a run's episodes have theirs."""

_FOLDER_NAME = re.compile(rf"(?<![\w./-]){FOLDER_NAME}(?![\w-])")


def needs_folder(task: Task) -> bool:
    """Whether each episode has a folder."""
    reset = None if task.environment is None else task.environment.reset
    asked = () if reset is None else asked_for(reset, ("self", "row", "config", "folder"))
    return bool(task.servers()) or "folder" in asked


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with its texts changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {name: _changed(each, change) for name, each in value.items()}
    return [_changed(each, change) for each in value] if isinstance(value, list | tuple) else value


def _as_opening(opening: Any) -> Prompt:
    """What `reset` gave: text or messages."""
    try:
        return as_prompt(result_text(opening, MAX_OPENING_CHARS) if isinstance(opening, str) else opening, "reset()")
    except (TypeError, UserError) as error:
        said = str(error).removeprefix("reset() ").replace("a tool returned", "returned")
        raise ToolFault(said) from None


Asked = TypeVar("Asked", ToolCall, Call)


def side_by_side(calls: Sequence[Asked], tools: Mapping[str, Tool]) -> Iterator[list[Asked]]:
    """Calls that run together: neighbours of asynchronous tools that do not end the episode, else each alone."""
    together = {name for name, tool in tools.items() if tool.is_async and not tool.ends}
    for are_together, neighbours in groupby(calls, lambda call: call.name in together):
        group = list(neighbours)
        yield from [group] if are_together else ([call] for call in group)


def named(error: BaseException, what: str) -> BaseException:
    """An error that remembers what raised it; see `where_of`."""
    error._grpo_where = what  # type: ignore[attr-defined] # exceptions take attributes
    return error


def where_of(error: BaseException, otherwise: str) -> str:
    """What raised an error, as messages name it: `tool look_up()`, `reset()`."""
    return str(getattr(error, "_grpo_where", otherwise))


@dataclass(frozen=True, slots=True)
class _Bound:
    """A call that can be made."""

    call: ToolCall
    tool: Tool
    function: Callable[[], Any]
    environment: Environment | None
    shown: Callable[[str], str]

    def answer(self) -> Call:
        started = time.perf_counter()
        try:
            value, ok = self.function(), True
        except ToolError as error:
            value, ok = str(error), False
        except BaseException as error:
            named(error, f"tool {self.call.name}()")
            raise
        return self._answered(value, ok, started)

    async def awaited(self) -> Call:
        started = time.perf_counter()
        try:
            value, ok = self.function(), True
            if inspect.isawaitable(value):
                value = await value
        except ToolError as error:
            value, ok = str(error), False
        except BaseException as error:
            named(error, f"tool {self.call.name}()")
            raise
        return self._answered(value, ok, started)

    def _answered(self, value: Any, ok: bool, started: float) -> Call:
        seconds, call = time.perf_counter() - started, self.call
        try:
            value = self.shown(value) if isinstance(value, str) else value  # before it is cut
            result = self.shown(result_text(value))
        except TypeError as error:
            raise named(ToolFault(str(error).removeprefix("a tool ")), f"tool {call.name}()") from None
        ends = self.environment is not None and self.environment.is_over
        return Call(call.name, call.arguments or {}, result, ok, seconds, are_texts=call.are_texts, ends=ends)


async def _together(bound: Sequence[Call | _Bound]) -> list[Call]:
    import asyncio  # 30 ms that most workers never need

    async def one(each: Call | _Bound) -> Call:
        return each if isinstance(each, Call) else await each.awaited()

    return list(await asyncio.gather(*map(one, bound)))


@cache
def _event_loop() -> asyncio.Runner:
    """The event loop of this process, which the connections of asynchronous tools stay on."""
    import asyncio  # as above

    return asyncio.Runner()


async def _connected(server: McpServer, folder: Path) -> McpSession:
    from grpo_sdk.task.tools.mcp_session import McpSession  # which imports asyncio

    session = McpSession(server, folder)
    await session.open()
    return session


def digests_of(tools: Iterable[Tool]) -> dict[str, str]:
    """Digest of what the policy is told of each tool, by name."""
    told = {each.name: orjson.dumps(each.spec, option=orjson.OPT_SORT_KEYS) for each in tools}
    return {name: hashlib.blake2b(spec, digest_size=8).hexdigest() for name, spec in told.items()}


class Session:
    """The tools of one episode and their state.

    What an author's code raises is not caught here, but for `ToolError`.

    Args:
        task: A task with tools.
        config: Its options.
        row: The problem.
        listed: Digests of the tools that the policy was told, by name; None where any will do.

    Attributes:
        environment: The state; None where the task has none.
        opening: What follows the row's prompt; None where nothing does.
        turns: Number of turns whose calls were answered.
        times: Seconds of each call that ran.
    """

    def __init__(self, task: Task, config: TaskConfig, row: Row, listed: Mapping[str, str] | None = None) -> None:
        self._task, self._row = task, row
        self.environment: Environment | None = None
        self.opening: Prompt | None = None
        self.turns = 0
        self.times: list[float] = []
        self._folder: TemporaryDirectory[str] | None = None
        self._connections: dict[McpServer, McpSession] = {}
        self._tools = {each.name: each for each in task.own_tools()}
        where = "its folder"
        try:
            if needs_folder(task):
                among = os.path.realpath(os.environ.get(FOLDERS_VARIABLE) or gettempdir())
                self._folder = TemporaryDirectory(prefix="grpo-episode-", dir=among, ignore_cleanup_errors=True)
            if task.environment is not None:
                where = f"{task.environment.__name__}()"
                self.environment = task.environment()
                where = "reset()"
                folder = None if self._folder is None else Path(self._folder.name)
                given = {"row": row, "config": config, "folder": folder}
                opening = call_by_name(self.environment.reset, given, positional=1)
                self.opening = None if opening is None else _changed(_as_opening(opening), self._shown)
            where = "the tools"
            if listed is not None:
                self._connect()
                now = digests_of(self._tools.values())
                if changed := [name for name in {**listed, **now} if listed.get(name) != now.get(name)]:
                    servers = ", ".join(server.label for server in self._connections)
                    raise InfrastructureError(f"{servers}: another {changed[0]}() than at the run's beginning")
        except BaseException as error:
            self._leave()
            named(error, where)
            raise

    def _connect(self) -> None:
        """Begin the sessions of MCP servers, unless they have begun: what calls nothing needs none."""
        if self._folder is None or self._connections:
            return
        for server in self._task.servers():
            connection = _event_loop().run(_connected(server, Path(self._folder.name)))
            self._connections[server] = connection
            self._tools |= {each.name: each for each in connection.tools}

    def answer(self, calls: Sequence[ToolCall]) -> list[Call]:
        """Run one call, or several of asynchronous tools together."""
        if calls:
            self._connect()
        bound = [self._bound(call) for call in calls]
        if any(isinstance(each, _Bound) and each.tool.is_async for each in bound):
            answered = _event_loop().run(_together(bound))
        else:
            answered = [each if isinstance(each, Call) else each.answer() for each in bound]
        self.times += [each.seconds for each in answered if each.ran]
        return answered

    def repeat(self, turns: Sequence[ToolTurn], *, compares: bool = True) -> list[ToolTurn]:
        """Run the calls of an episode again; returns its turns with the results that they have now.

        Args:
            turns: Turns of the episode.
            compares: Whether the results must be those of the turns.

        Raises:
            ToolFault: a result is another one; names the call.
        """
        repeated = []
        if any(call.ran for turn in turns for call in turn.calls):
            self._connect()
        for number, turn in enumerate(turns, 1):
            calls: list[Call] = []
            for group in side_by_side(turn.calls, self._tools):
                ran = iter(self.answer([call.asked for call in group if call.ran]))
                for call in group:
                    calls.append(now := next(ran) if call.ran else call)
                    if compares and (now.result, now.ok) != (call.result, call.ok):
                        what = f"{call.name}() of turn {number}"
                        raise ToolFault(f"{what} gave {now.result!r:.80}, not {call.result!r:.80}")
            repeated.append(ToolTurn(turn.text, tuple(calls), turn.problem))
            self.turns += 1
        return repeated

    def close(self) -> None:
        """End the episode."""
        try:
            if self.environment is not None:
                self.environment.close()
        finally:
            self._leave()

    def _leave(self) -> None:
        """End what is not the author's."""
        for connection in self._connections.values():
            _event_loop().run(connection.close())
        self._connections.clear()
        if self._folder is not None:
            self._folder.cleanup()

    def close_safely(self) -> None:
        """End an episode that is scored or failed already; what `close()` raises is printed."""
        try:
            self.close()
        except BaseException:
            traceback.print_exc()

    def _shown(self, text: str) -> str:
        """A text for the policy."""
        return text if self._folder is None else text.replace(self._folder.name, FOLDER_NAME)

    def _meant(self, text: str) -> str:
        """A text of the policy."""
        folder = self._folder
        return text if folder is None else _FOLDER_NAME.sub(lambda _: folder.name, text)

    def _bound(self, call: ToolCall) -> Call | _Bound:
        """The call made ready, or answered with what is wrong with it."""
        tool, problem = self._tools.get(call.name), call.problem
        if call.arguments is not None and tool is None:
            listed = ", ".join(self._tools)
            problem = f"no tool {call.name!r:.80}.{near_match(call.name, self._tools)} Tools: {listed}"
        if tool is None or call.arguments is None:
            return Call(call.name, call.arguments or {}, problem, ok=False, ran=False)
        try:
            arguments = tool.validated(_changed(call.arguments, self._meant), call.are_texts)
        except ToolError as error:
            problem = self._shown(str(error))
            return Call(call.name, call.arguments, problem, ok=False, ran=False, are_texts=call.are_texts)
        if tool.server is not None:
            asked = partial(self._connections[tool.server].call, tool.remote_name, arguments)
            return _Bound(call, tool, asked, self.environment, self._shown)
        assert tool.function is not None  # only a server's is
        function = partial(tool.function, self.environment) if tool.is_method else tool.function
        return _Bound(call, tool, partial(function, **arguments), self.environment, self._shown)
